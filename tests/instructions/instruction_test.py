"""Counts the instructions per unit of steady work with callgrind. Unlike a time, the count does not depend on the load of the machine.

Only functions of the program itself count, without libraries and without the test bed's transport.

A bound is about a quarter above the count at which it was set, which stands beside it (g++ 12, Release). A change that makes a hot path
cheaper lowers its bound; a change that must cost more raises it and says why. Exits with 77 if the count cannot be taken.
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
    "worker": ("chunk", 1540, 1474),
    "frame": ("header encoded, decoded and checked", 600, 480),
    "fold-f32": ("KiB of input", 134, 107),
    "fold-bf16": ("KiB of input", 354, 283),
    "fold-f16": ("KiB of input", 270, 216),
    "checksum": ("KiB", 326, 260),
}
# The expected choices on callgrind's processor; other choices have other counts.
DISPATCH = {"fold": "AVX2", "crc": "sse42"}
# The test bed's transport, in the place of a network.
EXCLUDED = ("sluice::transport::inproc::", "sluice::transport::memory::")


def self_costs(text, program):
    """Instructions per function of the program itself, without callees, from callgrind's uncompressed output."""
    costs = collections.Counter()
    owner = function = ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("ob="):
            owner = line[3:]
        elif line.startswith("fn="):
            function = line[3:]
        elif line.startswith("calls="):
            next(lines)  # the cost of the callee
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
    ours = {name: cost / count for name, cost in costs.items() if not name.startswith(EXCLUDED)}
    each = sum(ours.values())
    unit, bound, then = BOUNDS[arguments.work]
    print(f"{arguments.work}: {each:.1f} instructions per {unit}; bound {bound}, set at {then}")
    for name, cost in sorted(ours.items(), key=lambda item: -item[1])[:12]:
        print(f"  {cost:8.1f} {name[:100]}")
    # Far fewer means that nothing was counted, or that the work has moved elsewhere.
    if not then / 3 < each <= bound:
        sys.exit(f"{arguments.work}: {each:.1f} instructions per {unit}; expected {then / 3:.0f} to {bound}")


if __name__ == "__main__":
    main()
