"""`pip wheel .` makes a wheel, and in a fresh environment two processes reduce with it without NumPy, PyTorch or files of the build."""

import os
import re
import shutil
import subprocess
import sys
import time
import unittest
import zipfile
from pathlib import Path

from package_test_bed import DEADLINE_S, ROOT, PackageTest, main, wheel_environment
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
FILES = ("lib/libsluice.so.0", "lib/libnccl-net-sluice.so", "bin/sluice", "py.typed", "__init__.py", "__main__.py")


def files_of_the_tree():
    """Returns the files outside of build/, without those that other tests of the same tree may write."""
    folders = [entry for entry in ROOT.iterdir() if entry.name not in ("build", ".git")]
    return sorted(path for entry in folders for path in [entry, *entry.rglob("*")] if "__pycache__" not in path.parts)


def outside(**extra):
    """Returns the environment of a process that uses only the installed package."""
    return {**{name: value for name, value in environment().items() if not name.startswith(("PYTHON", "SLUICE_LIBRARY"))}, **extra}


class Wheel(PackageTest):
    def command(self, *arguments, expect=0, env=None):
        done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False, cwd=self.folder, env=env or outside())
        self.assertEqual(done.returncode, expect, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout + (done.stderr if expect else "")

    def pip_wheel(self, name, **extra):
        """Returns the wheel that `pip wheel` makes of the build under test in the folder `name`."""
        self.command(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
                     "-w", self.folder / name, ROOT, env=wheel_environment() | extra)
        wheel, = (self.folder / name).iterdir()
        return wheel

    def install(self, wheel):
        """Returns the interpreter of a fresh environment with the wheel."""
        fresh = self.folder / "fresh"
        self.command(sys.executable, "-m", "venv", fresh)
        self.command(fresh / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index", wheel)
        return fresh / "bin/python"

    def test_the_wheel_works_in_a_fresh_environment(self):
        tree = files_of_the_tree()
        wheel = self.pip_wheel("wheels")
        self.assertEqual(files_of_the_tree(), tree, "pip wheel changed the source tree")
        print(wheel.name, wheel.stat().st_size)
        self.assertRegex(wheel.name, r"^sluice-\d+\.\d+\.\d+-py3-none-(many)?linux_\w+\.whl$")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            for name in FILES:
                self.assertIn(f"sluice/{name}", names)
            self.assertEqual([name for name in names if not name.startswith(("sluice/", "sluice-"))], [])
        python = self.install(wheel)
        self.assertIn("ModuleNotFoundError", self.command(python, "-c", "try: import numpy\nexcept ImportError as e: print(repr(e))"))
        self.command(python, "-c", "import sluice; assert sluice.library_version() == sluice.__version__")

        reducer, identity = self.start_reducer()[1], os.urandom(16).hex()
        ranks = [subprocess.Popen([python, "-c", RANK, reducer, identity, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  cwd=self.folder, env=outside()) for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.kill)
        for out in self.outputs(ranks):
            result, loaded = out.splitlines()
            self.assertRegex(result, rf"^\[1\.5, 10\.0, 0\.5\] {self.folder}/fresh/.*/sluice/__init__\.py$")
            self.assertRegex(loaded, rf"^{self.folder}/fresh/.*/sluice/lib/libsluice\.so\.0$")
        self.program_and_plugin(python, reducer)

    def program_and_plugin(self, python, reducer):
        plugin = Path(self.command(python, "-m", "sluice", "plugin-path").strip())
        self.assertEqual(plugin, Path(self.command(python, "-c", "import sluice; print(sluice.nccl_plugin_path())").strip()))
        self.assertTrue(plugin.is_file())
        for command in ([python.with_name("sluice")], [python, "-m", "sluice"]):
            output = self.command(*command, "check", "plugin", env=outside(SLUICE_REDUCERS=reducer, NCCL_COLLNET_ENABLE="1"))
            self.assertRegex(output, r"reduction +\d+ floats, correct")
            self.assertIn(str(plugin), output)
        self.assertRegex(self.command(python.with_name("sluice"), "no-such-command", expect=64), "^sluice: ")

    def test_two_wheels_have_the_same_bytes(self):
        first, second = self.pip_wheel("first"), self.pip_wheel("second")
        self.assertEqual(first.name, second.name)
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_a_wheel_without_git_has_the_time_of_the_tree(self):
        programs = self.folder / "programs"
        programs.mkdir()
        for name in ("objdump", "strip"):
            (programs / name).symlink_to(shutil.which(name))
        with zipfile.ZipFile(self.pip_wheel("wheels", PATH=str(programs))) as archive:
            self.assertLessEqual({f"sluice/{name}" for name in FILES}, set(archive.namelist()))
            expected = time.gmtime((ROOT / "VERSION").stat().st_mtime // 2 * 2)[:6]  # zip has even seconds only
            self.assertEqual({entry.date_time for entry in archive.infolist()}, {expected})

    def test_an_older_python_and_a_source_tree_are_refused_in_one_sentence(self):
        old = f"import sys; sys.path.insert(0, '{ROOT}/gpu_client/python'); sys.version_info = (3, 8, 18); import wheel_backend"
        self.assertRegex(self.command(sys.executable, "-B", "-c", old, expect=1), r"^sluice needs Python 3\.9 or newer; this is 3\.8\n$")
        source = outside(PYTHONPATH=str(ROOT / "gpu_client/python/src"), PYTHONDONTWRITEBYTECODE="1")
        message = self.command(sys.executable, "-m", "sluice", "plugin-path", env=source, expect=1)
        self.assertTrue(re.fullmatch(r"sluice: \S+ does not exist: .* install it with pip\n", message), message)


if __name__ == "__main__":
    main()
