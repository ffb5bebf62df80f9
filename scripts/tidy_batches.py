#!/usr/bin/env python3
"""usage: tidy_batches.py BUILD JOBS: clang-tidy over all sources of BUILD's compile commands, several to a translation unit.

clang-tidy reads and matches every header of a translation unit, the system's too; that is nearly all of its time, and so taken once for
a batch. A batch that does not pass, because of a finding or because two sources define the same name, is halved, down to single sources,
and those decide. What a batch cannot see: aliases and using-declarations that nothing uses, which are looked for only in the file that
clang-tidy is given.
"""

import collections
import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys

SIZE = 8
TIDY = ["clang-tidy-14", "--quiet"]


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


def check(build, name, flags, sources):
    """Findings in these sources, empty when there are none."""
    if len(sources) == 1:
        run = subprocess.run([*TIDY, "-p", build, sources[0]], capture_output=True, text=True, check=False)
        return "" if run.returncode == 0 else run.stdout or run.stderr
    batch = build / "batches" / (name + sources[0].suffix)
    batch.write_text("".join(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources))
    run = subprocess.run([*TIDY, batch, "--", *flags], capture_output=True, check=False, cwd=build)
    if run.returncode == 0:
        return ""
    middle = len(sources) // 2
    return check(build, name + "_0", flags, sources[:middle]) + check(build, name + "_1", flags, sources[middle:])


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    (build / "batches").mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as executor:
        checks = []
        files = 0
        for (_, flags), sources in sources_by_flags(build, pathlib.Path.cwd()).items():
            files += len(sources)
            for begin in range(0, len(sources), SIZE):
                checks.append(executor.submit(check, build, f"batch_{len(checks)}", flags, sources[begin : begin + SIZE]))
        print(f"clang-tidy: {files} files in {len(checks)} batches", flush=True)
        findings = "".join(done.result() for done in checks)
    print(findings, end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
