#!/usr/bin/env python3
"""`sluice` beside other libraries' allreduce, f32 sums, in turns: every round measures each of them once at each size, in one bed of shaped links (root), or
with --loopback on this machine alone.

    compare.py --sluice build/release/bin/sluice --peers build/release/bench/peers --workers 4 --reducers 1,2 --rate 200mbit --sizes 4M,16M --json out.json
    compare.py ... --trace FILE          the steps of a trace (`sluice bench replay --print-trace`) in place of operations

The time of an operation is that of the rank that took longest; medians and 99th percentiles are over the operations of all rounds. S/goodput: the size over what
TCP gets through a worker's link; a ring of n takes at least 2(n-1)/n of it. CPU: of the workers, per 1e9 bytes that they contributed; libraries that spin while
they wait have no meaningful one. Exit 1: something could not be measured; 2: wrong sums."""

import argparse
import csv
import json
import math
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import peers
import sluice_run
from bed import Bed, Loopback, bits, rate_text

SCHEMA = "sluice.bench.compare/1"
COLUMNS = ("workers", "entry", "bytes", "rounds", "runs", "median_seconds", "p99_seconds", "algbw_gb_per_second", "of_bound", "of_sluice", "cpu_seconds_per_gb",
           "reducer_cpu_seconds_per_gb", "wrong")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def list_of(parse):
    return lambda text: [parse(word) for word in text.split(",")]


def size_text(value):
    unit = next((name for name in "GMK" if value % UNITS[name] == 0), "")
    return f"{value // UNITS.get(unit, 1)}{unit}"


def goodput(arguments):
    """Bytes per second of a worker's link that are payload: 52 bytes of headers of each packet are not, nor are the 14 of its frame."""
    return bits(arguments.rate) / 8 * (arguments.mtu - 52) / (arguments.mtu + 14)


def percentile(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


class Comparison:
    """Of all entries with one number of workers."""

    def __init__(self, arguments, workers, hosts, folder):
        self.arguments = arguments
        self.workers = workers
        self.hosts = hosts
        self.folder = folder
        self.machine = None
        self.failures = []
        self.samples = {}  # by entry and size: the results of all rounds
        entries = [peers.Sluice(arguments.sluice, reducers) for reducers in arguments.reducers] if arguments.sluice else []
        entries += [peers.peer(name, arguments.peers) for name in arguments.entries] if arguments.peers else []
        self.entries = []
        for entry in entries:
            why = entry.missing(hosts)
            if why:
                self.fail(f"{entry.name} left out: {why}")
            else:
                self.entries.append(entry)

    def fail(self, what):
        self.failures.append(what)
        print(f"# {what}", flush=True)

    def run(self):
        for number in range(self.arguments.rounds):
            # Nobody comes right after the same one in every round.
            first = number % max(1, len(self.entries))
            for entry in self.entries[first:] + self.entries[:first]:
                self.measure(entry)

    def measure(self, entry):
        if isinstance(entry, peers.Sluice) and isinstance(self.hosts, Bed):
            as_wide = rate_text(bits(self.arguments.rate) * self.workers / entry.reducers)
            for i in range(entry.reducers):
                self.hosts.set_rate(f"r{i}", self.arguments.reducer_rate or as_wide)
        how = (self.arguments.iterations, self.arguments.warmup, self.folder)
        try:
            if self.arguments.trace:
                results = [entry.replay(self.hosts, self.workers, self.arguments.trace, *how)]
            else:
                results = entry.measure(self.hosts, self.workers, self.arguments.sizes, *how)
        except peers.PeerError as error:
            self.fail(str(error))
            return
        for result in results:
            self.samples.setdefault((entry.name, result["bytes"]), []).append(result)
            if self.machine is None or isinstance(entry, peers.Sluice):
                self.machine = result["machine"]

    def rows(self):
        for length in [peers.trace_bytes(self.arguments.trace)] if self.arguments.trace else self.arguments.sizes:
            ours = None
            for entry in self.entries:
                rounds = self.samples.get((entry.name, length))
                if not rounds:
                    continue
                seconds = [s for result in rounds for s in result["operation_seconds"]]
                median = statistics.median_low(seconds)
                if ours is None and isinstance(entry, peers.Sluice):
                    ours = median
                bound = None if self.arguments.loopback or not bits(self.arguments.rate) else length / goodput(self.arguments)
                reducer_cpu = [result["reducer_cpu_seconds_per_gb"] for result in rounds if result.get("reducer_cpu_seconds_per_gb") is not None]
                yield {"workers": self.workers, "entry": entry.name, "bytes": length, "rounds": len(rounds), "runs": len(seconds), "median_seconds": median,
                       "p99_seconds": percentile(seconds, 0.99), "algbw_gb_per_second": length / median * 1e-9, "of_bound": bound and median / bound,
                       "of_sluice": ours and median / ours, "cpu_seconds_per_gb": statistics.median(result["cpu_seconds_per_gb"] for result in rounds),
                       "reducer_cpu_seconds_per_gb": statistics.median(reducer_cpu) if reducer_cpu else None,
                       "wrong": sum(result["wrong"] for result in rounds), "operation_seconds": [result["operation_seconds"] for result in rounds]}


def print_table(rows):
    def number(value, form):
        return "-" if value is None else format(value, form)

    print("workers   size  entry                          runs  median ms     p99 ms  algbw GB/s  /(S/goodput)  /sluice  CPU s/GB  #wrong")
    for row in rows:
        print(f"{row['workers']:7} {size_text(row['bytes']):>6}  {row['entry']:28} {row['runs']:6} {1e3 * row['median_seconds']:10.3f} "
              f"{1e3 * row['p99_seconds']:10.3f} {row['algbw_gb_per_second']:11.4f} {number(row['of_bound'], '13.3f'):>13} {number(row['of_sluice'], '8.2f'):>8} "
              f"{row['cpu_seconds_per_gb']:9.2f} {row['wrong']:7}")


def compare(arguments, workers, folder):
    if arguments.loopback:
        place = Loopback(os.geteuid() == 0, arguments.congestion)
    else:
        hosts = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(max(arguments.reducers))] + ["ctl"]
        place = Bed(hosts, lambda host: arguments.rate if host[0] == "w" else "0", arguments.congestion, arguments.mtu)
    with place as hosts:
        comparison = Comparison(arguments, workers, hosts, folder)
        comparison.run()
    return comparison


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, help="the program; without it the peers alone")
    parser.add_argument("--peers", type=Path, help="folder of the drivers: bench/peers of a build; without it sluice alone")
    parser.add_argument("--entries", type=list_of(str), default=list(peers.PEERS), metavar="NAME,...",
                        help="which peers: " + ", ".join(peers.PEERS) + " (default: all)")
    parser.add_argument("--workers", type=list_of(int), default=[4])
    parser.add_argument("--reducers", type=list_of(int), default=[1, 2], help="of sluice's pools, each measured (default: 1,2)")
    parser.add_argument("--rate", default="200mbit", help="of each worker's link, each way (default: 200mbit)")
    parser.add_argument("--reducer-rate", help="of each reducer's link (default: so that the pool is as wide as the workers)")
    parser.add_argument("--loopback", action="store_true", help="all on this machine over its loopback, nothing limited; needs no root")
    parser.add_argument("--sizes", type=list_of(size), default=[4 << 20, 16 << 20], help="bytes, K, M, G (default: 4M,16M)")
    parser.add_argument("--trace", type=lambda text: Path(text).resolve(), help="what is ready to be reduced when, in place of --sizes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5, help="timed operations of each size, or steps of the trace, in each round (default: 5)")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--deadline", type=int, default=600, metavar="SECONDS", help="of one entry's turn at all sizes (default: 600)")
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control (default: cubic; loopback without root: the machine's)")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    for name in arguments.entries:
        if name not in peers.PEERS:
            parser.error(f"--entries {name}: there are {', '.join(peers.PEERS)}")
    if not arguments.sluice and not arguments.peers:
        parser.error("neither --sluice nor --peers: nothing to measure")
    if not arguments.loopback and os.geteuid() != 0:
        parser.error("a bed needs root; --loopback does not")
    return arguments


def save(arguments, machine, failures, rows):
    if arguments.json:
        arguments.json.write_text(json.dumps({
            "schema": SCHEMA, "machine": machine,
            "links": None if arguments.loopback else {"rate": arguments.rate, "reducer_rate": arguments.reducer_rate, "mtu": arguments.mtu,
                                                      "burst_bytes": Bed.BURST_BYTES, "queue_ms": Bed.QUEUE_MS},
            "trace": arguments.trace and str(arguments.trace), "rounds": arguments.rounds, "iterations": arguments.iterations, "warmup": arguments.warmup,
            "failures": failures, "results": rows}, indent=1) + "\n", encoding="utf-8")
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


def main():
    # So that ranks, reducers and namespaces are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = parse()
    peers.DEADLINE_S = sluice_run.DEADLINE_S = arguments.deadline
    comparisons = []
    with tempfile.TemporaryDirectory() as folder:
        for workers in arguments.workers:
            comparisons.append(compare(arguments, workers, Path(folder)))
    rows = [row for comparison in comparisons for row in comparison.rows()]
    failures = [what for comparison in comparisons for what in comparison.failures]
    links = "loopback" if arguments.loopback else f"links of {arguments.rate}, MTU {arguments.mtu}"
    machine = next((comparison.machine for comparison in comparisons if comparison.machine), {})
    print(f"# {links}, {machine.get('congestion_control')}, {arguments.rounds} rounds of {arguments.iterations} operations after {arguments.warmup}")
    print_table(rows)
    save(arguments, machine, failures, rows)
    if any(row["wrong"] for row in rows):
        sys.exit(2)
    sys.exit(1 if failures or not rows else 0)


if __name__ == "__main__":
    main()
