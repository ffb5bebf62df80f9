#!/usr/bin/env python3
"""Measures the cost of one feature: runs `sluice bench allreduce` without and with the feature in alternating rounds.

    bench/cost/cost.py --of fault-tolerance --sluice build/bin/sluice --workers 4 --sizes 64K,1M,16M --rounds 5

Prints a table: for each size the median over the rounds of the median operation time, and CPU seconds per 1e9 bytes of workers
(contributed) and reducers (received). Reducers and workers share this machine, so the CPU limits the times. For deployments in
which the network is the limit, compare the CPU columns."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Feature: (options without the feature, options with the feature).
FEATURES = {
    "tls": (["--tls", "off"], ["--tls", "require"]),
    "fault-tolerance": (["--no-keep"], []),
    "crc": (["--no-crc"], []),
}
MODES = (0, 1)


def run(options, size, mode, key, folder):
    result = folder / "result.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    subprocess.run([options.sluice, "bench", "allreduce", "-b", size, "-e", size, "-n", str(options.iterations), "-w", "5", "--workers",
                    str(options.workers), "--reducers", str(options.reducers), "--key-file", key, *FEATURES[options.of][mode], "--json", result],
                   check=True, stdout=subprocess.DEVNULL, timeout=600, env=environment)
    (row,) = json.loads(result.read_text())["results"]
    side = row["out_of_place"]
    return {"us": side["time_median"], "worker": row["worker_cpu_seconds_per_gb"], "reducer": row["reducer_cpu_seconds_per_gb"] or float("nan"),
            "wrong": int(side["nwrong"] or 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=FEATURES, required=True, help="feature: TLS, fault tolerance or payload checksums")
    parser.add_argument("--sluice", default="sluice", help="the sluice program")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--reducers", type=int, default=1)
    parser.add_argument("--sizes", default="64K,1M,16M")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"#   size  without us     with us   time  worker CPU s/GB without    with  reducer CPU s/GB without    with   ({options.of})")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="sluice-cost-") as name:
        folder = Path(name)
        key = folder / "pool.key"
        subprocess.run([options.sluice, "keygen", "--out", key], check=True, stdout=subprocess.DEVNULL, timeout=60)
        for size in options.sizes.split(","):
            rounds = [{mode: run(options, size, mode, key, folder) for mode in MODES} for _ in range(options.rounds)]
            wrong += sum(r[mode]["wrong"] for r in rounds for mode in MODES)

            def median_of(mode, key):
                return statistics.median(r[mode][key] for r in rounds)

            ratio = statistics.median(r[1]["us"] / r[0]["us"] for r in rounds)
            print(f"{size:>8} {median_of(0, 'us'):11.1f} {median_of(1, 'us'):11.1f} {ratio:6.2f} {median_of(0, 'worker'):24.3f} {median_of(1, 'worker'):7.3f} "
                  f"{median_of(0, 'reducer'):25.3f} {median_of(1, 'reducer'):7.3f}", flush=True)
    return 2 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
