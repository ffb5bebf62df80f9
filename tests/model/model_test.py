#!/usr/bin/env python3
"""Searches every state of the models in several sizes, and sees that each planted bug is found. Exit 77 without spin or a C compiler.

    model_test.py               all, as many at a time as there are processors, at most 2
    model_test.py --brief       all but the searches of more than a million states that say little which the others do not; and
                                indexes of the model's arrays are not checked
    model_test.py --model NAME  only that model: view_change, local_stage or store
    model_test.py --list        what there is
    model_test.py NAME...       only those
    model_test.py --keep DIR    leaves the searches and their trails there; `spin -p -g -k TRAIL -D... MODEL.pml` tells a trail
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
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

FOLDER = Path(__file__).resolve().parent
DEPTH = 10000
MEMORY_MB = 4000
DEADLINE_S = 900
# 96 bits of a hash of each state are kept in place of states. With a table of less than 2^33 places pan takes a hash of 32 bits, which
# takes two of 10^5 states for one; so pan.c is made to take the one of 64-bit words that it has for larger tables.
WEAK_HASH, HASH = "hasher = d_sfh;", "hasher = d_hash;"
# Half of the time is the compiler's: -O1 takes twice as long as -Og, for a pan that is no faster.
COMPILE = ["-Og", "-w", "-DSAFETY", "-DNOFAIR", "-DHC4", "-DVECTORSZ=4096", f"-DMEMLIM={MEMORY_MB}"]
# With it pan doesn't check indexes of arrays, for a fourth to half less time.
UNCHECKED = "-DNOBOUNDCHECK"
# For a pan that stops at the one error it is built for. The order from the last statement to the first comes to all of these soon.
COMPILE_PLANTED = [*COMPILE, "-O0", "-DREVERSE", "-DT_REVERSE"]

# What must hold in every state: name, sizes. What is not named is as the model has it. The long ones first.
VIEW_CHANGE = {
    "three reducers, a loss and a partition": {"NR": 3, "NC": 1, "PARTS": 1},
    "three reducers": {"NR": 3, "NC": 2},
    "one loss": {"NC": 4},
    "one loss, a broken connection of each kind": {"LANE_CUTS": 1, "CONTROL_CUTS": 1},
    "one loss, two broken lane connections": {"LANE_CUTS": 2},
    "all lost but what a partition leaves": {"CRASHES": 2, "PARTS": 1},
    "split in two": {"CRASHES": 0, "PARTS": 2, "LANE_CUTS": 1, "NC": 2},
    "two slots a lane": {"W": 2, "NC": 5},
    "three ranks": {"NW": 3},
    "three ranks, fewer chunks": {"NW": 3, "NC": 2},
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
VIEW_CHANGE_LONG = {
    "three reducers, a loss and a partition",
    "three reducers",
    "split in two",
    "ranks leave, a broken connection of each kind",
    "three ranks leave",
    "three ranks",
    "ranks leave one by one, more chunks",
    "a changed rate",
}

# What must be found.
VIEW_CHANGE_PLANTED = {
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


# The parameter service. Every search also has the states in which less goes wrong than may.
STORE = {
    "store: a lease ends, three reducers": {"NR": 3, "LAPSES": 1},
    "store: a reducer dies, three reducers": {"NR": 3, "CRASHES": 1},
    "store: a lease ends, a push comes to the old owner": {"NR": 2, "LAPSES": 1, "STRAYS": 1},
    "store: a reducer starts again, an old STEP comes late": {"NR": 2, "RESTARTS": 1, "LATES": 1},
    "store: a step is given up, its STEP comes late, a worker dies": {"NR": 2, "KILLS": 1, "ABANDONS": 1, "LATES": 1},
    "store: a reducer and a worker die": {"NR": 2, "CRASHES": 1, "KILLS": 1},
    "store: a reducer starts again, three reducers": {"NR": 3, "RESTARTS": 1},
    "store: a reducer dies while a reader pulls": {"NR": 2, "CRASHES": 1, "PULLS": 1},
    "store: a reducer dies while early pulls follow a step": {"NR": 2, "CRASHES": 1, "EARLIES": 2},
    "store: a lease ends while an early pull follows a step": {"NR": 2, "LAPSES": 1, "EARLIES": 1},
    "store: a step is given up while early pulls follow it": {"NR": 2, "ABANDONS": 1, "EARLIES": 2},
    "store: three versions, a reducer dies": {"NR": 2, "P0": 2, "CRASHES": 1},
    "store: a reducer dies and a lease ends": {"NR": 2, "CRASHES": 1, "LAPSES": 1},
    "store: a lease ends while a reader pulls twice": {"NR": 2, "LAPSES": 1, "PULLS": 2},
    "store: a reducer and a worker die, three reducers": {"NR": 3, "CRASHES": 1, "KILLS": 1},
    "store: a reducer dies, a step is given up, its STEP comes late": {"NR": 2, "CRASHES": 1, "ABANDONS": 1, "LATES": 1},
    "store: a lease ends, an old STEP comes late": {"NR": 2, "LAPSES": 1, "LATES": 1},
    "store: three versions, a reducer dies while a reader pulls twice": {"NR": 2, "P0": 2, "CRASHES": 1, "PULLS": 2},
    "store: three versions, a lease ends": {"NR": 2, "P0": 2, "LAPSES": 1},
    "store: three versions, a reducer starts again": {"NR": 2, "P0": 2, "RESTARTS": 1},
    "store: three versions, a reducer dies, three reducers": {"NR": 3, "P0": 2, "CRASHES": 1},
}

STORE_LONG = {
    "store: a reducer dies and a lease ends",
    "store: a lease ends while a reader pulls twice",
    "store: a reducer and a worker die, three reducers",
    "store: a reducer dies, a step is given up, its STEP comes late",
    "store: a lease ends, an old STEP comes late",
    "store: three versions, a reducer dies while a reader pulls twice",
    "store: three versions, a lease ends",
    "store: three versions, a reducer starts again",
    "store: three versions, a reducer dies, three reducers",
}

# The numbers are store.pml's.
STORE_PLANTED = {
    "store: acknowledged before the commit": {"NR": 2, "CRASHES": 1, "PLANTED": 1},
    "store: PREPARED before the copy has stored the version": {"NR": 2, "CRASHES": 1, "PLANTED": 2},
    "store: a commit that compares the current version alone": {"NR": 3, "CRASHES": 1, "PLANTED": 3},
    "store: a commit that compares the leader's generation alone": {"NR": 3, "CRASHES": 1, "PLANTED": 15},
    "store: an owner of an old generation not refused": {"NR": 2, "LAPSES": 1, "PLANTED": 4},
    "store: a prepared version kept as current by who takes over": {"NR": 2, "CRASHES": 1, "PLANTED": 5},
    "store: the current version read before the takeover": {"NR": 2, "CRASHES": 1, "PLANTED": 6},
    "store: a push that comes again counted twice": {"NR": 2, "CRASHES": 1, "PLANTED": 7},
    "store: a pull of each owner's newest version": {"NR": 2, "PULLS": 1, "PLANTED": 8},
    "store: a pull by a version's number alone": {"NR": 2, "LAPSES": 1, "PULLS": 1, "PLANTED": 9},
    "store: an older attempt that replaces a newer": {"NR": 2, "CRASHES": 1, "ABANDONS": 1, "LATES": 1, "PLANTED": 10},
    "store: a new copy that lacks the last commit": {"NR": 3, "CRASHES": 1, "PLANTED": 11},
    "store: a new copy in the old generation": {"NR": 3, "CRASHES": 1, "PLANTED": 12},
    "store: an owner that doesn't say what it lacks": {"NR": 2, "CRASHES": 1, "KILLS": 1, "PLANTED": 13},
    "store: a step of an old leader taken by the new": {"NR": 2, "LAPSES": 1, "PLANTED": 14},
    "store: a step given up while its commit is unanswered": {"NR": 2, "CRASHES": 1, "PLANTED": 16},
    "store: a version with the identities of its own step alone": {"NR": 2, "P0": 2, "PLANTED": 17},
    "store: another leader's commit of the number taken for its own": {"NR": 2, "LAPSES": 1, "STRAYS": 1, "PLANTED": 18},
    "store: PREPARED of a step given up counted": {"NR": 2, "CRASHES": 1, "ABANDONS": 1, "LATES": 1, "PLANTED": 19},
    "store: an early pull that ends before the commit": {"NR": 2, "EARLIES": 1, "PLANTED": 21},
    "store: an early pull of an attempt that is made again": {"NR": 2, "CRASHES": 1, "EARLIES": 1, "PLANTED": 22},
    "store: a copy that starts again without what it had prepared": {"NR": 2, "RESTARTS": 1, "PLANTED": 20},
}

# The ranks of a host. One search has all assignments of makers to pieces.
LOCAL_STAGE = {
    "host: pieces with any makers": {"Q": 3},
    "host: three ranks, pieces of fixed owners": {"N": 3, "Q": 3, "MAKER": 0},
    "host: three ranks, each sums for itself": {"N": 3, "Q": 3, "MAKER": 2},
    "host: a window of two pieces": {"W": 2, "Q": 5, "MAKER": 2},
    "host: as many slots as the window, fixed owners": {"W": 2, "SLOTS": 2, "Q": 4, "MAKER": 0},
    "host: a rank dies, pieces of fixed owners": {"Q": 3, "MAKER": 0, "DEATHS": 1},
    "host: a rank dies, each sums for itself": {"Q": 3, "MAKER": 2, "DEATHS": 1},
    "host: pieces with any makers, once more": {"Q": 4},
    "host: three ranks, pieces with any makers": {"N": 3, "Q": 2},
    "host: a rank dies, pieces with any makers": {"Q": 2, "DEATHS": 1},
}

LOCAL_STAGE_LONG = {"host: pieces with any makers, once more", "host: three ranks, pieces with any makers", "host: a rank dies, pieces with any makers"}

LOCAL_STAGE_PLANTED = {
    "host: a window one piece too large": {"Q": 3, "BUG_WINDOW": None},
    "host: as many slots as the window where each sums for itself": {"SLOTS": 1, "MAKER": 2},
    "host: a doorbell read after the look for work": {"Q": 3, "BUG_SEEN_LATE": None},
    "host: a look for work before it is said for what the rank sleeps": {"Q": 3, "BUG_LOOK_FIRST": None},
    "host: sleepers looked for before the result is there": {"Q": 2, "BUG_RING_FIRST": None},
    "host: a last arrival that wakes nobody": {"Q": 2, "BUG_NO_RING": None},
    "host: a rank that sleeps without a look at the failure": {"Q": 2, "DEATHS": 1, "BUG_FAILURE_UNSEEN": None},
    "host: a death that wakes nobody": {"Q": 2, "DEATHS": 1, "BUG_FAILURE_WAKES_NOBODY": None},
}


@dataclass(frozen=True)
class Model:
    """A model and its searches. pan reads what `run_time` names from its environment, so that one pan serves many searches."""

    clean: dict
    long: set
    planted: dict
    run_time: frozenset = frozenset()


MODELS = {
    "view_change": Model(VIEW_CHANGE, VIEW_CHANGE_LONG, VIEW_CHANGE_PLANTED),
    "local_stage": Model(LOCAL_STAGE, LOCAL_STAGE_LONG, LOCAL_STAGE_PLANTED),
    "store": Model(
        STORE,
        STORE_LONG,
        STORE_PLANTED,
        frozenset({"CRASHES", "LAPSES", "STRAYS", "RESTARTS", "KILLS", "ABANDONS", "LATES", "PULLS", "EARLIES", "PLANTED"}),
    ),
}


@dataclass(frozen=True)
class Case:
    """One search."""

    model: str
    sizes: dict
    planted: bool
    long: bool


CASES = {
    name: Case(model, sizes, name in its.planted, name in its.long)
    for model, its in MODELS.items()
    for name, sizes in {**its.clean, **its.planted}.items()
}


def defines(sizes):
    return [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in sizes.items()]


def folder_name(text):
    return re.sub(r"\W+", "-", text).strip("-")


class Builder:
    """Builds each pan once, for all searches that differ in nothing which is compiled."""

    def __init__(self, root, more_options):
        self.root = root
        self.more_options = more_options
        self.lock = Lock()
        self.locks = {}
        self.built = {}

    def pan(self, case, folder):
        """The program, and what to say to it; or why there is none."""
        run_time = MODELS[case.model].run_time
        words = defines({name: value for name, value in case.sizes.items() if name not in run_time})
        if run_time:
            words.append("-DRUN_TIME")
            folder = self.root / folder_name(f"pan {case.model} {' '.join(words)}")
        with self.lock:
            own = self.locks.setdefault(folder, Lock())
        with own:
            if folder not in self.built:
                options = COMPILE_PLANTED if case.planted and not run_time else COMPILE
                self.built[folder] = self.build(case.model, words, folder, [*options, *self.more_options])
        return folder / "pan", {name: str(case.sizes.get(name, 0)) for name in run_time}, self.built[folder]

    @staticmethod
    def build(model, words, folder, options):
        folder.mkdir(parents=True, exist_ok=True)
        reason = Builder.command(["spin", "-a", *words, str(FOLDER / f"{model}.pml")], folder)
        if reason:
            return reason
        source = (folder / "pan.c").read_text(encoding="utf-8")
        if source.count(WEAK_HASH) != 1:
            return f"pan.c of another spin: expected one '{WEAK_HASH}'"
        (folder / "pan.c").write_text(source.replace(WEAK_HASH, HASH), encoding="utf-8")
        return Builder.command(["cc", *options, "-o", "pan", "pan.c"], folder)

    @staticmethod
    def command(words, folder):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0 or "Error" in done.stdout:
            return f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return None


def search(case, builder, folder):
    """Runs one search to its end; its output, and the seconds it took."""
    folder.mkdir(parents=True, exist_ok=True)
    pan, environment, reason = builder.pan(case, folder)
    if reason:
        return reason, 0.0
    begin = time.monotonic()
    done = subprocess.run(
        [str(pan), f"-m{DEPTH}"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
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


def run(name, builder):
    case = CASES[name]
    output, seconds = search(case, builder, builder.root / folder_name(name))
    reason = judge(output, case.planted)
    states, depth = number(r"([\d.e+]+) states, stored", output), number(r"depth reached (\d+)", output)
    print(f"{'FAILED' if reason else 'found ' if case.planted else 'clean '} {name}: {states or 0} states, depth {depth or 0}, {seconds:.1f} s", flush=True)
    if reason:
        print(f"       {' '.join(defines(case.sizes))}: {reason[:2000]}", flush=True)
    return not reason


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(f"{name}: {case.model} {' '.join(defines(case.sizes))}" for name, case in CASES.items()))
        return 0
    if unknown := [name for name in asked.names if name not in CASES]:
        parser.error(f"no such case: {unknown[0]}; --list tells what there is")
    for program in ("spin", "cc"):
        if not shutil.which(program):
            print(f"skipped: needs program:{program}: {program} is not installed")
            return 77
    names = asked.names or [name for name, case in CASES.items() if asked.model in (None, case.model)]
    if asked.brief and not asked.names:
        for name in (name for name in names if CASES[name].long):
            print(f"left out: {name}")
        names = [name for name in names if not CASES[name].long]
    with tempfile.TemporaryDirectory(prefix="sluice-model-") as scratch, ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        builder = Builder((asked.keep or Path(scratch)).resolve(), [UNCHECKED] if asked.brief else [])
        good = list(pool.map(lambda name: run(name, builder), names))
    print(f"{sum(good)} of {len(good)} as they should be")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
