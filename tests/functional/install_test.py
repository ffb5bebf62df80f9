"""`cmake --install`: other projects find the package by CMake and by pkg-config. Also builds and runs the examples."""

import os
import subprocess
from pathlib import Path

from sluice_process import DEADLINE_S, SluiceTest, environment, main, until

from capabilities import need, needs  # noqa: E402: sluice_process sets the path

BUILD = Path(os.environ["SLUICE_BUILD"])
PROJECT = Path(__file__).parent / "install"
ROOT = Path(__file__).resolve().parents[2]


class Install(SluiceTest):
    def command(self, *arguments, **options):
        """Runs a command, which must succeed; returns its stdout."""
        done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start_reducer_on(self, host):
        """Starts a reducer on a free port of `host`; returns "host:port"."""
        port_file = self.folder / f"port{len(list(self.folder.iterdir()))}"
        running = self.start("reducer", "--listen", f"{host}:0", "--port-file", port_file)
        until(f"a reducer listens on {host}", lambda: port_file.exists() or running.ended())
        self.assertIsNone(running.process.poll(), running.stderr())
        return f"{host}:{port_file.read_text().strip()}"

    def install(self, *components):
        prefix = self.folder / "prefix"
        for component in components:
            self.command("cmake", "--install", BUILD, "--prefix", prefix, *component)
        return prefix

    def ranks(self, program, reducers, count):
        """Runs `program REDUCERS RANK RANKS` for each rank; returns the output of each."""
        running = [subprocess.Popen([*map(str, program), reducers, str(rank), str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, env=environment()) for rank in range(count)]
        for rank in running:
            self.addCleanup(rank.kill)
        outputs = [rank.communicate(timeout=DEADLINE_S) for rank in running]
        self.assertEqual([rank.returncode for rank in running], [0] * count, outputs)
        return [out for out, _ in outputs]

    def test_a_program_in_c_finds_the_package_and_reduces(self):
        prefix = self.install([])
        self.assertIn("protocol", self.command(prefix / "bin" / "sluice", "--version"))
        self.command("cmake", "-G", "Ninja", "-S", PROJECT, "-B", self.folder / "user", f"-DCMAKE_PREFIX_PATH={prefix}")
        self.command("cmake", "--build", self.folder / "user")
        program = self.folder / "user" / "mean"
        for hosts in (["127.0.0.1", "localhost"], ["[::1]"]):
            if hosts == ["[::1]"]:
                need("ipv6")
            reducers = ",".join(self.start_reducer_on(host) for host in hosts)
            with self.subTest(reducers):
                self.assertEqual(self.ranks([program], reducers, 3), ["ok 1 1 2\n"] * 3)

    def test_the_examples_build_with_the_client_components_and_run(self):
        prefix = self.install(["--component", "client"], ["--component", "client_library"])
        self.assertFalse((prefix / "bin").exists(), "the component client must not contain programs")
        self.command("cmake", "-G", "Ninja", "-S", ROOT / "examples", "-B", self.folder / "examples", f"-DCMAKE_PREFIX_PATH={prefix}")
        self.command("cmake", "--build", self.folder / "examples")
        reducers = ",".join(self.start_reducer_on("127.0.0.1") for _ in range(2))
        self.assertEqual(self.ranks([self.folder / "examples" / "mean_of_ranks"], reducers, 3),
                         [f"rank {rank} of 3: mean of 1000000 elements is 1\n" for rank in range(3)])
        outputs = self.ranks([self.folder / "examples" / "overlapped_step"], reducers, 2)
        self.assertEqual(len({out.splitlines()[1].split(": ")[1] for out in outputs}), 1, f"the ranks have different sums: {outputs}")
        for rank, out in enumerate(outputs):
            self.assertRegex(out, rf"^rank {rank}: 40 operations in 40 pieces, relative error of bf16 0\.001\d\n")

    @needs("program:pkg-config")
    def test_a_program_builds_with_pkg_config_flags(self):
        prefix = self.install(["--component", "client"], ["--component", "client_library"])
        (found,) = prefix.glob("**/pkgconfig")
        flags = self.command("pkg-config", "--cflags", "--libs", "sluice", env=os.environ | {"PKG_CONFIG_PATH": str(found)}).split()
        program = self.folder / "mean"
        self.command("cc", PROJECT / "mean.c", "-o", program, *flags, f"-Wl,-rpath,{found.parent}")
        self.assertEqual(self.ranks([program], self.start_reducer_on("127.0.0.1"), 2), ["ok 0.5 1 2\n"] * 2)


if __name__ == "__main__":
    main()
