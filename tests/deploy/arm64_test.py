"""The reducer for 64-bit Arm: built by Debian's cross compiler, run by qemu-user. Kernels and protocol have the bits that they are promised to have, and
a reducer serves sessions. With SLUICE_TEST_ARM64=program the whole program is built as well, which takes minutes, and a reducer of that kind serves
this machine's workers, who get what one of their own gives them. Exit 77, with the reason, where a tool is missing."""

import json
import os
import subprocess
import unittest

import deploy_case
from deploy_case import DEADLINE_S, DeployTest, environment, main, need, program, until

LIMIT_S = 900  # of the build; ctest ends the rest
PROGRAM = os.environ.get("SLUICE_TEST_ARM64") == "program"
TESTS = ("unit/core_test", "unit/wire_test", "conformance/kernel_conformance_test", "functional/reducer_session_test")
TOOLS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static", "ninja": "ninja-build"}


def run(*command, limit=LIMIT_S):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False, env=environment())
    if done.returncode != 0:
        print(done.stdout[-6000:])
        raise AssertionError(f"exit {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def here():
    """The build for arm64: kept, beside the build under test."""
    return deploy_case.BUILD.parent / "arm64"


def libraries():
    return deploy_case.BUILD.parent / "arm64-root"


def build():
    """Configures and builds what is run below."""
    need(*TOOLS)
    fetched = subprocess.run([deploy_case.ROOT / "scripts" / "arm64_libraries.sh", libraries()], check=False, timeout=300)
    if fetched.returncode == 77:
        raise unittest.SkipTest("needs debian-mirror: no packages for arm64")
    fetched.check_returncode()
    run("cmake", "-S", deploy_case.ROOT, "-B", here(), "-G", "Ninja", f"-DCMAKE_TOOLCHAIN_FILE={deploy_case.ROOT}/cmake/aarch64.cmake", f"-DSLUICE_ARM64_ROOT={libraries()}",
        "-DCMAKE_BUILD_TYPE=Release", "-DSLUICE_TESTS=ON", "-DSLUICE_TESTS_TOGETHER=ON", "-DCMAKE_UNITY_BUILD=ON", "-DSLUICE_CUDA=OFF", "-DSLUICE_WHEEL=OFF")
    run("cmake", "--build", here(), "--parallel", os.cpu_count(), "--target", *(test.split("/")[1] for test in TESTS),
        *(["sluice_program"] if PROGRAM else []))


def emulator():
    """As the toolchain file has it."""
    for line in (here() / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("SLUICE_QEMU:"):
            qemu = line.partition("=")[2]
    return [qemu, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={libraries() / 'usr/lib/aarch64-linux-gnu'}:/usr/aarch64-linux-gnu/lib"]


class Arm64(DeployTest):
    @classmethod
    def setUpClass(cls):
        build()

    def test_kernels_protocol_and_reducer(self):
        out = run("ctest", "--test-dir", here(), "--output-on-failure", "--no-tests=error", "-j", 2, "-R", f"^({'|'.join(TESTS)})$")
        self.assertIn(f"100% tests passed, 0 tests failed out of {len(TESTS)}", out)

    @unittest.skipUnless(PROGRAM, "left out: SLUICE_TEST_ARM64=program runs it")
    def test_the_program_says_what_it_is(self):
        out = run(*emulator(), here() / "bin" / "sluice", "--version", limit=60)
        self.assertIn("NEON", out)

    @unittest.skipUnless(PROGRAM, "left out: SLUICE_TEST_ARM64=program runs it")
    def test_a_reducer_serves_this_machines_workers_the_same_bits(self):
        own = self.digits([program()])
        theirs = self.digits([*emulator(), here() / "bin" / "sluice"])
        self.assertEqual(own, theirs)

    def digits(self, reducer):
        """The hash of the weights that a training over one such reducer comes to."""
        port_file, result, errors = (self.folder / name for name in ("port", "digits.json", "stderr"))
        port_file.unlink(missing_ok=True)
        with open(errors, "wb") as log:
            process = subprocess.Popen([*map(str, reducer), "reducer", "--listen", "127.0.0.1:0", "--lanes", "1", "--port-file", str(port_file)],
                                       stderr=log, stdin=subprocess.DEVNULL, env=environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until("a reducer listens", port_file.exists, process)
        run(program(), "demo", "digits", "--workers", 3, "--connect", f"127.0.0.1:{port_file.read_text().strip()}", "--epochs", 3, "--json", result, limit=120)
        process.terminate()
        self.assertEqual(process.wait(DEADLINE_S), 0, errors.read_text())
        return json.loads(result.read_text())["weights_hash"]


if __name__ == "__main__":
    main()
