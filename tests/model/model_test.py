#!/usr/bin/env python3
"""Searches every state of view_change.pml in several sizes, and sees that each planted bug is found. Exit 77 without spin or a C compiler.

    model_test.py               all, as many at a time as there are processors, at most 2
    model_test.py --brief       all but the searches of more than a million states that say little which the others do not
    model_test.py --list        what there is
    model_test.py NAME...       only those
    model_test.py --keep DIR    leaves the searches and their trails there; `spin -p -g -k TRAIL -D... view_change.pml` tells a trail
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "view_change.pml"
DEPTH = 10000
MEMORY_MB = 4000
DEADLINE_S = 900
# 64-bit hashes of states are kept in place of states: of 10^7 states, two are taken for one with a chance of 3 in 10^6.
COMPILE = ["-O1", "-w", "-DSAFETY", "-DHC4", "-DVECTORSZ=4096", f"-DMEMLIM={MEMORY_MB}"]

# What must hold in every state: name, sizes. What is not named is as view_change.pml has it. The long ones first.
CLEAN = {
    "three reducers, a loss and a partition": {"NR": 3, "NC": 1, "PARTS": 1},
    "three reducers": {"NR": 3, "NC": 2},
    "one loss": {"NC": 4},
    "one loss, a broken connection of each kind": {"LANE_CUTS": 1, "CONTROL_CUTS": 1},
    "one loss, two broken lane connections": {"LANE_CUTS": 2},
    "all lost but what a partition leaves": {"CRASHES": 2, "PARTS": 1},
    "split in two": {"CRASHES": 0, "PARTS": 2, "LANE_CUTS": 1, "NC": 2},
    "two slots a lane": {"W": 2, "NC": 5},
    "three ranks": {"NW": 3},
    "three reducers, two losses": {"NR": 3, "NC": 1, "CRASHES": 2},
    "ranks leave": {"LEAVING": None, "PARTS": 1, "NC": 2},
    "ranks leave one by one": {"LEAVING": None, "HEARTBEATS": None, "PARTS": 1, "NC": 1},
    "ranks leave one by one, more chunks": {"LEAVING": None, "HEARTBEATS": None, "PARTS": 1, "NC": 2},
    "ranks leave, a broken connection of each kind": {"LEAVING": None, "NC": 2, "LANE_CUTS": 1, "CONTROL_CUTS": 1},
    "three ranks leave": {"LEAVING": None, "NW": 3, "NC": 2},
    "a changed rate and a loss": {"NC": 1, "RATES": 1},
    "a changed rate": {"NC": 2, "CRASHES": 0, "RATES": 1},
    "a changed rate, a broken lane connection": {"NC": 1, "CRASHES": 0, "RATES": 1, "LANE_CUTS": 1},
    "agreement alone, changed rates": {"NC": 0, "RATES": 2},
    "agreement alone, a changed rate, three reducers": {"NR": 3, "NC": 0, "RATES": 1},
    "agreement alone, a changed rate, broken connection": {"NC": 0, "RATES": 1, "CONTROL_CUTS": 1},
    "agreement alone, three ranks": {"NW": 3, "NR": 3, "NC": 0, "PARTS": 1},
    "agreement alone, broken connections": {"NR": 3, "NC": 0, "PARTS": 1, "CONTROL_CUTS": 2},
    "agreement alone, a rank that doesn't say things again": {"NR": 3, "NC": 0, "PARTS": 1, "CONTROL_CUTS": 1, "FORGETFUL": None},
}

# Minutes each on a small machine, and neighbours of the others. For a change of the protocol; not for every build.
LONG = {
    "three reducers, a loss and a partition",
    "three reducers",
    "split in two",
    "ranks leave, a broken connection of each kind",
    "three ranks leave",
    "ranks leave one by one, more chunks",
    "a changed rate",
}

# What must be found.
PLANTED = {
    "kept result not contributed": {"BUG_KEPT_IGNORED": None},
    "contribution sent again that is held": {"BUG_DUPLICATE": None, "LANE_CUTS": 1, "CRASHES": 0},
    "restart at the rank's own first unfinished chunk": {"BUG_BASE_OWN": None},
    "answer that doesn't cover what was agreed to": {"NR": 3, "NC": 0, "PARTS": 1, "CONTROL_CUTS": 1, "FORGETFUL": None, "BUG_ANSWER_ANY": None},
    "frames of the old view summed": {"BUG_STALE": None},
    "ring one place short": {"BUG_RING": None},
    "no limit of depth": {"BUG_DEPTH": None, "NC": 4},
    "contributions after the answer": {"BUG_NO_STOP": None},
    "commit before all ranks have answered": {"BUG_COMMIT_EARLY": None},
    "RESUME_ACK taken for another view's": {"BUG_ACK_OF_ANY_VIEW": None, "LANE_CUTS": 1},
    "query carried out answered again": {"BUG_QUERY_AGAIN": None, "CONTROL_CUTS": 1},
    "commit older than the answer carried out": {"BUG_OVERTAKEN": None, "NR": 3, "NC": 1, "CRASHES": 2, "CONTROL_CUTS": 1},
    "changed rate not proposed": {"BUG_RATE_UNPROPOSED": None, "RATES": 1},
    "leaving while others still need a kept result": {"BUG_LEAVE_EARLY": None, "LEAVING": None},
    "leaving once one reducer acknowledges it": {"BUG_ONE_ACK": None, "LEAVING": None, "PARTS": 1, "NC": 2},
    "a heartbeat of a rank that lacks a result counted as if it had all": {"BUG_HOLDS_ANY": None, "LEAVING": None, "HEARTBEATS": None},
}


def defines(sizes):
    return [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in sizes.items()]


def search(sizes, folder):
    """Runs one search to its end; its output, and the seconds it took."""
    folder.mkdir(parents=True, exist_ok=True)
    for words in (["spin", "-a", *defines(sizes), str(MODEL)], ["cc", *COMPILE, "-o", "pan", "pan.c"]):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0 or "Error" in done.stdout:
            return f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}", 0.0
    begin = time.monotonic()
    done = subprocess.run(["./pan", f"-m{DEPTH}"], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.stdout + done.stderr, time.monotonic() - begin


def number(pattern, output):
    found = re.search(pattern, output)
    return int(float(found[1])) if found else None


def judge(output, planted):
    """Why the search is not what it should be; nothing when it is."""
    errors = number(r"errors: (\d+)", output)
    broken = re.search(r"^pan:\d+: (.*)", output, re.MULTILINE)
    if errors is None:
        return "no search\n" + output
    if planted:
        return None if errors and broken and broken[1].startswith("assertion violated") else f"not found: {broken[1] if broken else 'no error'}"
    if errors or broken:
        return broken[1] if broken else f"{errors} errors"
    if "max search depth too small" in output or "Search not completed" in output or "out of memory" in output:
        return "the search was cut short"
    return None


def run(name, folder):
    planted = name in PLANTED
    output, seconds = search(PLANTED[name] if planted else CLEAN[name], folder)
    reason = judge(output, planted)
    states, depth = number(r"([\d.e+]+) states, stored", output), number(r"depth reached (\d+)", output)
    print(f"{'FAILED' if reason else 'found ' if planted else 'clean '} {name}: {states or 0} states, depth {depth or 0}, {seconds:.1f} s", flush=True)
    if reason:
        print(f"       {' '.join(defines((PLANTED if planted else CLEAN)[name]))}: {reason[:2000]}", flush=True)
    return not reason


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    everything = [*CLEAN, *PLANTED]
    if asked.list:
        print("\n".join(f"{name}: {' '.join(defines({**CLEAN, **PLANTED}[name]))}" for name in everything))
        return 0
    if unknown := [name for name in asked.names if name not in everything]:
        parser.error(f"no such case: {unknown[0]}; --list tells what there is")
    for program in ("spin", "cc"):
        if not shutil.which(program):
            print(f"skipped: needs program:{program}: {program} is not installed")
            return 77
    for name in sorted(LONG) if asked.brief and not asked.names else ():
        print(f"left out: {name}")
    names = asked.names or [name for name in everything if not (asked.brief and name in LONG)]
    with tempfile.TemporaryDirectory(prefix="sluice-model-") as scratch, ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        root = asked.keep or Path(scratch)
        good = list(pool.map(lambda name: run(name, root / re.sub(r"\W+", "-", name)), names))
    print(f"{sum(good)} of {len(good)} as they should be")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
