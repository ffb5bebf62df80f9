"""The Debian packages of the build under test, and a root of a system that has nothing but what they depend on. Both are kept in the build's
folder, for all tests of this folder."""

import contextlib
import fcntl
import re
import shutil
import subprocess
import unittest
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S, environment, need, program

import capabilities  # noqa: E402: deploy_case says where it is
import probes  # noqa: E402

MAKING_S = 300


@contextlib.contextmanager
def alone(name):
    """One test at a time makes what others want too."""
    folder = deploy_case.BUILD / "deploy"
    folder.mkdir(exist_ok=True)
    with open(folder / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / name


def packages(fresh=False):
    """{"sluice-reducer": path of the .deb, ...}; made by cpack from what is built, anew when the program or the packaging has changed."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps", "file", "gzip")
    with alone("packages") as folder:
        sources = [program(), *(deploy_case.ROOT / "deploy").rglob("*"), deploy_case.BUILD / "CPackConfig.cmake"]
        made = list(folder.glob("*.deb"))
        if fresh or not made or min(path.stat().st_mtime for path in made) < max(path.stat().st_mtime for path in sources):
            shutil.rmtree(folder, ignore_errors=True)
            done = subprocess.run(["cpack", "--config", deploy_case.BUILD / "CPackConfig.cmake", "-B", folder], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False, timeout=MAKING_S, env=environment())
            if done.returncode != 0:
                raise AssertionError(f"cpack failed\n{done.stdout}")
            shutil.rmtree(folder / "_CPack_Packages", ignore_errors=True)
        return {path.name.split("_")[0]: path for path in sorted(folder.glob("*.deb"))}


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout.strip()


def dependencies(debs):
    """Names of what the packages depend on, themselves left out."""
    named = {re.split(r"[ (|]", entry.strip())[0] for deb in debs.values() for entry in field(deb, "Depends").split(",")}
    return sorted(named - set(debs) - {""})


def base_root(debs):
    """A Debian with apt and the dependencies; nobody may write there. Made from where this machine's apt takes packages; takes root."""
    capabilities.need("debian-mirror")
    need("chroot")
    wanted = dependencies(debs)
    with alone("root") as folder:
        listed = folder.parent / "root.packages"
        if folder.exists() and listed.exists() and listed.read_text().split() == wanted:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
        lines = subprocess.run(["apt-get", "indextargets", "--format", "deb $(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"], capture_output=True,
                               text=True, timeout=DEADLINE_S, check=True).stdout.splitlines()
        sources = sorted({line for line in lines if release and re.search(rf" {release.group(1)}\S* main$", line)})
        done = subprocess.run(["mmdebstrap", "--mode=root", "--variant=apt", f"--include={','.join(wanted)}", release.group(1), folder, "-"],
                              input="\n".join(sources) + "\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=MAKING_S,
                              env=environment())
        if done.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            raise unittest.SkipTest(f"needs debian-mirror: mmdebstrap: {probes.last_line(done.stdout)}")
        listed.write_text(" ".join(wanted))
        return folder
