"""The wheel of make_wheel.py in a fresh environment: two processes reduce without NumPy, PyTorch or files of the build."""

import os
import subprocess
import sys
import unittest
import zipfile
from pathlib import Path

from package_test_bed import DEADLINE_S, PACKAGE, PackageTest, main
from sluice_process import environment

RANK = """
import array, sys
import sluice

class Array(array.array):
    @property
    def __array_interface__(self):
        address, count = self.buffer_info()
        return {"version": 3, "shape": (count,), "typestr": "<f4", "data": (address, False)}

reducers, identity, rank = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
with sluice.Session(reducers, session_id=identity, rank=rank, ranks=2, wire_dtype="bf16") as session:
    result = session.allreduce(Array("f", [rank + 1.0, 10.0, 0.5]), "avg")
print(result.tolist(), sluice.__file__)
print([line.split()[-1] for line in open("/proc/self/maps") if "libsluice" in line][0])
"""


def outside():
    """Returns the environment of a process that uses only the installed package."""
    return {name: value for name, value in environment().items() if not name.startswith("PYTHON")}


class Wheel(PackageTest):
    def command(self, *arguments):
        done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False, cwd=self.folder, env=outside())
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_the_wheel_works_in_a_fresh_environment(self):
        library = Path(os.environ["SLUICE_LIBRARY"])
        tls = library.with_name("libsluice_tls.so")
        before = sorted(PACKAGE.rglob("*"))
        wheel = Path(self.command(sys.executable, "-B", PACKAGE / "make_wheel.py", "--library", library, *(("--tls", tls) if tls.exists() else ()),
                                  "--out", self.folder / "wheels").strip())
        self.assertEqual(sorted(PACKAGE.rglob("*")), before, "make_wheel.py changed the source tree")
        print(wheel.name, wheel.stat().st_size)
        self.assertRegex(wheel.name, r"^sluice-\d+\.\d+\.\d+-py3-none-(many)?linux_\w+\.whl$")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            for name in ("libsluice.so.0", "py.typed", "__init__.py", *(("libsluice_tls.so",) if tls.exists() else ())):
                self.assertIn(f"sluice/{name}", names)
            self.assertEqual([name for name in names if not name.startswith(("sluice/", "sluice-"))], [])

        fresh = self.folder / "fresh"
        self.command(sys.executable, "-m", "venv", fresh)
        python = fresh / "bin" / "python"
        self.command(python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index", wheel)
        self.assertIn("ModuleNotFoundError", self.command(python, "-c", "try: import numpy\nexcept ImportError as e: print(repr(e))"))
        self.command(python, "-c", "import sluice; assert sluice.library_version() == sluice.__version__")

        reducer, identity = self.start_reducer()[1], os.urandom(16).hex()
        ranks = [subprocess.Popen([python, "-c", RANK, reducer, identity, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  cwd=self.folder, env=outside()) for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.kill)
        for out in self.outputs(ranks):
            result, loaded = out.splitlines()
            self.assertRegex(result, rf"^\[1\.5, 10\.0, 0\.5\] {fresh}/.*/sluice/__init__\.py$")
            self.assertRegex(loaded, rf"^{fresh}/.*/sluice/libsluice\.so\.0$")


if __name__ == "__main__":
    main()
