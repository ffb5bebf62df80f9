"""The artefacts of release.sh: their contents, the same bytes twice, and jobs with them on Ubuntu 22.04 and 24.04 and on Debian 12."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import unittest

import deploy_case
from built_packages import CREATION_TIMEOUT_S, locked_path
from deploy_case import DEADLINE_S, DeployTest, environment, main, need, until, version

import probes  # noqa: E402: deploy_case extends sys.path

# Release, version of its Python. mmdebstrap knows the archives of both distributions.
DISTRIBUTIONS = {"jammy": "3.10", "noble": "3.12", "bookworm": "3.11"}
TORCH_TIMEOUT_S = 900
GLIBC = re.compile(r"^(lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux.*)$")
TORCH_RANK = """
import os, sys, torch
rank = int(os.environ["RANK"])
torch.distributed.init_process_group("sluice", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=2)
gradient = torch.full((1 << 18,), rank + 1.0)
torch.distributed.all_reduce(gradient)
assert bool((gradient == 3.0).all())
torch.distributed.destroy_process_group()
# In one write: the ranks share a pipe, and with PYTHONUNBUFFERED print() writes each word alone.
sys.stdout.write("reduced on Python {}.{}\\n".format(*sys.version_info))
"""


def release(out):
    """Runs release.sh with the build under test, which must link third-party libraries statically."""
    cache = (deploy_case.BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    if not list((deploy_case.ROOT / "build" / "archives").glob("lib*.a")) or "SLUICE_ARCHIVE_libfmt.a:" not in cache:
        raise unittest.SkipTest("needs debian-mirror: " + "the static libraries are missing; run ./release.sh --libraries and build again")
    done = subprocess.run([deploy_case.ROOT / "release.sh", "--out", out, "--images", "none"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, check=False, timeout=3 * CREATION_TIMEOUT_S, env=environment({"SLUICE_BUILD": str(deploy_case.BUILD)}))
    if done.returncode != 0:
        raise AssertionError(f"release.sh failed\n{done.stdout}")


def python_tool(name):
    """Returns a program of a package of PyPI, in an environment of its own."""
    with locked_path("tools") as folder:
        if not (folder / "bin" / name).exists():
            done = subprocess.run(["sh", "-c", f"{sys.executable} -m venv {folder} && {folder}/bin/pip install -q --disable-pip-version-check {name}"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=CREATION_TIMEOUT_S)
            if done.returncode != 0:
                raise unittest.SkipTest("needs pypi: " + probes.last_line(done.stdout))
        return folder / "bin" / name


def distribution(name):
    """Returns a root file system of the release `name` with Python, which tests must not change."""
    need("mmdebstrap", "unshare", "chroot")
    with locked_path(name) as folder:
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            # Debian has no keys of Ubuntu's archive. Nothing of this root file system leaves the test.
            unsigned = ["--components=main,universe", "--aptopt=Acquire::AllowInsecureRepositories true", "--aptopt=APT::Get::AllowUnauthenticated true"]
            # In namespaces, whose processes and mounts end with it: the folder can be removed after a timeout.
            done = subprocess.run(["unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child", "mmdebstrap", "--mode=root", "--variant=apt",
                                   "--include=python3,python3-venv,ca-certificates", *([] if name == "bookworm" else unsigned), name, folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False, timeout=CREATION_TIMEOUT_S, env=environment())
            if done.returncode != 0:
                shutil.rmtree(folder, ignore_errors=True)
                raise unittest.SkipTest("needs debian-mirror: " + f"mmdebstrap {name}: {probes.last_line(done.stdout)}")
            (folder / "complete").touch()
        return folder


def torch_for(python):
    """Returns a folder with torch and NumPy for this version of Python."""
    uv = python_tool("uv")
    with locked_path(f"torch-{python}") as folder:
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            done = subprocess.run([uv, "-q", "pip", "install", "--target", folder, "--python-version", python, "--python-platform", "x86_64-manylinux_2_34",
                                   "torch", "numpy"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=TORCH_TIMEOUT_S)
            if done.returncode != 0:
                raise unittest.SkipTest("needs pypi: " + f"torch: {probes.last_line(done.stdout)}")
            (folder / "complete").touch()
        return folder


class Artefacts(DeployTest):
    @classmethod
    def setUpClass(cls):
        need("cpack", "dpkg-deb", "dpkg-shlibdeps", "file", "objdump")
        with locked_path("artefacts") as folder:
            release(folder)
        cls.out = folder
        cls.wheel, = folder.glob("*.whl")
        cls.tarball, = folder.glob("*.tar.gz")

    def unpacked(self):
        self.command("tar", "-xzf", self.tarball, "-C", self.folder)
        return self.folder / self.tarball.name.removesuffix(".tar.gz")

    def test_checksums_and_bill_of_materials(self):
        self.command("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.out)
        listed = {line.split()[1] for line in (self.out / "SHA256SUMS").read_text().splitlines()}
        artefacts = {path.name for path in self.out.iterdir() if path.name != "SHA256SUMS"}
        self.assertEqual(listed, artefacts)
        document = json.loads((self.out / f"sluice-{version()}.spdx.json").read_text())
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        packages = {entry["SPDXID"]: entry for entry in document["packages"]}
        files = {entry["packageFileName"]: entry["checksums"][0]["checksumValue"] for entry in packages.values() if "packageFileName" in entry}
        self.assertEqual(files, {name: hashlib.sha256((self.out / name).read_bytes()).hexdigest() for name in artefacts if not name.endswith(".json")})
        linked = {(packages[link["spdxElementId"]]["name"], packages[link["relatedSpdxElement"]]["name"]) for link in document["relationships"]
                  if link["relationshipType"] == "STATIC_LINK"}
        installed = self.command("dpkg-query", "-W", "-f", "${source:Version}", "libfmt-dev").stdout
        self.assertIn(installed, [entry["versionInfo"] for entry in packages.values() if entry["name"] == "fmt"])
        self.assertIn((self.wheel.name, "OpenSSL"), linked)
        self.assertIn((self.tarball.name, "spdlog"), linked)
        self.assertNotIn((self.tarball.name, "OpenSSL"), linked)

    def test_a_second_run_makes_the_same_bytes(self):
        again = self.folder / "again"
        release(again)
        self.assertEqual((again / "SHA256SUMS").read_text(), (self.out / "SHA256SUMS").read_text())

    def test_files_need_glibc_only_and_contain_no_path_of_this_machine(self):
        root = self.unpacked()
        files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertGreaterEqual(len(files), 5)
        for path in files:
            with self.subTest(path.name):
                text = self.command("objdump", "-p", "-T", path).stdout
                foreign = {name for name in re.findall(r"NEEDED\s+(\S+)", text) if not GLIBC.match(name)}
                self.assertEqual(foreign, {"libssl.so.3", "libcrypto.so.3"} if path.name == "libsluice_tls.so" else set())
                self.assertLessEqual(max(tuple(map(int, found)) for found in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text)), (2, 34))
                self.assertNotIn(str(deploy_case.ROOT).encode(), path.read_bytes())
        self.assertTrue((root / "lib/librccl-net-sluice.so").is_symlink())

    def test_links_stay_links_in_the_package_of_the_plugin(self):
        deb, = self.out.glob("libnccl-net-sluice_*.deb")
        entries = self.command("dpkg-deb", "-c", deb).stdout.splitlines()
        for name in ("/usr/lib/librccl-net-sluice.so", "/usr/lib/libnccl-net-sluice/libnccl-net.so", "/usr/lib/libnccl-net-sluice/librccl-net.so"):
            self.assertTrue(any(entry.startswith("l") and f".{name} -> " in entry for entry in entries), f"{name}\n" + "\n".join(entries))

    def test_auditwheel_accepts_the_tag_of_the_wheel(self):
        tag = re.search(r"manylinux_2_(\d+)_x86_64\.whl$", self.wheel.name)
        self.assertTrue(tag and int(tag.group(1)) <= 34, self.wheel.name)
        output = self.command(python_tool("auditwheel"), "show", self.wheel, timeout=120).stdout
        found = re.search(r'is consistent with\s+the\s+following\s+platform\s+tag:\s+"manylinux_2_(\d+)_x86_64"', output)
        self.assertTrue(found and int(found.group(1)) <= 34, output)

    def inside(self, root, *arguments, binds=(), expect=0, **variables):
        """Runs a command in the root file system, with /proc and the folders `binds`, in namespaces that end with it."""
        mounts = "".join(f"mkdir -p {root}{target} && mount --bind {source} {root}{target} && " for source, target in binds)
        script = f'{mounts}mount -t proc proc {root}/proc && exec chroot {root} "$@"'
        path = environment({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "LC_ALL": "C.UTF-8", **variables})
        return self.command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *arguments, expect=expect, timeout=600, env=path).stdout

    def jobs(self, name):
        base = distribution(name)
        root = self.folder / "root"
        self.command("cp", "-a", "--reflink=auto", base, root, timeout=120)
        self.unpacked().rename(root / "opt/sluice")
        shutil.copy(self.wheel, root / "opt")
        for deb in self.out.glob("*.deb"):
            shutil.copy(deb, root / "opt")
        program = "/opt/sluice/bin/sluice"
        self.assertIn("accuracy", self.inside(root, program, "demo", "digits", "--workers", "2", "--reducers", "1", "--through-plugin"))
        reducer = self.start_process(["chroot", root, program, "reducer", "--listen", "127.0.0.1:0", "--port-file", "/tmp/port"])
        until("the reducer listens", (root / "tmp/port").exists, reducer)
        pool = {"SLUICE_REDUCERS": f"127.0.0.1:{(root / 'tmp/port').read_text().strip()}", "NCCL_COLLNET_ENABLE": "1"}
        self.assertRegex(self.inside(root, program, "check", "plugin", **pool), r"reduction +\d+ floats, correct")

        # The packages need no others of the distribution than glibc and OpenSSL.
        self.inside(root, "sh", "-c", "dpkg -i /opt/libnccl-net-sluice_*.deb /opt/sluice-reducer_*.deb")
        self.assertRegex(self.inside(root, "/usr/bin/sluice", "check", "plugin", **pool), r"plugin +/usr/lib/libnccl-net-sluice\.so: [\s\S]*reduction +\d+ floats, correct")

        self.inside(root, "sh", "-c", "python3 -m venv /opt/venv && /opt/venv/bin/pip install -q --no-index /opt/*.whl")
        self.assertRegex(self.inside(root, "/opt/venv/bin/sluice", "check", "plugin", **pool), r"reduction +\d+ floats, correct")
        # The OpenSSL of the wheel.
        self.inside(root, "/opt/venv/bin/python3", "-c", "import ctypes, sluice; ctypes.CDLL(sluice.nccl_plugin_path().replace('nccl-net-sluice', 'sluice_tls'))")
        (root / "opt/rank.py").write_text(TORCH_RANK)
        torch = torch_for(DISTRIBUTIONS[name])
        ranks = "for r in 0 1; do RANK=$r /opt/venv/bin/python3 /opt/rank.py & p=\"$p $!\"; done; for i in $p; do wait $i || exit 1; done"
        output = self.inside(root, "sh", "-c", ranks, binds=[(torch, "/opt/torch")], PYTHONPATH="/opt/torch", STORE="/tmp/store", OMP_NUM_THREADS="1",
                             GLOO_SOCKET_IFNAME="lo", **pool)
        self.assertEqual(output.count(f"reduced on Python {DISTRIBUTIONS[name]}\n"), 2, output)

    def test_jobs_on_ubuntu_22_04(self):
        self.jobs("jammy")

    def test_jobs_on_ubuntu_24_04(self):
        self.jobs("noble")

    def test_jobs_on_debian_12(self):
        self.jobs("bookworm")


if __name__ == "__main__":
    main()
