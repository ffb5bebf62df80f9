#!/usr/bin/env python3
"""Sums up the JUnit files that ctest wrote: failures, what was not run and why, and one last line with the counts.

A case of a GoogleTest program counts as one, and so does every other ctest entry; the cases that such an entry skipped count as well. A
program that ended without its own summary (crash, timeout) counts as one failure beside the cases that passed before.

The reason of a skip is "needs CAPABILITY: REASON" (tests/capabilities: the machine lacks something) or "left out: REASON" (another test
covers it). Skips are printed in groups of one reason. With --require, a skip for one of the capabilities named is a failure; `all` names
every capability but those that neither Debian nor PyPI provides, and makes a skip without such a reason a failure too.
"""

import argparse
import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

# Not asked for by --require all: neither Debian nor PyPI provides the first two, the others are properties of the kernel.
NOT_OF_ALL = {"program:kubectl", "cuda-toolkit", "accept-queue", "socket-buffers", "ptrace"}
REASON = re.compile(r"(?:needs (?P<capability>[\w.:+-]+)|left out): .*")
SHOWN = 6  # tests of a group that are named; the others are counted


def reason_of(text):
    """The reason in what a skipped test printed; its last line where it gives none in the usual form."""
    found = REASON.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return found.group(0).strip() if found else (lines[-1] if lines else "no reason given")


class Sum:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skips = []  # (test, reason)
        self.failures = []

    def add_gtest(self, name, failed, output):
        ran = re.findall(r"^\[       OK \] (\S+)", output, re.MULTILINE)
        bad = sorted(set(re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", output, re.MULTILINE)))
        # GTEST_SKIP() prints the reason between the first and the last line of the case.
        skips = re.findall(r"^\[ RUN      \] (\S+)\n((?:(?!\[ RUN ).*\n)*?)\[  SKIPPED \] \1", output, re.MULTILINE)
        self.skips += [(f"{name} {case}", reason_of(re.sub(r"^.*Skipped$", "", text, flags=re.MULTILINE))) for case, text in skips]
        self.passed += len(ran)
        self.failed += len(bad)
        self.failures += [f"{name} {case}" for case in bad]
        if failed and not bad:
            self.failed += 1
            self.failures.append(f"{name}: ended without a summary")

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
            # Cases that a unittest script skipped; the script itself passed.
            for case, _, reason in re.findall(r"^(\w+) \(.*\) \.\.\. skipped (['\"])(.*)\2$", output, re.MULTILINE):
                self.skips.append((f"{name} {case}", reason_of(reason)))

    def require(self, required):
        """Turns skips for a required capability into failures."""
        for test, reason in list(self.skips):
            found = REASON.fullmatch(reason)
            capability = found and found.group("capability")
            left_out = found and not capability
            if capability in required or ("all" in required and not left_out and capability not in NOT_OF_ALL):
                self.skips.remove((test, reason))
                self.failed += 1
                self.failures.append(f"{test}: skipped, but SLUICE_TEST_REQUIRE asks for it: {reason}")


def print_skips(skips):
    """Groups by reason, those of the machine first."""
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
    parser.add_argument("--other-passed", type=int, default=0, help="steps beside ctest that passed")
    parser.add_argument("--other-failed", type=int, default=0, help="steps beside ctest that failed")
    parser.add_argument("--skipped-step", action="append", default=[], metavar="STEP=REASON", help="a step beside ctest that was skipped")
    parser.add_argument("--require", default="", metavar="NAME,...", help="capabilities for which a skip is a failure; all")
    parser.add_argument("files", nargs="*", metavar="RUN=FILE", help="name of a ctest run and its JUnit file")
    arguments = parser.parse_args()
    required = set(filter(None, arguments.require.split(",")))
    total, lines = Sum(), []
    others = Sum()
    others.passed, others.failed = arguments.other_passed, arguments.other_failed
    others.skips = [(step, reason) for step, _, reason in (text.partition("=") for text in arguments.skipped_step)]
    runs = {}
    for argument in arguments.files:
        run, _, path = argument.partition("=")
        runs[run] = part = Sum()
        try:
            for case in ElementTree.parse(path).getroot().iter("testcase"):
                part.add(case)
        except (OSError, ElementTree.ParseError) as error:
            part.failed += 1
            part.failures.append(f"no result of this run: {error}")
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
