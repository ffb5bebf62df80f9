#!/usr/bin/env python3
"""Summarizes the JUnit files of ctest: failures, skipped tests with their reasons, and a last line with the counts.

Each case of a GoogleTest program counts as one test, and so does every other ctest entry. Skipped cases of such an entry count
too. A program that ends without its own summary (crash, timeout) counts as one failure, in addition to the cases that passed.

The reason of a skip is "needs CAPABILITY: REASON" (the machine lacks a capability, see tests/capabilities) or "left out: REASON"
(another test covers the case). Skips are grouped by reason. With --require, a skip for a listed capability is a failure. `all`
stands for every capability that Debian or PyPI provides; it also makes a skip without such a reason a failure.
"""

import argparse
import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

# Not required by `--require all`: neither Debian nor PyPI provides the first two; the others are properties of the kernel.
NOT_OF_ALL = {"program:kubectl", "cuda-toolkit", "accept-queue", "socket-buffers", "ptrace"}
REASON = re.compile(r"(?:needs (?P<capability>[\w.:+-]+)|left out): .*")
SHOWN = 6  # number of tests of a group that are listed; the others are only counted


def reason_of(text):
    """Returns the reason in the output of a skipped test, or the last line of an output without a reason."""
    found = REASON.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return found.group(0).strip() if found else (lines[-1] if lines else "no reason given")


class Summary:
    """Counts and reasons of one ctest run."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skips = []  # (test, reason)
        self.failures = []

    def add_gtest(self, name, failed, output):
        ran = re.findall(r"^\[       OK \] (\S+)", output, re.MULTILINE)
        bad = sorted(set(re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", output, re.MULTILINE)))
        # GTEST_SKIP() prints the reason between the first and last lines of the case.
        skips = re.findall(r"^\[ RUN      \] (\S+)\n((?:(?!\[ RUN ).*\n)*?)\[  SKIPPED \] \1", output, re.MULTILINE)
        self.skips += [(f"{name} {case}", reason_of(re.sub(r"^.*Skipped$", "", text, flags=re.MULTILINE))) for case, text in skips]
        self.passed += len(ran)
        self.failed += len(bad)
        self.failures += [f"{name} {case}" for case in bad]
        if failed and not bad:
            self.failed += 1
            self.failures.append(f"{name}: ended without a test summary")

    def add(self, case):
        name = case.get("name")
        status = case.get("status")
        output = case.findtext("system-out") or ""
        if status in ("notrun", "disabled"):
            self.skips.append((name, reason_of(output or status)))
        elif "[==========] Running " in output:
            self.add_gtest(name, status == "fail", output)
        elif status == "fail":
            self.failed += 1
            self.failures.append(name)
        else:
            self.passed += 1
            # Skipped cases of a unittest script that passed.
            for case, _, reason in re.findall(r"^(\w+) \(.*\) \.\.\. skipped (['\"])(.*)\2$", output, re.MULTILINE):
                self.skips.append((f"{name} {case}", reason_of(reason)))

    def require(self, required):
        """Converts skips for required capabilities to failures."""
        for test, reason in list(self.skips):
            found = REASON.fullmatch(reason)
            capability = found and found.group("capability")
            left_out = found and not capability
            if capability in required or ("all" in required and not left_out and capability not in NOT_OF_ALL):
                self.skips.remove((test, reason))
                self.failed += 1
                self.failures.append(f"{test}: skipped, but SLUICE_TEST_REQUIRE requires it: {reason}")


def print_skips(skips):
    """Prints the skips by reason, missing capabilities first."""
    groups = collections.defaultdict(list)
    for test, reason in skips:
        groups[reason].append(test)
    if groups:
        print("not run:")
    for reason, tests in sorted(groups.items(), key=lambda group: (not group[0].startswith("needs "), group[0])):
        print(f"  {reason}")
        more = f", and {len(tests) - SHOWN} more" if len(tests) > SHOWN else ""
        print(f"    {len(tests)}: {', '.join(tests[:SHOWN])}{more}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other-passed", type=int, default=0, help="number of steps outside of ctest that passed")
    parser.add_argument("--other-failed", type=int, default=0, help="number of steps outside of ctest that failed")
    parser.add_argument("--skipped-step", action="append", default=[], metavar="STEP=REASON", help="skipped step outside of ctest")
    parser.add_argument("--require", default="", metavar="NAME,...", help="capabilities for which a skip is a failure, or all")
    parser.add_argument("files", nargs="*", metavar="RUN=FILE", help="name of a ctest run and its JUnit file")
    arguments = parser.parse_args()
    required = set(filter(None, arguments.require.split(",")))
    total, lines = Summary(), []
    others = Summary()
    others.passed, others.failed = arguments.other_passed, arguments.other_failed
    others.skips = [(step, reason) for step, _, reason in (text.partition("=") for text in arguments.skipped_step)]
    runs = {}
    for argument in arguments.files:
        run, _, path = argument.partition("=")
        runs[run] = part = Summary()
        try:
            for case in ElementTree.parse(path).getroot().iter("testcase"):
                part.add(case)
        except (OSError, ElementTree.ParseError) as error:
            part.failed += 1
            part.failures.append(f"cannot read the result of this run: {error}")
    runs["builds and checks"] = others
    for run, part in runs.items():
        part.require(required)
        total.skips += [(f"{run}: {test}", reason) for test, reason in part.skips]
        total.passed += part.passed
        total.failed += part.failed
        lines += [f"failed: {run}: {line}" for line in part.failures]
        lines.append(f"{run}: {part.passed} passed, {part.failed} failed, {len(part.skips)} skipped")
    print_skips(total.skips)
    print("\n".join(lines))
    print(f"{total.passed} passed, {total.failed} failed, {len(total.skips)} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
