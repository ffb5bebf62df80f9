"""Detects the optional capabilities of a machine for the tests: network namespaces, a package index, programs, IPv6, ...

Each capability has a probe, which returns None if the machine has the capability, otherwise the reason. ./test.sh runs all
probes once, writes the results to a file and sets SLUICE_TEST_CAPABILITIES to its path, so all tests of a run use the same
results. Without the file, a test runs the probes that it needs.

A skipped test prints "needs NAME: REASON". It exits with 77 (a whole test) or reports the text as the reason of a skipped case.
scripts/test_report.py groups the skips by this text. SLUICE_TEST_REQUIRE makes such a skip a failure.

    capabilities.py check --out FILE     run all probes, print a table, write FILE
    capabilities.py why NAME             exit with 77 and print the reason if NAME is missing
    capabilities.py list                 print all capabilities and their purpose
"""

import argparse
import functools
import os
import sys
import unittest
from pathlib import Path

import probes

RESULTS_VARIABLE = "SLUICE_TEST_CAPABILITIES"
SKIP_EXIT = 77
PROGRAM = "program:"

# name: (probe, purpose, whether SLUICE_TEST_REQUIRE=all includes it). `all` excludes what neither Debian nor PyPI provides.
CAPABILITIES = {
    "network-namespaces": (probes.network_namespaces, "test networks: hosts on a switch with rate-limited links, built from network namespaces", True),
    "bind-mounts": (probes.bind_mounts, "private mounts of a test: the hosts of the Slurm cluster, /sys of a namespace", True),
    "root": (probes.root, "builds of packages and images", True),
    "debian-mirror": (probes.debian_mirror, "a Debian base system from the mirror of apt", True),
    "buildah": (probes.buildah, "container images", True),
    "rdma-guest": (probes.rdma_guest, "a QEMU guest whose kernel has soft-RoCE", True),
    "pypi": (probes.pypi, "Python packages from the package index", True),
    "ipv6": (probes.ipv6, "the address ::1", True),
    "control-groups": (probes.control_groups, "limits of memory and CPU time for a process of a test", False),
    "callgrind": (probes.callgrind, "instruction counts", True),
    PROGRAM + "etcd": (functools.partial(probes.programs, "etcd"), "the coordinator of several reducers", True),
    PROGRAM + "kubectl": (functools.partial(probes.programs, "kubectl"), "rendering of Kubernetes manifests", False),
}


@functools.cache
def probe_results():
    """Returns {capability: reason or None} of the file of this run; empty without a file."""
    path = os.environ.get(RESULTS_VARIABLE)
    if not path or not Path(path).is_file():
        return {}
    rows = (line.split("\t", 1) for line in Path(path).read_text(encoding="utf-8").splitlines())
    return {name: reason or None for name, reason in rows}


@functools.cache
def missing_reason(name):
    """Returns why the machine lacks the capability, or None. program:NAME is a program on PATH."""
    if name in probe_results():
        return probe_results()[name]
    if name in CAPABILITIES:
        return CAPABILITIES[name][0]()
    if name.startswith(PROGRAM):
        return probes.programs(name.removeprefix(PROGRAM))
    raise KeyError(f"no capability {name!r}; the capabilities are: {', '.join(CAPABILITIES)}, {PROGRAM}NAME")


def missing(*names):
    """Returns 'needs NAME: REASON' of the first missing capability, or None."""
    return next((f"needs {name}: {reason}" for name in names if (reason := missing_reason(name))), None)


def needs(*names):
    """Decorator that skips a test case or test class if one of the capabilities is missing."""
    reason = missing(*names)
    return unittest.skip(reason) if reason else lambda test: test


def need(*names):
    """Skips the running test case if one of the capabilities is missing."""
    if reason := missing(*names):
        raise unittest.SkipTest(reason)


def require(*names):
    """Ends this process as a skipped test if one of the capabilities is missing."""
    if reason := missing(*names):
        skip(reason)


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIP_EXIT)


def enter_namespaces():
    """Makes /run/netns usable for this process. Does nothing if root can use it directly. Otherwise the process restarts once in a
    new mount namespace with a private tmpfs on /run, and in a user namespace if the user is not root."""
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
    verbs.add_parser("check", help="run all probes").add_argument("--out", type=Path, metavar="FILE", help="file for the results; the tests of a run read it")
    verbs.add_parser("why", help="exit with 77 and print the reason if it is missing").add_argument("name")
    verbs.add_parser("list", help="print all capabilities and their purpose")
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
