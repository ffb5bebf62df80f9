"""usage: make_wheel.py --library libsluice.so.0 [--tls libsluice_tls.so] --out FOLDER: builds a wheel of the package with the shared library.

The wheel works with every Python 3 on Linux of this architecture, with the glibc version in its name or a later one. It is built in a copy of the
source tree, without network access. Prints the path of the wheel. Requires setuptools, and before version 70.1 also wheel."""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# Libraries that every Linux with glibc has.
GLIBC_LIBRARIES = re.compile(r"^(libc|libm|libdl|libpthread|librt)\.so\.\d+$|^ld-linux.*$")
# Libraries of the compiler. Distributions ship versions that are at least as new as their glibc.
COMPILER_LIBRARIES = re.compile(r"^lib(stdc\+\+|gcc_s)\.so\.\d+$")


def platform_tag(library):
    """Returns manylinux_X_Y_ARCH (PEP 600), where X.Y is the oldest glibc that can load the library.

    X.Y is the newest symbol version that the library uses. If the library uses the compiler's libraries of the system, X.Y is at least this system's
    glibc, with which those were released. Returns linux_ARCH if the library needs other libraries."""
    text = subprocess.run(["objdump", "-p", "-T", library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED\s+(\S+)", text)
    machine = platform.machine()
    if not all(GLIBC_LIBRARIES.match(name) or COMPILER_LIBRARIES.match(name) for name in needed) or platform.libc_ver()[0] != "glibc":
        return f"linux_{machine}"
    glibc = max(tuple(map(int, version)) for version in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text))
    if any(COMPILER_LIBRARIES.match(name) for name in needed):
        glibc = max(glibc, tuple(map(int, platform.libc_ver()[1].split("."))))
    return f"manylinux_{glibc[0]}_{glibc[1]}_{machine}"


def stage(folder, library, tls):
    """Copies the package and the libraries to `folder`."""
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(PACKAGE / name, folder)
    modules = folder / "src" / "sluice"
    shutil.copytree(PACKAGE / "src" / "sluice", modules, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(library, modules / "libsluice.so.0")  # its SONAME
    if tls:
        shutil.copy(tls, modules / "libsluice_tls.so")  # libsluice searches its own folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--tls", type=Path, help="include support for TLS, which needs OpenSSL 3 at run time")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(folder, arguments.library.resolve(), arguments.tls)
        # The command of setuptools, because PEP 517 has no option for the platform tag. Without compiled modules the tag is py3-none.
        command = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "bdist_wheel", "--dist-dir", "wheel", "--plat-name",
                   platform_tag(arguments.library)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode != 0:
            sys.exit(f"make_wheel.py: setuptools failed: {done.stdout}{done.stderr}")
        made, = (folder / "wheel").glob("*.whl")
        print(shutil.copy(made, out))


if __name__ == "__main__":
    main()
