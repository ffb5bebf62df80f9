#!/usr/bin/env python3
"""Sums up the JUnit files that ctest wrote: what was skipped inside test programs and why, what failed, and one last line.

Counted are the cases of a GoogleTest program, and every other ctest entry as one, beside the cases that it skipped. A program that ended without its own summary
(crash, timeout) counts as one failure beside the cases that passed before.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree


class Sum:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.skips = []
        self.failures = []

    def add_gtest(self, name, failed, output):
        ran = re.findall(r"^\[       OK \] (\S+)", output, re.MULTILINE)
        bad = sorted(set(re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", output, re.MULTILINE)))
        # The reason is what GTEST_SKIP() printed between the case's first and last line.
        skips = re.findall(r"^\[ RUN      \] (\S+)\n((?:(?!\[ RUN ).*\n)*?)\[  SKIPPED \] \1", output, re.MULTILINE)
        for case, text in skips:
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            reason = " ".join(line for line in lines if not line.endswith("Skipped")) or "no reason given"
            self.skips.append(f"{name} {case}: {reason}")
        self.passed += len(ran)
        self.skipped += len(skips)
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
            self.skipped += 1
            last = [line for line in output.strip().splitlines() if line.strip()]
            self.skips.append(f"{name}: {last[-1].strip() if last else status}")
        elif "[==========] Running " in output:
            self.add_gtest(name, status == "fail", output)
        elif status == "fail":
            self.failed += 1
            self.failures.append(name)
        else:
            self.passed += 1
            # Cases of a script that unittest left out; the script itself passes.
            for case, reason in re.findall(r"^(\w+) \(.*\) \.\.\. skipped ['\"](.*)['\"]$", output, re.MULTILINE):
                self.skipped += 1
                self.skips.append(f"{name} {case}: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other-passed", type=int, default=0, help="steps beside ctest that went well")
    parser.add_argument("--other-failed", type=int, default=0, help="steps beside ctest that failed")
    parser.add_argument("--other-skipped", type=int, default=0, help="steps beside ctest that were left out")
    parser.add_argument("files", nargs="*", metavar="RUN=FILE", help="name of a ctest run and its JUnit file")
    arguments = parser.parse_args()
    total = Sum()
    for argument in arguments.files:
        run, _, path = argument.partition("=")
        part = Sum()
        try:
            for case in ElementTree.parse(path).getroot().iter("testcase"):
                part.add(case)
        except (OSError, ElementTree.ParseError) as error:
            part.failed += 1
            part.failures.append(f"no result of this run: {error}")
        for line in part.skips:
            print(f"skipped: {run}: {line}")
        for line in part.failures:
            print(f"failed: {run}: {line}")
        print(f"{run}: {part.passed} passed, {part.failed} failed, {part.skipped} skipped")
        total.passed += part.passed
        total.failed += part.failed
        total.skipped += part.skipped
    print(
        f"builds and checks: {arguments.other_passed} passed, {arguments.other_failed} failed, "
        f"{arguments.other_skipped} skipped"
    )
    total.passed += arguments.other_passed
    total.failed += arguments.other_failed
    total.skipped += arguments.other_skipped
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
