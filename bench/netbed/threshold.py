"""From which size on an allreduce through the reducers is faster than what NCCL has for the same wires: the reducers through the plugin, one request of
up to 128 KiB at a time per channel and 2 channels, beside a ring over the plugin's own net (bench/micro/ring_bench), in turns, and beside a binary tree, whose
hops are a ring's at another size: 2 log2(n) hops of S, where a ring makes 2 (n - 1) of S / n. The least size from which on the plugin wins is SLUICE_MIN_BYTES.

usage: threshold.py --sluice FILE --ring FILE [--workers 4,8] [--reducers N] [--rate 1gbit] [--rounds 3]"""

import argparse
import math
import statistics
import subprocess
import tempfile
from pathlib import Path

import sluice_run
from bed import Bed, bits
from plugin_vs_client import numbers

SIZES = [2**k for k in range(14, 22)]  # 16 KiB to 2 MiB


def through_plugin(bed, arguments, workers, pool, folder):
    """Microseconds by size."""
    result = sluice_run.bench(bed, arguments.sluice, "allreduce", workers, pool, folder, [
        "-b", SIZES[0], "-e", SIZES[-1], "-f", 2, "-n", 300, "-w", 100, "-c", 0, "--through-plugin", "--request", "256K", "--steps", 8])
    return {row["size"]: row["out_of_place"]["time"] for row in result["results"]}


def ring(bed, arguments, workers, sizes):
    words = [arguments.ring, "--sizes", ",".join(map(str, sizes))]
    for rank in range(workers):
        words += ["--rank", bed.namespace(f"w{rank}"), bed.address(f"w{rank}")]
    lines = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, timeout=300).stdout.split("\n")
    return {int(line.split()[0]): float(line.split()[1]) for line in lines if line}


def compare(arguments, workers):
    reducers = arguments.reducers or workers
    rate = bits(arguments.rate)
    hosts = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(reducers)]
    with Bed(hosts, lambda host: f"{int(rate if host[0] == 'w' else rate * workers / reducers)}bit") as bed, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds = []
        with sluice_run.reducers(bed, arguments.sluice, reducers, folder) as pool:
            for _ in range(arguments.rounds):
                rounds.append((through_plugin(bed, arguments, workers, pool, folder), ring(bed, arguments, workers, SIZES),
                               ring(bed, arguments, workers, [workers * size for size in SIZES])))
    least = None
    print(f"{workers} workers, {reducers} reducers, {arguments.rate}\n     size     plugin us       ring us       tree us   plugin / better of both")
    for size in SIZES:
        plugin = statistics.median(r[0][size] for r in rounds)
        a_ring = statistics.median(r[1][size] for r in rounds)
        tree = statistics.median(r[2][workers * size] for r in rounds) / (2 * (workers - 1)) * 2 * math.log2(workers)
        ratio = plugin / min(a_ring, tree)
        least = (least or size) if ratio < 1 else None
        print(f"{size:9} {plugin:13.0f} {a_ring:13.0f} {tree:13.0f} {ratio:13.2f}")
    print(f"the plugin wins from {least} bytes on" if least else "the plugin does not win", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--ring", required=True)
    parser.add_argument("--workers", type=numbers, default=[4, 8])
    parser.add_argument("--reducers", type=int, default=0, help="default: as many as workers")
    parser.add_argument("--rate", default="1gbit", help="of each worker's link; the pool is as wide")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for workers in arguments.workers:
        compare(arguments, workers)


if __name__ == "__main__":
    main()
