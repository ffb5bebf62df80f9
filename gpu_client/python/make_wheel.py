"""usage: make_wheel.py --library libsluice.so.0 [--tls libsluice_tls.so] --out FOLDER: a wheel of the package with the shared library in it.

The wheel serves every Python 3 and, as its name says, Linux of this architecture with this glibc or a later one. It is made in a copy, so that the
source tree stays as it is; nothing is fetched. Prints the wheel's path. Takes setuptools; before 70.1 wheel too."""

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
# What every Linux with glibc has. Of libstdc++ and libgcc_s it has its own, no older than its glibc in distributions' releases.
EVERYWHERE = re.compile(r"^(libc|libm|libdl|libpthread|librt)\.so\.\d+$|^ld-linux.*$")
OF_COMPILER = re.compile(r"^lib(stdc\+\+|gcc_s)\.so\.\d+$")


def platform_tag(library):
    """manylinux_X_Y_ARCH (PEP 600), X.Y the oldest glibc that the library runs with: the newest version of a symbol that it takes, or, where it takes
    the compiler's libraries from the system, the glibc of this one, which came with those. linux_ARCH where it needs what not every Linux has."""
    text = subprocess.run(["objdump", "-p", "-T", library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED\s+(\S+)", text)
    machine = platform.machine()
    if not all(EVERYWHERE.match(name) or OF_COMPILER.match(name) for name in needed) or platform.libc_ver()[0] != "glibc":
        return f"linux_{machine}"
    glibc = max(tuple(map(int, version)) for version in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text))
    if any(OF_COMPILER.match(name) for name in needed):
        glibc = max(glibc, tuple(map(int, platform.libc_ver()[1].split("."))))
    return f"manylinux_{glibc[0]}_{glibc[1]}_{machine}"


def stage(folder, library, tls):
    """The package as it is to be packed."""
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(PACKAGE / name, folder)
    modules = folder / "src" / "sluice"
    shutil.copytree(PACKAGE / "src" / "sluice", modules, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(library, modules / "libsluice.so.0")  # by its SONAME
    if tls:
        shutil.copy(tls, modules / "libsluice_tls.so")  # libsluice looks beside itself


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--tls", type=Path, help="where sessions over TLS are wanted; needs OpenSSL 3 then")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(folder, arguments.library.resolve(), arguments.tls)
        # setuptools' own command: the interface of PEP 517 has no word for the platform. A package without compiled modules gets py3-none.
        command = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "bdist_wheel", "--dist-dir", "wheel", "--plat-name",
                   platform_tag(arguments.library)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode != 0:
            sys.exit(f"make_wheel.py: setuptools: {done.stdout}{done.stderr}")
        made, = (folder / "wheel").glob("*.whl")
        print(shutil.copy(made, out))


if __name__ == "__main__":
    main()
