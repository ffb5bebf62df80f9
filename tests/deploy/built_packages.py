"""Creates the Debian packages of the build under test and a root file system with only their dependencies.

Both are stored in the build folder and shared by all tests of this folder.
"""

import contextlib
import fcntl
import re
import shutil
import subprocess
import unittest
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S, environment, need, program

import capabilities  # noqa: E402: deploy_case extends sys.path
import probes  # noqa: E402

CREATION_TIMEOUT_S = 300


@contextlib.contextmanager
def locked_path(name):
    """Provides the path of a shared artifact. Only one test at a time holds it."""
    folder = deploy_case.BUILD / "deploy"
    folder.mkdir(exist_ok=True)
    with open(folder / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / name


def create(folder):
    """Runs cpack, which writes the packages to `folder`."""
    done = subprocess.run(["cpack", "--config", deploy_case.BUILD / "CPackConfig.cmake", "-B", folder], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=CREATION_TIMEOUT_S, env=environment({"SOURCE_DATE_EPOCH": "1700000000"}))
    if done.returncode != 0:
        raise AssertionError(f"cpack failed\n{done.stdout}")
    shutil.rmtree(folder / "_CPack_Packages", ignore_errors=True)


def packages(fresh=False):
    """Returns {"sluice-reducer": path of the .deb, ...}. Runs cpack if the program or the packaging has changed or with `fresh`."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps", "file", "gzip")
    with locked_path("packages") as folder:
        sources = [program(), *(deploy_case.ROOT / "deploy").rglob("*"), deploy_case.BUILD / "CPackConfig.cmake"]
        existing = list(folder.glob("*.deb"))
        if fresh or not existing or min(path.stat().st_mtime for path in existing) < max(path.stat().st_mtime for path in sources):
            shutil.rmtree(folder, ignore_errors=True)
            create(folder)
        return {path.name.split("_")[0]: path for path in sorted(folder.glob("*.deb"))}


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout.strip()


def dependencies(debs):
    """Returns the names of the packages that `debs` depend on, without `debs` themselves."""
    named = {re.split(r"[ (|]", entry.strip())[0] for deb in debs.values() for entry in field(deb, "Depends").split(",")}
    return sorted(named - set(debs) - {""})


def base_root(debs):
    """Returns a Debian root file system with apt and the dependencies of `debs`. Tests must not change it. It is created from
    the package sources of this machine. Needs root."""
    capabilities.need("debian-mirror")
    need("chroot")
    required = dependencies(debs)
    with locked_path("root") as folder:
        listed = folder.parent / "root.packages"
        if folder.exists() and listed.exists() and listed.read_text().split() == required:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
        lines = subprocess.run(["apt-get", "indextargets", "--format", "deb $(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"], capture_output=True,
                               text=True, timeout=DEADLINE_S, check=True).stdout.splitlines()
        sources = sorted({line for line in lines if release and re.search(rf" {release.group(1)}\S* main$", line)})
        done = subprocess.run(["mmdebstrap", "--mode=root", "--variant=apt", f"--include={','.join(required)}", release.group(1), folder, "-"],
                              input="\n".join(sources) + "\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=CREATION_TIMEOUT_S,
                              env=environment())
        if done.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            raise unittest.SkipTest(f"needs debian-mirror: mmdebstrap: {probes.last_line(done.stdout)}")
        listed.write_text(" ".join(required))
        return folder
