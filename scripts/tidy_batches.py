#!/usr/bin/env python3
"""usage: tidy_batches.py BUILD JOBS: clang-tidy over all sources of BUILD's compile commands, several to a translation unit.

clang-tidy reads and matches every header of a translation unit, the system's too; that is nearly all of its time, and so taken once for
a batch. The compiler, which is ten times as fast, says beforehand which sources can't be read together because they define the same name;
those wait for another batch. A batch with a finding is halved, down to single sources, and those decide. What a batch cannot see: aliases
and using-declarations that nothing uses, which are looked for only in the file that clang-tidy is given.
"""

import collections
import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys

SIZE = 24
TIDY = ["clang-tidy-14", "--quiet"]
COMPILER = {".c": "clang-14", ".cc": "clang++-14"}


def sources_by_flags(build, root):
    groups = collections.OrderedDict()
    seen = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        # Generated sources live under the build and are nobody's style.
        if not source.is_relative_to(root) or source.is_relative_to(root / "build") or source in seen:
            continue
        seen.add(source)
        words = shlex.split(entry["command"])
        output = words.index("-o")
        flags = [word for word in words[1:output] + words[output + 2 :] if word not in ("-c", entry["file"])]
        groups.setdefault((source.suffix, tuple(flags)), []).append(source)
    return groups


def write_batch(build, name, sources):
    batch = build / "batches" / (name + sources[0].suffix)
    batch.write_text("".join(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources))
    return batch


def check(build, name, flags, sources):
    """Findings in these sources, empty when there are none."""
    if len(sources) == 1:
        run = subprocess.run([*TIDY, "-p", build, sources[0]], capture_output=True, text=True, check=False)
        return "" if run.returncode == 0 else run.stdout or run.stderr
    run = subprocess.run([*TIDY, write_batch(build, name, sources), "--", *flags], capture_output=True, check=False, cwd=build)
    if run.returncode == 0:
        return ""
    middle = len(sources) // 2
    return check(build, name + "_0", flags, sources[:middle]) + check(build, name + "_1", flags, sources[middle:])


def split(build, name, flags, sources):
    """The first of these sources, as many as compile as one, and those that must wait for another batch."""
    batch, waiting = sources[:SIZE], sources[SIZE:]
    clashing = []
    while len(batch) > 1:
        compiler = COMPILER[batch[0].suffix]
        run = subprocess.run([compiler, "-fsyntax-only", "-w", "-ferror-limit=1", *flags, write_batch(build, name, batch)],
                             capture_output=True, text=True, check=False, cwd=build)
        if run.returncode == 0:
            break
        # The first that is named is the one the error is in; with an error of another kind, the last goes.
        named = [source for _, source in sorted((run.stderr.find(str(source)), source) for source in batch) if str(source) in run.stderr]
        clashing.append(named[0] if named else batch[-1])
        batch.remove(clashing[-1])
    return batch, waiting + clashing


def check_all(build, name, flags, sources):
    """Findings in the sources of one set of flags, a batch after the other."""
    findings = ""
    number = 0
    while sources:
        batch, sources = split(build, f"{name}_{number}", flags, sources)
        findings += check(build, f"{name}_{number}", flags, batch)
        number += 1
    return findings


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    (build / "batches").mkdir(exist_ok=True)
    sets = sources_by_flags(build, pathlib.Path.cwd())
    print(f"clang-tidy: {sum(map(len, sets.values()))} files", flush=True)
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as executor:
        # The largest first, which take the longest.
        largest_first = sorted(sets.items(), key=lambda item: -len(item[1]))
        checks = [executor.submit(check_all, build, f"set_{i}", flags, sources) for i, ((_, flags), sources) in enumerate(largest_first)]
        findings = "".join(done.result() for done in checks)
    print(findings, end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
