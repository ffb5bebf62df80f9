#!/usr/bin/env python3
"""Trains with HSDP, f32 gradients averaged between the copies by gloo and as bf16 by reducers, and compares held-out losses.

    /usr/bin/python3 bench/training/hsdp.py --sluice build/release/bin/sluice --json docs/results/hsdp_training.json

8 copies of the model with 2 ranks each, which are processes on this machine, and a reducer. The task is the transformer of wire_types.py. A seed
decides the initial parameters and the order of the data; for the noise f32 also trains with the parameters of the first seed and the order
of each other seed. The time between hosts is measured by bench/test_network/torch_backend.py."""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import wire_types
from sluice_run import SluiceFailed, reducers
from test_network import Loopback

SCHEMA = "sluice.bench.hsdp_training/1"
COMMAND = "bench/training/hsdp.py"
TASK = "characters"
COPIES, SHARDS = 8, 2
WIRES = ("f32", "bf16")


def runs_of(seeds):
    starts = [(seed, seed) for seed in range(1, seeds + 1)]
    for seed, order in starts:
        for wire in WIRES:
            yield {"task": TASK, "wire": wire, "feedback": False, "seed": seed, "order": order}
    for order in range(2, seeds + 1):
        yield {"task": TASK, "wire": "f32", "feedback": False, "seed": 1, "order": order}


def measure(arguments):
    settings = json.dumps({"brief": arguments.brief, "shards": SHARDS, "runs": list(runs_of(arguments.seeds))})
    with tempfile.TemporaryDirectory() as name, Loopback(private=False) as network, reducers(network, arguments.sluice, 1, Path(name)) as pool:
        of_ranks = wire_types.run_python(arguments, pool, "training_rank.py", [settings], name, COPIES * SHARDS)
    for runs in zip(*(runs for _, *runs in of_ranks)):
        if len({run["parameters"] for run in runs}) > 1:
            raise SluiceFailed(f"the ranks have different parameters after {runs[0]}")
    tasks, *runs = of_ranks[0]
    return {"copies": COPIES, "shards": SHARDS, "tasks": tasks, "runs": runs}


def summary(data):
    """Returns the mean final losses, their differences with equal seeds, the noise, and the largest difference of two curves in units of the noise at that step."""
    exact, narrow = (wire_types.runs_by_start(data, TASK, wire) for wire in WIRES)
    differences = [narrow[start]["losses"][-1] - exact[start]["losses"][-1] for start in narrow]
    of_seeds, of_orders = wire_types.noise(data, TASK)
    curves = [exact[start]["losses"] for start in narrow]
    noises = [statistics.stdev(losses) for losses in zip(*curves)]
    farthest = max(abs(statistics.mean(run["losses"][i] for run in narrow.values()) - statistics.mean(curve[i] for curve in curves)) / noises[i]
                   for i in range(1, len(noises)))
    return {"f32": statistics.mean(run["losses"][-1] for start, run in exact.items() if start in narrow), "bf16": statistics.mean(run["losses"][-1] for run in narrow.values()),
            "difference": statistics.mean(differences), "farthest": max(differences, key=abs), "noise_of_seeds": of_seeds, "noise_of_orders": of_orders,
            "farthest_of_curves": farthest}


def print_summary(data):
    s = summary(data)
    print(f"loss f32 {s['f32']:.4f}, bf16 {s['bf16']:.4f}, difference {s['difference']:.7f} (farthest {s['farthest']:.7f}); standard deviation of f32 {s['noise_of_seeds']:.4f} "
          f"over seeds, {s['noise_of_orders']:.4f} over orders; curves at most {s['farthest_of_curves']:.2f} of the noise apart")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program")
    parser.add_argument("--library", type=Path, help="libsluice.so (default: that beside the program)")
    parser.add_argument("--python", type=Path, default=wire_types.ROOT / "build/python-venv/bin/python", help="an interpreter with torch (default: build/python-venv's)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each entry, at least 2 (default: 3)")
    parser.add_argument("--brief", action="store_true", help="few steps, as a functional check; the figures mean nothing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    arguments.library = arguments.library or arguments.sluice.resolve().parents[1] / "lib" / "libsluice.so"
    if arguments.seeds < 2:
        parser.error("--seeds is less than 2, so there is no noise to compare with")
    return arguments


def main():
    wire_types.run(parse(), SCHEMA, COMMAND, measure, print_summary)


if __name__ == "__main__":
    sys.exit(main())
