"""Knows which optional capabilities of a machine the tests may use: network namespaces, a package index, programs, IPv6, ...

Every capability has one probe, which returns None where the machine has the capability and otherwise the reason. ./test.sh runs all
probes once, writes the answers to a file and names it in SLUICE_TEST_CAPABILITIES; every test of that run reads the same answers. A
test that is started by hand has no such file and runs the probes that it needs itself.

A skipped test prints "needs NAME: REASON" and exits with 77 (a whole test) or reports that text as the reason of a skipped case.
scripts/test_report.py groups the skips by that text. SLUICE_TEST_REQUIRE turns such a skip into a failure.

    capabilities.py check --out FILE     run all probes, print a table, write FILE
    capabilities.py why NAME             print the reason and exit 77 where NAME is missing
    capabilities.py list                 print each capability and what it is for
"""

import argparse
import functools
import os
import sys
import unittest
from pathlib import Path

import probes

ANSWERS = "SLUICE_TEST_CAPABILITIES"
SKIP_EXIT = 77
PROGRAM = "program:"

# name: (probe, what it is for, whether SLUICE_TEST_REQUIRE=all asks for it). `all` leaves out what Debian and PyPI do not provide.
CAPABILITIES = {
    "network-namespaces": (probes.network_namespaces, "hosts on a switch with shaped links, made of network namespaces", True),
    "bind-mounts": (probes.bind_mounts, "mounts that only one test sees: the hosts of the Slurm cluster, /sys of a namespace", True),
    "root": (probes.root, "packages and images are made as root", True),
    "debian-mirror": (probes.debian_mirror, "a Debian base system from the mirror that apt uses", True),
    "buildah": (probes.buildah, "container images", True),
    "rdma-guest": (probes.rdma_guest, "a QEMU guest whose kernel has soft-RoCE", True),
    "pypi": (probes.pypi, "Python packages from the package index", True),
    "ipv6": (probes.ipv6, "the address ::1", True),
    "callgrind": (probes.callgrind, "counted instructions", True),
    PROGRAM + "kubectl": (functools.partial(probes.program, "kubectl"), "Kubernetes manifests are rendered", False),
}


@functools.cache
def answers():
    """{capability: reason or None} of the run's file; empty where there is none."""
    path = os.environ.get(ANSWERS)
    if not path or not Path(path).is_file():
        return {}
    rows = (line.split("\t", 1) for line in Path(path).read_text(encoding="utf-8").splitlines())
    return {name: reason or None for name, reason in rows}


@functools.cache
def why_not(name):
    """The reason why this machine does not have the capability, or None. program:NAME asks for a program on PATH."""
    if name in answers():
        return answers()[name]
    if name in CAPABILITIES:
        return CAPABILITIES[name][0]()
    if name.startswith(PROGRAM):
        return probes.program(name.removeprefix(PROGRAM))
    raise KeyError(f"no capability {name!r}; there are: {', '.join(CAPABILITIES)}, {PROGRAM}NAME")


def missing(*names):
    """'needs NAME: REASON' of the first capability that is missing, or None."""
    return next((f"needs {name}: {reason}" for name in names if (reason := why_not(name))), None)


def needs(*names):
    """Decorator of a test case or a class of them: skipped where one of the capabilities is missing."""
    reason = missing(*names)
    return unittest.skip(reason) if reason else lambda test: test


def need(*names):
    """Skips the running test case where one of the capabilities is missing."""
    if reason := missing(*names):
        raise unittest.SkipTest(reason)


def require(*names):
    """Ends this process as a skipped test where one of the capabilities is missing."""
    if reason := missing(*names):
        skip(reason)


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIP_EXIT)


def enter_namespaces():
    """Makes /run/netns usable for this process. Where root may use it directly, nothing happens. Elsewhere the process starts again, once, in
    a mount namespace of its own with a private tmpfs on /run (and in a user namespace, for a user who is not root)."""
    entry = probes.namespace_entry()
    if entry:
        os.environ[probes.ENTERED] = "1"
        sys.stdout.flush()
        os.execvp(entry[0], [*entry, sys.executable, "-B", *sys.argv])


def check(out):
    lines, width = [], max(map(len, CAPABILITIES))
    for name, (probe, purpose, _) in CAPABILITIES.items():
        reason = probe()
        print(f"  {name:{width}}  {'yes' if reason is None else 'no: ' + reason}", flush=True)
        lines.append(f"{name}\t{reason or ''}\n")
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("".join(lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check", help="run all probes").add_argument("--out", type=Path, metavar="FILE", help="where the tests of a run read the answers")
    verbs.add_parser("why", help="exit 77 with the reason where it is missing").add_argument("name")
    verbs.add_parser("list", help="print what each capability is for")
    arguments = parser.parse_args()
    if arguments.verb == "check":
        check(arguments.out)
    elif arguments.verb == "list":
        for name, (_, purpose, by_all) in CAPABILITIES.items():
            print(f"{name}: {purpose}{'' if by_all else ' (not part of SLUICE_TEST_REQUIRE=all)'}")
    else:
        try:
            require(arguments.name)
        except KeyError as error:
            parser.error(error.args[0])


if __name__ == "__main__":
    main()
