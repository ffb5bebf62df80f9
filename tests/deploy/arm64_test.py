"""The reducer for 64-bit Arm: built by Debian's cross compiler, run by qemu-user. Kernels and protocol have the bits that they are promised to have, and
a reducer serves sessions. With SLUICE_TEST_ARM64=program the whole program is built as well, which takes minutes, and a reducer of that kind serves
this machine's workers, who get what one of their own gives them. Exit 77, with the reason, where a tool is missing."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = BUILD = HERE = None
LIMIT_S = 900  # of the build; ctest ends the rest
PROGRAM = os.environ.get("SLUICE_TEST_ARM64") == "program"
TESTS = ("unit/core_test", "unit/wire_test", "conformance/kernel_conformance_test", "functional/reducer_session_test")
TOOLS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static", "ninja": "ninja-build"}


def run(*command, limit=LIMIT_S, env=None):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False, env=env)
    if done.returncode != 0:
        print(done.stdout[-6000:])
        raise AssertionError(f"exit {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def build():
    """Configures and builds what is run below."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        skip(f"missing: {', '.join(missing)}")
    libraries = BUILD.parent / "arm64-root"
    fetched = subprocess.run([ROOT / "scripts" / "arm64_libraries.sh", libraries], check=False, timeout=300)
    if fetched.returncode == 77:
        skip("the libraries for arm64 can't be had")
    fetched.check_returncode()
    run("cmake", "-S", ROOT, "-B", HERE, "-G", "Ninja", f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", f"-DSLUICE_ARM64_ROOT={libraries}",
        "-DCMAKE_BUILD_TYPE=Release", "-DSLUICE_TESTS=ON", "-DSLUICE_TESTS_TOGETHER=ON", "-DCMAKE_UNITY_BUILD=ON", "-DSLUICE_CUDA=OFF", "-DSLUICE_WHEEL=OFF")
    run("cmake", "--build", HERE, "--parallel", os.cpu_count(), "--target", *(test.split("/")[1] for test in TESTS),
        *(["sluice_program"] if PROGRAM else []))


def emulator():
    """As the toolchain file has it."""
    for line in (HERE / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("SLUICE_QEMU:"):
            qemu = line.partition("=")[2]
    libraries = BUILD.parent / "arm64-root" / "usr" / "lib" / "aarch64-linux-gnu"
    return [qemu, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={libraries}:/usr/aarch64-linux-gnu/lib"]


class Arm64(unittest.TestCase):
    def test_kernels_protocol_and_reducer(self):
        out = run("ctest", "--test-dir", HERE, "--output-on-failure", "--no-tests=error", "-j", 2, "-R", f"^({'|'.join(TESTS)})$")
        self.assertIn(f"100% tests passed, 0 tests failed out of {len(TESTS)}", out)

    @unittest.skipUnless(PROGRAM, "SLUICE_TEST_ARM64=program")
    def test_the_program_says_what_it_is(self):
        out = run(*emulator(), HERE / "bin" / "sluice", "--version", limit=60)
        self.assertIn("NEON", out)

    @unittest.skipUnless(PROGRAM, "SLUICE_TEST_ARM64=program")
    def test_a_reducer_serves_this_machines_workers_the_same_bits(self):
        own = self.digits([BUILD / "bin" / "sluice"])
        theirs = self.digits([*emulator(), HERE / "bin" / "sluice"])
        self.assertEqual(own, theirs)

    def digits(self, reducer):
        """The hash of the weights that a training over one such reducer comes to."""
        ports, result = HERE / "port", HERE / "digits.json"
        ports.unlink(missing_ok=True)
        quiet = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        process = subprocess.Popen([*map(str, reducer), "reducer", "--listen", "127.0.0.1:0", "--lanes", "1", "--port-file", str(ports)],
                                   stderr=subprocess.PIPE, text=True, env=quiet)
        try:
            line = process.stderr.readline()  # it listens
            self.assertIn("listens on", line)
            port = line.split("127.0.0.1:")[1].split(":")[0]
            run(BUILD / "bin" / "sluice", "demo", "digits", "--workers", 3, "--connect", f"127.0.0.1:{port}", "--epochs", 3, "--json", result, limit=120, env=quiet)
            process.terminate()
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
        finally:
            process.kill()
            process.communicate()
        return json.loads(result.read_text())["weights_hash"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    arguments, rest = parser.parse_known_args()
    ROOT, BUILD = arguments.root, arguments.build
    HERE = BUILD.parent / "arm64"
    build()
    sys.argv[1:] = rest
    unittest.main(verbosity=2)
