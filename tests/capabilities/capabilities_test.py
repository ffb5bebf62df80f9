"""Tests the behavior on machines that lack a capability: tests, summary and scripts must report the reason in one sentence."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import capabilities

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120
PROGRAM = None

JUNIT = """<testsuite>
<testcase name="deploy/slurm" status="notrun"><system-out>noise
skipped: needs network-namespaces: ip: Operation not permitted
</system-out></testcase>
<testcase name="deploy/kubernetes" status="notrun"><system-out>skipped: needs program:kubectl: kubectl is not installed</system-out></testcase>
<testcase name="functional/plan" status="run"><system-out>test_a (plan.Plan.test_a) ... skipped 'needs python-module:yaml: python3-yaml is not installed'
test_b (plan.Plan.test_b) ... skipped "left out: another test's work"
</system-out></testcase>
<testcase name="unit/socket" status="run"><system-out>[==========] Running 2 tests
[ RUN      ] Socket.OverIpv6
file.cc:3: Skipped
needs ipv6: this host has no address ::1
[  SKIPPED ] Socket.OverIpv6 (0 ms)
[ RUN      ] Socket.Other
[       OK ] Socket.Other (0 ms)
</system-out></testcase>
{more}</testsuite>
"""


def run(*words, env=None, cwd=ROOT):
    return subprocess.run([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=DEADLINE_S,
                          check=False, env=env, cwd=cwd)


class MissingCapabilityTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o755)
        self.programs = self.folder / "programs"
        self.programs.mkdir()

    def environment(self, **variables):
        """Returns the environment without probe results and package index settings; self.programs is first on PATH."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLUICE_", "PIP_"))}
        return inherited | {"PATH": f"{self.programs}:{os.environ['PATH']}"} | variables

    def fake(self, name, text="", status=1, output=""):
        self.script(name, f"echo '{output}'\necho '{text}' >&2\nexit {status}")

    def script(self, name, body):
        script = self.programs / name
        script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        script.chmod(0o755)

    def without(self, name):
        """Returns the environment of a machine without the program."""
        for folder in map(Path, os.environ["PATH"].split(":")):
            for program in folder.iterdir() if folder.is_dir() else []:
                link = self.programs / program.name
                if program.name != name and not link.is_symlink():
                    link.symlink_to(program)
        return self.environment(PATH=str(self.programs))


class Probes(MissingCapabilityTest):
    def expect_missing(self, name, text, env):
        done = run(sys.executable, "-B", ROOT / "tests/capabilities/capabilities.py", "why", name, env=env)
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertRegex(done.stdout, rf"^skipped: needs {name}: .*{text}.*\n$")

    def test_network_namespaces_without_permission(self):
        # A machine that lacks the capability anyway may report its own reason before it runs ip.
        own_reason = capabilities.missing_reason("network-namespaces")
        for program in ("ip", "tc", "sysctl", "nsenter", "unshare"):
            if program == "ip" or not shutil.which(program):
                self.fake(program, "Operation not permitted")
        self.expect_missing("network-namespaces", "Operation not permitted" if own_reason is None else f"(Operation not permitted|{re.escape(own_reason)})",
                            self.environment())

    def test_programs_that_are_not_installed(self):
        for program, name in (("valgrind", "callgrind"), ("buildah", "buildah"), ("mmdebstrap", "debian-mirror"), ("etcd", "program:etcd"),
                              ("kubectl", "program:kubectl"), ("qemu-system-x86_64", "rdma-guest")):
            with self.subTest(name):
                shutil.rmtree(self.programs)
                self.programs.mkdir()
                expected = f"{program} is not installed|missing {program}|is not root|apt-get install"
                self.expect_missing(name, f"({expected})", self.without(program))

    @capabilities.needs("root")
    def test_storage_that_cannot_hold_images(self):
        self.fake("buildah", "invalid argument")
        self.expect_missing("buildah", "overlay: invalid argument; vfs: invalid argument", self.environment())

    @capabilities.needs("root")
    def test_apt_without_package_lists(self):
        self.fake("apt-get", status=0)
        self.fake("mmdebstrap", status=0)
        self.expect_missing("debian-mirror", "run apt-get update", self.environment())

    def test_unreachable_package_index(self):
        closed = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "0"}
        self.expect_missing("pypi", "six", self.environment(**closed))

    def test_mounts_without_permission(self):
        self.fake("unshare", "unshare failed: Operation not permitted")
        self.expect_missing("bind-mounts", "Operation not permitted", self.environment())

    def test_empty_home_removes_no_capability(self):
        homeless = self.environment(HOME="")
        del homeless["HOME"]
        for env in (homeless, homeless | {"HOME": ""}):
            out = self.folder / "results"
            run(sys.executable, "-B", ROOT / "tests/capabilities/capabilities.py", "check", "--out", out, env=env)
            found = dict(line.split("\t", 1) for line in out.read_text(encoding="utf-8").splitlines())
            for name in ("buildah", "network-namespaces", "bind-mounts", "rdma-guest"):
                # Reasons may hold identifiers that differ from run to run.
                self.assertEqual(bool(found[name]), capabilities.missing_reason(name) is not None, name)

    def test_results_of_the_run_are_used(self):
        results = self.folder / "results"
        results.write_text("ipv6\tthe result of the run\n", encoding="utf-8")
        self.expect_missing("ipv6", "the result of the run", self.environment(SLUICE_TEST_CAPABILITIES=str(results)))

    def test_sources_and_revision_are_found_without_git(self):
        env = self.without("git")
        if PROGRAM:
            done = run(sys.executable, "-B", ROOT / "tests/functional/variables_test.py", "--sluice", PROGRAM, env=env)
            self.assertEqual(done.returncode, 0, done.stdout)
        source = self.folder / "archive"
        (source / "cmake").mkdir(parents=True)
        (source / "cmake/archive_revision.txt").write_text("v9-g1234567\n", encoding="ascii")
        done = run("cmake", "-D", f"SOURCE={source}", "-D", f"OUT={self.folder}/revision.cc", "-P", ROOT / "cmake/WriteRevision.cmake", env=env)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn('return "v9-g1234567";', (self.folder / "revision.cc").read_text(encoding="utf-8"))


class Summary(MissingCapabilityTest):
    def report(self, *options, more=""):
        file = self.folder / "junit.xml"
        file.write_text(JUNIT.format(more=more), encoding="utf-8")
        return run(sys.executable, "-B", ROOT / "scripts/test_report.py", "--other-passed", 1, *options, f"release={file}")

    def test_skips_are_grouped_by_reason(self):
        done = self.report("--skipped-step", "clang-tidy=needs program:clang-tidy-14: clang-tidy-14 is not installed")
        self.assertEqual(done.returncode, 0, done.stdout)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:3], ["not run:", "  needs ipv6: this host has no address ::1", "    1: release: unit/socket Socket.OverIpv6"])
        self.assertIn("  left out: another test's work", lines)
        self.assertIn("    1: builds and checks: clang-tidy", lines)
        self.assertEqual(lines[-1], "3 passed, 0 failed, 6 skipped")

    def test_missing_required_capability_is_a_failure(self):
        done = self.report("--require", "network-namespaces")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "3 passed, 1 failed, 4 skipped"), done.stdout)
        self.assertIn("failed: release: deploy/slurm: skipped, but SLUICE_TEST_REQUIRE requires it: needs network-namespaces: ip: Operation", done.stdout)

    def test_all_excludes_capabilities_that_debian_does_not_provide(self):
        done = self.report("--require", "all", more='<testcase name="x" status="notrun"><system-out>no reason</system-out></testcase>')
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "3 passed, 4 failed, 2 skipped"), done.stdout)
        self.assertIn("  needs program:kubectl", done.stdout)


class Scripts(MissingCapabilityTest):
    """The scripts print one sentence, exit with 69, and install and build nothing. What is known before is refused before packages are looked at."""

    def expect_refused(self, text, env):
        for script in ("quickstart.sh", "test.sh"):
            with self.subTest(script):
                done = run(ROOT / script, env=env)
                self.assertEqual(done.returncode, 69, done.stdout)
                self.assertRegex(done.stdout.splitlines()[-1], text)
                self.assertNotIn("build release", done.stdout)

    def test_arguments_of_test_sh(self):
        for arguments, text in ((["--all", "unit"], "name no labels beside it"), (["unit", "--all"], "name no labels beside it"),
                                (["units"], "unknown argument units; expected --all or labels: unit ")):
            with self.subTest(arguments):
                done = run(ROOT / "test.sh", *arguments, env=self.environment(SLUICE_TEST_DISK_MIB="999999999"))
                self.assertEqual(done.returncode, 64, done.stdout)
                self.assertIn(text, done.stdout)

    def test_the_summary_lists_what_the_short_run_leaves_out(self):
        self.script("ctest", 'case "$*" in *" -C named "*) echo "Total Tests: 5" ;; *lint*) echo "Total Tests: 5" ;; *) echo "Total Tests: 3" ;; esac')
        parts = "/^readonly LABELS=/p; /^readonly SHORT_LABELS=/p; /^count_tests()/,/^}/p; /^list_left_out()/,/^}/p"
        done = run("bash", "-euc", f'source <(sed -n "{parts}" test.sh); list_left_out', env=self.environment())
        self.assertEqual(done.stdout, "left out (./test.sh --all runs it): " + ", ".join(f"{label} 2 of 5" for label in (
            "unit", "conformance", "functional", "streams", "fault", "nccl", "python")) + ", torch 5 of 5, frameworks 5 of 5, fuzz 5 of 5, model 5 of 5, "
            "rdma 5 of 5, deploy 5 of 5, the tests with sanitizers, clang-tidy, the check that each header compiles alone\n")

    def test_full_disk(self):
        self.expect_refused(r"has \d+ MiB of free disk space; the build needs 999999999 MiB$", self.environment(SLUICE_TEST_DISK_MIB="999999999"))

    def test_little_memory(self):
        self.expect_refused(r"has \d+ MiB of free memory; the compiler needs 999999999 MiB$", self.environment(SLUICE_TEST_MEMORY_MIB="999999999"))

    def test_old_glibc(self):
        self.fake("getconf", status=0, output="glibc 2.31")
        self.expect_refused(r"glibc 2\.34 or newer is needed; this machine has 2\.31$", self.environment())

    def test_old_cmake(self):
        self.fake("cmake", status=0, output="cmake version 3.18.4")
        self.fake("dpkg-query", status=0, output="installed")
        self.expect_refused(r"CMake 3\.25 or newer is needed; this machine has 3\.18\.4$", self.environment())

    def test_unsupported_distribution(self):
        release = self.folder / "os-release"
        for content, name in (('ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n', "Ubuntu 22.04.5 LTS"),
                              ('ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian 11"\n', "Debian 11")):
            release.write_text(content)
            self.expect_refused(f"cannot build on {name}: Debian 12 and 13 and Ubuntu 24.04 are supported; ",
                                self.environment(SLUICE_TEST_OS_RELEASE=str(release)))

    def test_no_compiler(self):
        self.fake("dpkg-query", status=0, output="installed")
        self.expect_refused(r"no C\+\+ compiler: \S+ is not installed or does not run; install g\+\+ 12 or newer$", self.environment(CXX="/bin/false"))
        self.fake("c++", status=0, output="11.4.0 Free Software Foundation")
        self.expect_refused(r"g\+\+ 12 or newer is needed; \S+ has version 11\.4\.0", self.environment())

    @capabilities.needs("root")
    def test_no_network(self):
        self.fake("dpkg-query", status=1)
        self.fake("apt-get", "Could not resolve the mirror", status=100)
        self.expect_refused(r"^apt-get cannot download packages; check the network connection: g\+\+ ", self.environment())

    @capabilities.needs("root")
    def test_an_unknown_package_does_not_cost_the_others(self):
        self.fake("dpkg-query", status=1)
        calls = self.folder / "calls"
        self.script("apt-get", f'echo "$*" >>{calls}')
        self.script("apt-cache", 'case $2 in strange) ;; virtual) printf "virtual:\\n  Candidate: (none)\\n" ;; *) printf "$2:\\n  Candidate: 1:2.3-4\\n" ;; esac')

        def install(*words):
            calls.write_text("")
            done = run("bash", "-euc", 'source scripts/packages.sh; install_packages "$@"', "bash", *words, env=self.environment(), cwd=ROOT)
            return done.returncode, done.stdout, [line.partition(" --no-install-recommends ")[2] for line in calls.read_text().splitlines() if " install " in line]

        installed = ["--download-only spin valgrind", "spin valgrind"]
        self.assertEqual(install("--optional", "spin", "strange", "virtual", "valgrind"),
                         (0, "packages: this system has no strange\npackages: this system has no virtual\npackages: installing spin valgrind\n", installed))
        self.assertEqual(install("--optional", "strange"), (1, "packages: this system has no strange\n", []))
        # What a build needs is not left out.
        self.assertEqual(install("spin", "strange")[2], [line.replace("valgrind", "strange") for line in installed])

    @capabilities.needs("root", "program:setpriv")
    def test_user_without_permission_to_install(self):
        self.fake("dpkg-query", status=1)
        scripts = self.folder / "scripts"
        shutil.copytree(ROOT / "scripts", scripts)
        done = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", "source scripts/packages.sh; install_packages g++ cmake",
                   env=self.environment(), cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"^packages are missing and user \S+ cannot install them; run as root: apt-get install g\+\+ cmake\n$")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", help="the sluice program of the build")
    arguments, rest = parser.parse_known_args()
    PROGRAM = arguments.sluice
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
