#!/usr/bin/env python3
"""Trains with DiLoCo and with asynchronous workers, and compares held-out losses, times and bytes with those of synchronous training.

    /usr/bin/python3 bench/training/outer_steps.py --sluice build/release/bin/sluice --json docs/results/outer_steps_training.json

Four workers, which are processes, and a reducer with --state on this machine. Two tasks: the digits of the demo, and a transformer that predicts
characters. All entries train on as many samples. A step takes a fixed time on each worker; "slow": four times as long on one of them. DiLoCo's workers
run the task's optimizer and schedule. Asynchronous workers push gradients of which each is a step: Nesterov momentum for digits, AdamW without a schedule
for characters. mxfp8 and int8 are the types in which deltas travel, without error feedback."""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import wire_types  # first, because it makes the folders of bench importable

ROOT = wire_types.ROOT

import sluice_run  # noqa: E402
from test_network import Loopback  # noqa: E402

SCHEMA = "sluice.bench.outer_steps_training/1"
COMMAND = "bench/training/outer_steps.py"
TASKS = ("digits", "characters")
RANKS = 4
DILOCO = {"kind": "DiLoCo", "slow": False, "every": 10, "wire": "f32"}
ASYNC = {"kind": "async", "slow": True, "staleness": None, "stale": "refuse", "wire": "f32"}
ENTRIES = {"synchronous": {"kind": "synchronous", "slow": False}, "synchronous, slow": {"kind": "synchronous", "slow": True},
           "DiLoCo, 10 steps": DILOCO, "DiLoCo, 10 steps, mxfp8": {**DILOCO, "wire": "mxfp8"}, "DiLoCo, 10 steps, int8": {**DILOCO, "wire": "int8"},
           "DiLoCo, 50 steps": {**DILOCO, "every": 50}, "async, slow": ASYNC, "async, slow, int8": {**ASYNC, "wire": "int8"},
           "bounded (4), slow": {**ASYNC, "staleness": 4}, "bounded (4), scaled, slow": {**ASYNC, "staleness": 4, "stale": "scale"}}


def measure(arguments):
    """Returns the descriptions of the tasks and all runs."""
    runs = [{"task": task, "entry": entry, "seed": seed, **ENTRIES[entry]} for task in arguments.tasks for seed in range(1, arguments.seeds + 1) for entry in ENTRIES]
    with tempfile.TemporaryDirectory() as name, Loopback(private=False) as network, \
            sluice_run.reducers(network, arguments.sluice, 1, Path(name), options=("--state", f"{name}/state")) as pool:
        settings = json.dumps({"brief": arguments.brief, "runs": runs})
        (tasks, *runs), *_ = wire_types.run_python(arguments, pool, "outer_rank.py", [settings], name, RANKS)
    return {"ranks": RANKS, "tasks": tasks, "runs": runs}


def summary(data, task):
    """Returns the means over the seeds for each entry; None where pushes have no outcomes."""
    for entry in ENTRIES:
        runs = [run for run in data["runs"] if (run["task"], run["entry"]) == (task, entry)]
        mean = {key: statistics.mean(run[key] for run in runs) for key in ("loss", "correct", "seconds", "sent")}
        outcomes = [of_rank for run in runs for of_rank in run["outcomes"] if of_rank]
        refused = None if not outcomes else sum(each["late"] + each["stale"] for each in outcomes) / sum(sum(each.values()) for each in outcomes)
        yield {"entry": entry, **mean, "refused": refused, "deviation": statistics.stdev(run["loss"] for run in runs) if len(runs) > 1 else 0.0}


def print_summary(data):
    for task in dict.fromkeys(run["task"] for run in data["runs"]):
        print(f"# {task}: {data['tasks'][task]['description']}, {data['tasks'][task]['steps']} steps")
        print(f"{'entry':26} {'loss':>8} {'stdev':>8} {'correct':>8} {'seconds':>8} {'MB sent':>9} {'refused':>8}")
        for row in summary(data, task):
            refused = "" if row["refused"] is None else f"{100 * row['refused']:.1f}%"
            print(f"{row['entry']:26} {row['loss']:8.4f} {row['deviation']:8.4f} {100 * row['correct']:7.2f}% {row['seconds']:8.2f} {row['sent'] / 1e6:9.2f} {refused:>8}")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program")
    parser.add_argument("--library", type=Path, help="libsluice.so (default: that beside the program)")
    parser.add_argument("--python", type=Path, default=ROOT / "build/python-venv/bin/python", help="an interpreter with torch (default: build/python-venv's)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each entry (default: 3)")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(TASKS), help=f"tasks to train (default: {','.join(TASKS)})")
    parser.add_argument("--brief", action="store_true", help="few steps without fixed times, as a functional check; the figures mean nothing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    arguments.library = arguments.library or arguments.sluice.resolve().parents[1] / "lib" / "libsluice.so"
    if wrong := [task for task in arguments.tasks if task not in TASKS]:
        parser.error(f"no task {wrong[0]}; the tasks are {', '.join(TASKS)}")
    return arguments


def main():
    wire_types.run(parse(), SCHEMA, COMMAND, measure, print_summary)


if __name__ == "__main__":
    main()
