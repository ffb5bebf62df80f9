"""Allreduces through the NCCL plugin, in NCCL's own request patterns, beside the client library's, over links of a given rate, in turns; and beside what a
perfect ring would take on these links.

usage: plugin_vs_client.py --sluice FILE [--workers 4] [--reducers 4] [--rate 1gbit] [--size 16M] [--rounds 3] [--load N]"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bed import Bed

# name: arguments. NCCL's chain with one GPU per node: 2 channels of 128 KiB chunks; 8 channels of 256 KiB; 8 steps in flight.
PATTERNS = {
    "client": [],
    "2 x 128 KiB": ["--through-plugin", "--request", "256K", "--steps", "8"],
    "8 x 256 KiB": ["--through-plugin", "--request", "2M", "--steps", "8"],
}
GOODPUT = 1448 / 1514  # of a TCP segment in an Ethernet frame


def bits(rate):
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6)):
        if rate.endswith(unit):
            return float(rate[: -len(unit)]) * factor
    raise SystemExit(f"rate {rate}: gbit or mbit")


def start_reducers(bed, arguments, folder):
    pool, processes = [], []
    for i in range(arguments.reducers):
        host = f"r{i}"
        port_file = folder / host
        processes.append(bed.start(host, [arguments.sluice, "reducer", "--insecure", "--lanes", 1, "--listen", f"{bed.address(host)}:0",
                                          "--port-file", port_file], stderr=subprocess.DEVNULL))
        while not port_file.exists():
            time.sleep(0.02)
        pool.append(f"{bed.address(host)}:{port_file.read_text().strip()}")
    return ",".join(pool), processes


def measure(bed, arguments, pool, pattern, folder):
    """Seconds of one allreduce."""
    session = os.urandom(16).hex()
    out = folder / f"{session}.json"
    ranks = []
    for rank in range(arguments.workers):
        host = f"w{rank}"
        words = [arguments.sluice, "bench", "allreduce", "-b", arguments.size, "-e", arguments.size, "-n", arguments.iterations, "-w", 2, "-c", 1,
                 "--workers", arguments.workers, "--connect", pool, "--rank", rank, "--session", session, *PATTERNS[pattern]]
        if rank == 0:
            words += ["--json", out]
        env = {**os.environ, "SLUICE_NET": "always", "SLUICE_IFNAME": "=eth0"}
        ranks.append(bed.start(host, words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env))
    for rank in ranks:
        if rank.wait(300) != 0:
            raise SystemExit(f"{pattern}: a worker failed: {rank.stderr.read().strip()}")
    return json.loads(out.read_text())["results"][0]["out_of_place"]["time"] * 1e-6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--reducers", type=int, default=4)
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--size", default="16M")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=int, default=0, help="processes that keep a processor busy beside")
    arguments = parser.parse_args()
    size = int(arguments.size.rstrip("KM")) * (1024 if arguments.size.endswith("K") else 1048576)
    hosts = [f"w{i}" for i in range(arguments.workers)] + [f"r{i}" for i in range(arguments.reducers)]
    times = {name: [] for name in PATTERNS}
    with Bed(hosts, arguments.rate) as bed, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pool, reducers = start_reducers(bed, arguments, folder)
        busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(arguments.load)]
        try:
            for _ in range(arguments.rounds):
                for pattern in PATTERNS:
                    times[pattern].append(measure(bed, arguments, pool, pattern, folder))
        finally:
            for process in busy + reducers:
                process.kill()
                process.wait()
    line = bits(arguments.rate) / 8 * GOODPUT
    wide = min(1.0, arguments.reducers / arguments.workers)
    ideal, ring = size / line / wide, 2 * (arguments.workers - 1) / arguments.workers * size / line
    print(f"{arguments.workers} workers, {arguments.reducers} reducers, {arguments.rate}, {arguments.size}, {arguments.load} busy processes")
    for pattern, values in times.items():
        t = statistics.median(values)
        print(f"{pattern:12} {1e3 * t:8.1f} ms  {t / ideal:5.3f} x S / goodput of the pool  {ring / t:5.2f} x a perfect ring  "
              f"{t / statistics.median(times['client']):5.3f} x the client")


if __name__ == "__main__":
    main()
