"""`cmake --install`: other projects find the package by CMake and by pkg-config. Also builds and runs the examples."""

import os
import subprocess
from pathlib import Path

from sluice_process import DEADLINE_S, SluiceTest, environment, main

from capabilities import need, needs  # noqa: E402: sluice_process sets the path

BUILD = Path(os.environ["SLUICE_BUILD"])
ROOT = Path(__file__).resolve().parents[2]
C_PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(sluice 0.1 REQUIRED)
add_executable(mean_of_ranks "${EXAMPLES}/c/mean_of_ranks.c")
target_link_libraries(mean_of_ranks PRIVATE sluice::client)
"""


class Install(SluiceTest):
    def command(self, *arguments, **options):
        """Runs a command, which must succeed; returns its stdout."""
        done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, *components):
        prefix = self.folder / "prefix"
        for component in components:
            self.command("cmake", "--install", BUILD, "--prefix", prefix, *component)
        return prefix

    def build_examples(self, prefix):
        """Builds the examples with the installed package, as a project of a user. Returns the folder of the programs."""
        folder = self.folder / "examples"
        self.command("cmake", "-G", "Ninja", "-S", ROOT / "examples", "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}")
        self.command("cmake", "--build", folder)
        return folder

    def ranks(self, program, hosts, count):
        """Runs `program REDUCERS RANK RANKS` for each rank, with a reducer on each host; returns the output of each rank."""
        reducers = ",".join(self.start_reducer(host=host)[1] for host in hosts)
        running = [subprocess.Popen([str(program), reducers, str(rank), str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, env=environment()) for rank in range(count)]
        for rank in running:
            self.addCleanup(rank.kill)
        outputs = [rank.communicate(timeout=DEADLINE_S) for rank in running]
        self.assertEqual([rank.returncode for rank in running], [0] * count, outputs)
        return [out for out, _ in outputs]

    def expect_mean_of_ranks(self, program, hosts, count, mean):
        self.assertEqual(self.ranks(program, hosts, count), [f"rank {rank} of {count}: mean of 1000000 elements is {mean}\n" for rank in range(count)])

    def test_a_program_in_c_finds_the_package_and_reduces(self):
        prefix = self.install([])
        self.assertIn("protocol", self.command(prefix / "bin" / "sluice", "--version"))
        # A project without C++ must find the package, too.
        self.write("CMakeLists.txt", C_PROJECT)
        self.command("cmake", "-G", "Ninja", "-S", self.folder, "-B", self.folder / "user", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DEXAMPLES={ROOT / 'examples'}")
        self.command("cmake", "--build", self.folder / "user")
        program = self.folder / "user" / "mean_of_ranks"
        for hosts in (["127.0.0.1", "localhost"], ["[::1]"]):
            if hosts == ["[::1]"]:
                need("ipv6")
            with self.subTest(hosts):
                self.expect_mean_of_ranks(program, hosts, 3, "1")

    def test_the_examples_build_with_the_client_components_and_run(self):
        prefix = self.install(["--component", "client"], ["--component", "client_library"])
        self.assertFalse((prefix / "bin").exists(), "the component client must not contain programs")
        programs = self.build_examples(prefix)
        self.expect_mean_of_ranks(programs / "mean_of_ranks", ["127.0.0.1"] * 2, 3, "1")
        outputs = self.ranks(programs / "overlapped_step", ["127.0.0.1"] * 2, 2)
        self.assertEqual(len({out.splitlines()[1].split(": ")[1] for out in outputs}), 1, f"the ranks have different sums: {outputs}")
        for rank, out in enumerate(outputs):
            self.assertRegex(out, rf"^rank {rank}: 40 operations in 40 pieces, relative error of bf16 0\.001\d\n")

    @needs("program:pkg-config")
    def test_a_program_builds_with_pkg_config_flags(self):
        prefix = self.install(["--component", "client"], ["--component", "client_library"])
        (found,) = prefix.glob("**/pkgconfig")
        flags = self.command("pkg-config", "--cflags", "--libs", "sluice", env=os.environ | {"PKG_CONFIG_PATH": str(found)}).split()
        program = self.folder / "mean"
        self.command("cc", ROOT / "examples/c/mean_of_ranks.c", "-o", program, *flags, f"-Wl,-rpath,{found.parent}")
        self.expect_mean_of_ranks(program, ["127.0.0.1"], 2, "0.5")


if __name__ == "__main__":
    main()
