"""The PEP 517 backend of the Python package: `pip install .` and `pip wheel .` build the programs and libraries and put them into the wheel.

The backend builds build/release (release.sh --build) and reuses what is there. It works with Python 3.9 or newer and needs the packages that
quickstart.sh installs. Variables: SLUICE_BUILD, a finished build to package instead; SLUICE_JOBS, the number of parallel compiler processes;
SOURCE_DATE_EPOCH, the time of the files in the wheel."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("gpu_client/python")
# File in the build: file in the package. The program finds the plugin, and both find TLS, in ../lib.
BUILT = {"bin/sluice": "bin/sluice", "lib/libsluice.so.0": "lib/libsluice.so.0", "lib/libnccl-net-sluice.so": "lib/libnccl-net-sluice.so"}
# With OpenSSL inside, if there is a static one: no wheel may expect a distribution's OpenSSL.
TLS = ("lib/static_tls/libsluice_tls.so", "lib/libsluice_tls.so")
if sys.version_info < (3, 9):
    sys.exit(f"sluice needs Python 3.9 or newer; this is {sys.version_info[0]}.{sys.version_info[1]}")
GLIBC_LIBRARIES = re.compile(r"^(lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux.*)$")


def run(*command, **options):
    """Runs a command whose output pip shows with -v and after a failure."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, stdout=sys.stderr, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"cannot build sluice: {' '.join(map(str, command))} failed with {done.returncode}")


def build():
    """Returns the folder of the finished build."""
    if os.environ.get("SLUICE_BUILD"):
        return Path(os.environ["SLUICE_BUILD"]).resolve()
    run("./release.sh", "--build")
    return ROOT / "build" / "release"


def platform_tag(files):
    """Returns manylinux_X_Y_ARCH (PEP 600), where X.Y is the oldest glibc that can load the files: the newest symbol version that they use. Returns
    linux_ARCH, which only this machine is known to run, if a file needs a library that is not glibc's."""
    text = subprocess.run(["objdump", "-p", "-T", *files], capture_output=True, text=True, check=True).stdout
    foreign = sorted({name for name in re.findall(r"NEEDED\s+(\S+)", text) if not GLIBC_LIBRARIES.match(name)})
    if foreign:
        print(f"warning: the wheel is for this machine only, because it needs {', '.join(foreign)}; ./release.sh makes one for others", file=sys.stderr)
        return f"linux_{platform.machine()}"
    glibc = max(tuple(map(int, version)) for version in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text))
    return f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"


def stage(folder, built):
    """Copies the package and the built files to `folder`, with the same modes on every machine. Returns the built files."""
    for name in ("pyproject.toml", "LICENSE", PACKAGE / "README.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    publisher = dict(re.findall(r'^(PROJECT_\w+)="(.*)"$', (ROOT / "deploy" / "project.env").read_text(), re.MULTILINE))
    name, address = re.fullmatch(r"(.*) <(.*)>", publisher["PROJECT_MAINTAINER"]).groups()
    with open(folder / "pyproject.toml", "a", encoding="utf-8") as project:
        project.write(f'\n[project.urls]\nHomepage = "{publisher["PROJECT_URL"]}"\n\n[[project.maintainers]]\nname = "{name}"\nemail = "{address}"\n')
    modules = folder / PACKAGE / "src" / "sluice"
    shutil.copytree(ROOT / PACKAGE / "src" / "sluice", modules, ignore=shutil.ignore_patterns("__pycache__"))
    tls = next((name for name in TLS if (built / name).exists()), None)
    binaries = []
    for source, target in {**BUILT, **({tls: "lib/libsluice_tls.so"} if tls else {})}.items():
        (modules / target).parent.mkdir(exist_ok=True)
        subprocess.run(["strip", "--strip-unneeded", "-o", modules / target, built / source], check=True)
        binaries.append(modules / target)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    return binaries


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    built = build()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The command of setuptools, because its backend has no option for the platform tag. Without compiled modules the tag is py3-none.
        command = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "bdist_wheel", "--dist-dir", folder / "wheel", "--plat-name",
                   platform_tag(stage(folder, built))]
        variables = {"SOURCE_DATE_EPOCH": epoch(), **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False, env=variables)
        if done.returncode != 0:
            sys.exit(f"cannot build the wheel: setuptools failed: {done.stdout}{done.stderr}")
        made, = (folder / "wheel").glob("*.whl")
        return Path(shutil.copy(made, wheel_directory)).name


def build_sdist(sdist_directory, config_settings=None):
    sys.exit("sluice has no source distribution in the form of Python packages; use an archive of the source tree")


def epoch():
    """Returns the time of the commit, or that of the newest change in an archive of the tree."""
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False) if shutil.which("git") else None
    return (done and done.stdout.strip()) or str(int((ROOT / "VERSION").stat().st_mtime))
