"""Instructions that a unit of steady work takes, counted by callgrind: a guard of what was won that no busy machine disturbs.

Counted is what the program itself executes: no library's functions and not the transport of the rig.

A bound is about a quarter above the count it was set at, which stands beside it (g++ 12, Release). What makes a hot path better lowers
its bound in the same commit; what has to cost more raises it and says why. Ends with 77 where the count cannot be taken.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "capabilities"))

from capabilities import require, skip  # noqa: E402

# name: (unit, bound, count when the bound was set)
BOUNDS = {
    "lane": ("chunk of 4 contributions and 4 results", 4700, 3758),
    "worker": ("chunk", 1325, 1060),
    "frame": ("header encoded, decoded and checked", 600, 480),
    "fold-f32": ("KiB of input", 134, 107),
    "fold-bf16": ("KiB of input", 354, 283),
    "fold-f16": ("KiB of input", 270, 216),
    "checksum": ("KiB", 326, 260),
}
# What callgrind's processor is expected to choose; another choice has another count.
DISPATCH = {"fold": "AVX2", "crc": "sse42"}
# The rig's transport, whose mutex and copies no deployment has.
NOT_OURS = ("sluice::transport::inproc::",)


def self_costs(text, program):
    """Instructions of each function of the program itself (no library's) from callgrind's uncompressed output, callees left out."""
    costs = collections.Counter()
    owner = function = ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("ob="):
            owner = line[3:]
        elif line.startswith("fn="):
            function = line[3:]
        elif line.startswith("calls="):
            next(lines)  # what the callee took
        elif line[:1].isdigit() and os.path.basename(owner) == os.path.basename(program):
            costs[function] += int(line.split()[1])
    return costs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="counted_work")
    parser.add_argument("work", choices=BOUNDS)
    arguments = parser.parse_args()
    require("callgrind")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no", "--compress-pos=no",
             "--collect-atstart=no", "--toggle-collect=counted_region", arguments.program, arguments.work],
            capture_output=True, text=True, timeout=150, check=False)
        units = re.search(r"^units (\d+) fold (\S+) crc (\S+)$", run.stdout, re.MULTILINE)
        if run.returncode != 0 or units is None:
            sys.exit(f"{arguments.program} {arguments.work}: status {run.returncode}\n{run.stdout}{run.stderr}")
        with open(out, encoding="utf-8") as file:
            costs = self_costs(file.read(), arguments.program)
    chosen = {"fold": units.group(2), "crc": units.group(3)}
    if chosen != DISPATCH:
        skip(f"needs callgrind: the bounds are for {DISPATCH}, callgrind offers {chosen}")
    count = int(units.group(1))
    ours = {name: cost / count for name, cost in costs.items() if not name.startswith(NOT_OURS)}
    each = sum(ours.values())
    unit, bound, then = BOUNDS[arguments.work]
    print(f"{arguments.work}: {each:.1f} instructions per {unit}; bound {bound}, set at {then}")
    for name, cost in sorted(ours.items(), key=lambda item: -item[1])[:12]:
        print(f"  {cost:8.1f} {name[:100]}")
    # Nearly none means that nothing was counted, or that the work is no longer where it was.
    if not then / 3 < each <= bound:
        sys.exit("outside the bound")


if __name__ == "__main__":
    main()
