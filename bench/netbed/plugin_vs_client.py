"""Allreduces through the NCCL plugin, in NCCL's own request patterns, beside the client library's, over links of a given rate, in turns; and beside what a
perfect ring would take on these links. The pool is as wide as the workers unless --reducer-rate says otherwise.

usage: plugin_vs_client.py --sluice FILE [--workers 4,8] [--reducers 2,4,8] [--rate 200mbit] [--reducer-rate 200mbit] [--size 16M] [--rounds 3] [--load N]"""

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path

import sluice_run
from bed import Bed, bits

# name: arguments. NCCL's chain with one GPU per node: 2 channels of 128 KiB chunks; 8 channels of 256 KiB; 8 steps in flight.
PATTERNS = {
    "client": [],
    "2 x 128 KiB": ["--through-plugin", "--request", "256K", "--steps", "8"],
    "8 x 256 KiB": ["--through-plugin", "--request", "2M", "--steps", "8"],
}
GOODPUT = 1448 / 1514  # of a TCP segment in an Ethernet frame


def measure(bed, arguments, workers, pool, pattern, folder):
    """Seconds of one allreduce."""
    result = sluice_run.bench(bed, arguments.sluice, "allreduce", workers, pool, folder, [
        "-b", arguments.size, "-e", arguments.size, "-n", arguments.iterations, "-w", 2, "-c", 1, *PATTERNS[pattern]])
    return result["results"][0]["out_of_place"]["time"] * 1e-6


def compare(arguments, workers, reducers):
    """Prints a line per pattern."""
    rate = bits(arguments.rate)
    reducer_rate = bits(arguments.reducer_rate) if arguments.reducer_rate else rate * workers / reducers
    hosts = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(reducers)]
    times = {name: [] for name in PATTERNS}
    with Bed(hosts, lambda host: f"{int(rate if host[0] == 'w' else reducer_rate)}bit") as bed, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(arguments.load)]
        try:
            with sluice_run.reducers(bed, arguments.sluice, reducers, folder) as pool:
                for _ in range(arguments.rounds):
                    for pattern in PATTERNS:
                        times[pattern].append(measure(bed, arguments, workers, pool, pattern, folder))
        finally:
            sluice_run.end(load)
    size = int(arguments.size.rstrip("KM")) * (1024 if arguments.size.endswith("K") else 1048576)
    line = rate / 8 * GOODPUT
    wide = min(1.0, reducers * reducer_rate / (workers * rate))
    ideal, ring = size / line / wide, 2 * (workers - 1) / workers * size / line
    client = statistics.median(times["client"])
    for pattern, values in times.items():
        t = statistics.median(values)
        print(f"{workers:7} {reducers:8} {arguments.size:>6} {arguments.load:4}  {pattern:11} {1e3 * t:9.1f} {t / ideal:16.3f} {t / ring:12.3f} {t / client:14.3f}", flush=True)


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--workers", type=numbers, default=[4])
    parser.add_argument("--reducers", type=numbers, default=[4])
    parser.add_argument("--rate", default="200mbit", help="of each worker's link")
    parser.add_argument("--reducer-rate", help="of each reducer's link; default: so that the pool is as wide as the workers")
    parser.add_argument("--size", default="16M")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=int, default=0, help="processes that keep a processor busy beside")
    arguments = parser.parse_args()
    print(f"links of {arguments.rate}; times of one allreduce, medians of {arguments.rounds} rounds in turns; ideal: size / goodput of the narrower side")
    print("workers reducers   size load  pattern            ms          / ideal       / ring       / client")
    for workers in arguments.workers:
        for reducers in arguments.reducers:
            compare(arguments, workers, reducers)


if __name__ == "__main__":
    main()
