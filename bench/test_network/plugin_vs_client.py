"""Compares allreduces through the NCCL plugin with allreduces of the client library over rate-limited links.

The plugin gets the request patterns of NCCL. All variants take turns. The table also shows the ratio to the time of an ideal
ring on these links. The pool has the bandwidth of all workers unless --reducer-rate is set.

usage: plugin_vs_client.py --sluice FILE [--workers 4,8] [--reducers 2,4,8] [--rate 200mbit] [--reducer-rate 200mbit] [--size 16M] [--rounds 3] [--load N]"""

import argparse
import contextlib
import statistics
import subprocess
import tempfile
from pathlib import Path

import sluice_run
from test_network import TestNetwork, bits_per_second, ideal_seconds, ring_seconds

# Name: arguments. NCCL's chain with one GPU per node has 2 channels with chunks of 128 KiB; the largest pattern has
# 8 channels with chunks of 256 KiB. Both keep 8 steps in flight.
PATTERNS = {
    "client": [],
    "2 x 128 KiB": ["--through-plugin", "--request", "256K", "--steps", "8"],
    "8 x 256 KiB": ["--through-plugin", "--request", "2M", "--steps", "8"],
}


def measure(network, arguments, workers, pool, pattern, folder):
    """Returns the seconds of one allreduce."""
    result = sluice_run.bench(network, arguments.sluice, "allreduce", workers, pool, folder, [
        "-b", arguments.size, "-e", arguments.size, "-n", arguments.iterations, "-w", 2, "-c", 1, *PATTERNS[pattern]])
    return result["results"][0]["out_of_place"]["time"] * 1e-6


def compare(arguments, workers, reducers):
    """Measures one size of job and pool and prints a line per pattern."""
    rate = bits_per_second(arguments.rate)
    reducer_rate = bits_per_second(arguments.reducer_rate) if arguments.reducer_rate else rate * workers / reducers
    hosts = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(reducers)]
    times = {name: [] for name in PATTERNS}
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TestNetwork(hosts, lambda host: f"{int(rate if host[0] == 'w' else reducer_rate)}bit"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(arguments.load)]
        try:
            with sluice_run.reducers(network, arguments.sluice, reducers, folder) as pool:
                for _ in range(arguments.rounds):
                    for pattern in PATTERNS:
                        times[pattern].append(measure(network, arguments, workers, pool, pattern, folder))
        finally:
            sluice_run.kill_all(load)
    size = int(arguments.size.rstrip("KM")) * (1024 if arguments.size.endswith("K") else 1048576)
    ideal, ring = ideal_seconds(size, rate, reducer_rate, workers, reducers), ring_seconds(size, rate, workers)
    client = statistics.median(times["client"])
    for pattern, values in times.items():
        t = statistics.median(values)
        print(f"{workers:7} {reducers:8} {arguments.size:>6} {arguments.load:4}  {pattern:11} {1e3 * t:9.1f} {t / ideal:16.3f} {t / ring:12.3f} "
              f"{t / client:14.3f}", flush=True)


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--workers", type=numbers, default=[4])
    parser.add_argument("--reducers", type=numbers, default=[4])
    parser.add_argument("--rate", default="200mbit", help="rate of each worker's link")
    parser.add_argument("--reducer-rate", help="rate of each reducer's link; default: the pool has the bandwidth of all workers")
    parser.add_argument("--size", default="16M")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=int, default=0, help="number of background processes that each keep a processor busy")
    arguments = parser.parse_args()
    print(f"links of {arguments.rate}; times of one allreduce, medians of {arguments.rounds} interleaved rounds; ideal: size / goodput of the narrower side")
    print("workers reducers   size load  pattern            ms          / ideal       / ring       / client")
    for workers in arguments.workers:
        for reducers in arguments.reducers:
            compare(arguments, workers, reducers)


if __name__ == "__main__":
    main()
