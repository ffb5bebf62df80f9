"""Builds and tests what depends on the processor for 64-bit Arm, with Debian's cross compiler and qemu-user: kernels, checksums, wire format.

With SLUICE_TEST_ARM64=program the test also builds the tests of sessions and the whole program, which takes minutes. Then an Arm
reducer serves workers of this machine, and the results must be equal to the results of a native reducer. Exits with 77 and prints
the reason if a tool is missing.
"""

import json
import os
import subprocess
import unittest

import deploy_case
from deploy_case import DeployTest, environment, main, need, program, until

BUILD_TIMEOUT_S = 900
PROGRAM = os.environ.get("SLUICE_TEST_ARM64") == "program"
TESTS = ("unit/core_test", "unit/wire_test", "conformance/kernel_conformance_test", *(["functional/reducer_protocol_test_1"] if PROGRAM else []))
TOOLS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static", "ninja": "ninja-build"}


def run(*command, limit=BUILD_TIMEOUT_S):
    done = subprocess.run([str(argument) for argument in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False, env=environment())
    if done.returncode != 0:
        print(done.stdout[-6000:])
        raise AssertionError(f"exit {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def arm64_build():
    """Returns the folder of the Arm build. Later runs use it again."""
    return deploy_case.BUILD.parent / "arm64"


def arm64_libraries():
    return deploy_case.BUILD.parent / "arm64-root"


def build():
    """Configures and builds the tests and, if requested, the program."""
    need(*TOOLS)
    fetched = subprocess.run([deploy_case.ROOT / "scripts" / "arm64_libraries.sh", arm64_libraries()], check=False, timeout=300)
    if fetched.returncode == 77:
        raise unittest.SkipTest("needs debian-mirror: no packages for arm64")
    fetched.check_returncode()
    run("cmake", "-S", deploy_case.ROOT, "-B", arm64_build(), "-G", "Ninja", f"-DCMAKE_TOOLCHAIN_FILE={deploy_case.ROOT}/cmake/aarch64.cmake", f"-DSLUICE_ARM64_ROOT={arm64_libraries()}",
        "-DCMAKE_BUILD_TYPE=Release", "-DSLUICE_TESTS=ON", "-DCMAKE_UNITY_BUILD=ON", "-DSLUICE_CUDA=OFF")
    run("cmake", "--build", arm64_build(), "--parallel", os.cpu_count(), "--target", *(test.split("/")[1].removesuffix("_1") for test in TESTS),
        *(["sluice_program"] if PROGRAM else []))


def emulator():
    """Returns the emulator command that the toolchain file has chosen."""
    for line in (arm64_build() / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("SLUICE_QEMU:"):
            qemu = line.partition("=")[2]
    return [qemu, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={arm64_libraries() / 'usr/lib/aarch64-linux-gnu'}:/usr/aarch64-linux-gnu/lib"]


class Arm64(DeployTest):
    @classmethod
    def setUpClass(cls):
        build()

    def test_kernels_and_wire_format(self):
        out = run("ctest", "--test-dir", arm64_build(), "--output-on-failure", "--no-tests=error", "-j", 2, "-R", f"^({'|'.join(TESTS)})$")
        self.assertIn(f"100% tests passed, 0 tests failed out of {len(TESTS)}", out)

    @unittest.skipUnless(PROGRAM, "left out: SLUICE_TEST_ARM64=program runs it")
    def test_version_names_the_instruction_set(self):
        out = run(*emulator(), arm64_build() / "bin" / "sluice", "--version", limit=60)
        self.assertIn("NEON", out)

    @unittest.skipUnless(PROGRAM, "left out: SLUICE_TEST_ARM64=program runs it")
    def test_arm_reducer_and_native_reducer_return_equal_results(self):
        native = self.digits([program()])
        arm = self.digits([*emulator(), arm64_build() / "bin" / "sluice"])
        self.assertEqual(native, arm)

    def digits(self, reducer):
        """Trains with a reducer started by this command. Returns the hash of the weights."""
        port_file, result, errors = (self.folder / name for name in ("port", "digits.json", "stderr"))
        port_file.unlink(missing_ok=True)
        process = self.start_process([*reducer, "reducer", "--listen", "127.0.0.1:0", "--lanes", "1", "--port-file", port_file], errors)
        until("the reducer listens", port_file.exists, process)
        run(program(), "demo", "digits", "--workers", 3, "--connect", f"127.0.0.1:{port_file.read_text().strip()}", "--epochs", 3, "--json", result, limit=120)
        self.terminate(process, errors)
        return json.loads(result.read_text())["weights_hash"]


if __name__ == "__main__":
    main()
