#!/usr/bin/env python3
"""Trains with each wire type, with and without error feedback, and compares held-out losses with those of f32.

    /usr/bin/python3 bench/training/wire_types.py --sluice build/release/bin/sluice --json docs/results/wire_types_training.json

Two ranks, which are processes under DistributedDataParallel with sluice.ddp_hook, and a reducer on this machine. Two tasks: the digits of the
demo, and a transformer that predicts characters. A seed decides the initial parameters and the order of the data; every entry trains with
each seed. For the noise f32 also trains with the parameters of the first seed and the order of each other seed, and repeats the first run.

A third task has no noise, so it shows how low the loss can become: each rank has other data, and each step uses all of it. Then averages over
1, 2, 4 and 8 ranks show how much of small values arrives (small_values.py)."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("test_network", "peers", "report"):
    sys.path.insert(0, str(ROOT / "bench" / folder))

import sluice_run  # noqa: E402
from run import Measurement  # noqa: E402
from test_network import Loopback  # noqa: E402

SCHEMA = "sluice.bench.wire_types_training/1"
COMMAND = "bench/training/wire_types.py"
PACKAGE = ROOT / "gpu_client/python/src"
TASKS = ("digits", "characters")
WITHOUT_NOISE = "unequal data"
# Wire type and error feedback, which only block types have.
ENTRIES = (("f32", False), ("bf16", False), ("mxfp8", False), ("mxfp8", True), ("int8", False), ("int8", True))
RANKS = 2
RANKS_OF_SMALL_VALUES = (1, 2, 4, 8)
DEADLINE_S = 4 * 3600


def runs_of(task, seeds):
    if task == WITHOUT_NOISE:
        seeds = seeds[:1]
    for seed in seeds:
        for wire, feedback in ENTRIES:
            yield {"task": task, "wire": wire, "feedback": feedback, "seed": seed, "order": seed}
    for order in (*seeds[1:], seeds[0]) if task != WITHOUT_NOISE else ():  # the last is the repetition
        yield {"task": task, "wire": "f32", "feedback": False, "seed": seeds[0], "order": order}


def run_python(arguments, pool, script, options, folder, ranks=1):
    """Runs a script of this folder as `ranks` processes. Returns the lines of JSON that each printed."""
    store = f"{folder}/store-{time.monotonic_ns()}"
    env = {**os.environ, "SLUICE_LIBRARY": str(arguments.library.resolve()), "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
           "REDUCERS": pool, "SLUICE_REDUCERS": pool, "SLUICE_HOSTS": "off", "STORE": f"file://{store}", "WORLD_SIZE": str(ranks)}
    outputs, processes = [Path(f"{store}-out-{rank}") for rank in range(ranks)], []
    try:
        for rank, output in enumerate(outputs):
            with output.open("w", encoding="utf-8") as file:
                processes.append(subprocess.Popen([arguments.python, "-B", Path(__file__).with_name(script), *options], stdout=file,
                                                  env={**env, "RANK": str(rank)}))
        for rank, process in enumerate(processes):
            if code := process.wait(DEADLINE_S):
                raise sluice_run.SluiceFailed(f"{script}: rank {rank} exited with code {code}")
    finally:
        sluice_run.kill_all(processes)
    return [[json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()] for output in outputs]


def measure(arguments):
    """Returns the descriptions of the tasks, all runs, and the shares of small values that arrive."""
    runs = [run for task in arguments.tasks for run in runs_of(task, range(1, arguments.seeds + 1))]
    with tempfile.TemporaryDirectory() as name, Loopback(private=False) as network, sluice_run.reducers(network, arguments.sluice, 1, Path(name)) as pool:
        settings = json.dumps({"brief": arguments.brief, "runs": runs})
        of_ranks = run_python(arguments, pool, "training_rank.py", [settings], name, RANKS)
        for runs in zip(*(runs for _, *runs in of_ranks)):
            if len({run["parameters"] for run in runs}) > 1:
                raise sluice_run.SluiceFailed(f"the ranks have different parameters after {runs[0]}")
        small = [row for ranks in RANKS_OF_SMALL_VALUES[:2 if arguments.brief else None] for row in run_python(arguments, pool, "small_values.py", [pool, str(ranks)], name)[0]]
    tasks, *runs = of_ranks[0]
    return {"ranks": RANKS, "tasks": tasks, "runs": runs, "small_values": small}  # bytes and errors are rank 0's


def runs_by_start(data, task, wire="f32", feedback=False):
    """Returns the runs of an entry by (seed, order). A repetition replaces the run that it repeats."""
    return {(run["seed"], run["order"]): run for run in data["runs"] if (run["task"], run["wire"], run["feedback"]) == (task, wire, feedback)}


def noise(data, task):
    """Returns the standard deviations of f32's final loss over the seeds, and over the orders of the data with the parameters of the first seed."""
    losses = {start: run["losses"][-1] for start, run in runs_by_start(data, task).items()}
    first = min(seed for seed, _ in losses)
    return (statistics.stdev(loss for (seed, order), loss in losses.items() if seed == order),
            statistics.stdev(loss for (seed, _), loss in losses.items() if seed == first))


def is_repeatable(data, task):
    """Whether runs with equal settings ended with equal parameters. f32 has one such pair for each task."""
    found = {}
    for run in data["runs"]:
        if run["task"] == task:
            found.setdefault((run["wire"], run["feedback"], run["seed"], run["order"]), set()).add(run["parameters"])
    return all(len(parameters) == 1 for parameters in found.values())


def summary(data, task):
    """Returns for each entry the mean final loss over the seeds, and the differences from f32's with the same seed."""
    exact = runs_by_start(data, task)
    for wire, feedback in ENTRIES:
        runs = {start: run for start, run in runs_by_start(data, task, wire, feedback).items() if start[0] == start[1]}
        differences = [run["losses"][-1] - exact[start]["losses"][-1] for start, run in runs.items()]
        yield {"wire": wire, "feedback": feedback, "loss": statistics.mean(run["losses"][-1] for run in runs.values()),
               "difference": statistics.mean(differences), "farthest": max(differences, key=abs), "correct": statistics.mean(run["correct"] for run in runs.values()),
               "bytes_per_step": next(iter(runs.values()))["bytes_per_step"]}


def print_summary(data):
    for task in dict.fromkeys(run["task"] for run in data["runs"]):
        print(f"# {task}: {data['tasks'][task]['description']}")
        seeds, orders = (None, None) if task == WITHOUT_NOISE else noise(data, task)
        if seeds:
            print(f"# standard deviation of f32's loss: {seeds:.4f} over seeds, {orders:.4f} over orders; repetition equal: {is_repeatable(data, task)}")
        print(f"{'wire':6} {'feedback':9} {'bytes/step':>10} {'loss':>8} {'- f32':>11} {'farthest':>11} {'/ noise':>8} {'correct':>8}")
        for row in summary(data, task):
            in_noise = f"{abs(row['difference']) / seeds:8.2f}" if seeds else f"{'':8}"
            print(f"{row['wire']:6} {row['feedback']!s:9} {row['bytes_per_step']:10} {row['loss']:8.4f} {row['difference']:11.7f} {row['farthest']:11.7f} "
                  f"{in_noise} {100 * row['correct']:7.2f}%")
    for row in data["small_values"]:
        print(f"small values, {row['ranks']} ranks, {row['wire']}, feedback {row['feedback']}: {100 * row['arrived']:.1f} % arrived")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program")
    parser.add_argument("--library", type=Path, help="libsluice.so (default: that beside the program)")
    parser.add_argument("--python", type=Path, default=ROOT / "build/python-venv/bin/python", help="an interpreter with torch (default: build/python-venv's)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each entry, at least 2 (default: 3)")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=[*TASKS, WITHOUT_NOISE],
                        help=f"tasks to train (default: {','.join([*TASKS, WITHOUT_NOISE])})")
    parser.add_argument("--brief", action="store_true", help="few steps, as a functional check; the figures mean nothing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    arguments.library = arguments.library or arguments.sluice.resolve().parents[1] / "lib" / "libsluice.so"
    if wrong := [task for task in arguments.tasks if task not in (*TASKS, WITHOUT_NOISE)]:
        parser.error(f"no task {wrong[0]}; the tasks are {', '.join([*TASKS, WITHOUT_NOISE])}")
    if arguments.seeds < 2:
        parser.error("--seeds is less than 2, so there is no noise to compare with")
    return arguments


def run(arguments, schema, command, measure, print_summary):
    """Measures, prints the summary, and writes the results as JSON if wanted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory() as name:
        measurement = Measurement(arguments.sluice, Path(name))
        data = measure(arguments)
        print_summary(data)
        if arguments.json:
            arguments.json.write_text(json.dumps({"schema": schema, "command": command, **measurement.entry(data)}, indent=1) + "\n", encoding="utf-8")


def main():
    run(parse(), SCHEMA, COMMAND, measure, print_summary)


if __name__ == "__main__":
    main()
