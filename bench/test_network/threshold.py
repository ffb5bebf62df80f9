"""Finds the smallest size at which an allreduce through the reducers beats NCCL's ring and tree on the same links.

The plugin gets 2 channels with one request of up to 128 KiB each at a time. It takes turns with a ring over the plugin's own
point-to-point transport (bench/micro/ring_bench). The time of a binary tree follows from a ring at another size: a tree takes
2 log2(n) hops of S, a ring takes 2 (n - 1) hops of S / n. The result is the value for SLUICE_MIN_BYTES.

usage: threshold.py --sluice FILE --ring FILE [--workers 4,8] [--reducers N] [--rate 1gbit] [--rounds 3]"""

import argparse
import contextlib
import math
import statistics
import subprocess
import tempfile
from pathlib import Path

import sluice_run
from test_network import TestNetwork, bits_per_second
from plugin_vs_client import numbers

SIZES = [2**k for k in range(14, 22)]  # 16 KiB to 2 MiB


def through_plugin(network, arguments, workers, pool, folder):
    """Returns the microseconds of an allreduce by size."""
    result = sluice_run.bench(network, arguments.sluice, "allreduce", workers, pool, folder, [
        "-b", SIZES[0], "-e", SIZES[-1], "-f", 2, "-n", 300, "-w", 100, "-c", 0, "--through-plugin", "--request", "256K", "--steps", 8])
    return {row["size"]: row["out_of_place"]["time"] for row in result["results"]}


def ring(network, arguments, workers, sizes):
    """Returns the microseconds of a ring allreduce by size."""
    command = [arguments.ring, "--sizes", ",".join(map(str, sizes))]
    for rank in range(workers):
        command += ["--rank", network.namespace(f"w{rank}"), network.address(f"w{rank}")]
    lines = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=300).stdout.split("\n")
    return {int(line.split()[0]): float(line.split()[1]) for line in lines if line}


def compare(arguments, workers):
    reducers = arguments.reducers or workers
    rate = bits_per_second(arguments.rate)
    hosts = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(reducers)]
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TestNetwork(hosts, lambda host: f"{int(rate if host[0] == 'w' else rate * workers / reducers)}bit"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rounds = []
        with sluice_run.reducers(network, arguments.sluice, reducers, folder) as pool:
            for _ in range(arguments.rounds):
                rounds.append((through_plugin(network, arguments, workers, pool, folder), ring(network, arguments, workers, SIZES),
                               ring(network, arguments, workers, [workers * size for size in SIZES])))
    threshold = None
    print(f"{workers} workers, {reducers} reducers, {arguments.rate}\n     size     plugin us       ring us       tree us   plugin / better of both")
    for size in SIZES:
        plugin = statistics.median(r[0][size] for r in rounds)
        ring_time = statistics.median(r[1][size] for r in rounds)
        tree = statistics.median(r[2][workers * size] for r in rounds) / (2 * (workers - 1)) * 2 * math.log2(workers)
        ratio = plugin / min(ring_time, tree)
        threshold = (threshold or size) if ratio < 1 else None
        print(f"{size:9} {plugin:13.0f} {ring_time:13.0f} {tree:13.0f} {ratio:13.2f}")
    print(f"the plugin is faster from {threshold} bytes" if threshold else "the plugin is faster at no size", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--ring", required=True)
    parser.add_argument("--workers", type=numbers, default=[4, 8])
    parser.add_argument("--reducers", type=int, default=0, help="number of reducers; default: the number of workers")
    parser.add_argument("--rate", default="1gbit", help="rate of each worker's link; the pool has the bandwidth of all workers")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for workers in arguments.workers:
        compare(arguments, workers)


if __name__ == "__main__":
    main()
