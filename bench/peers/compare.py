#!/usr/bin/env python3
"""Compares the allreduce of `sluice` with that of other libraries: f32 sums, all entries in interleaved rounds.

Every round measures each entry once at each size: in one test network with rate-limited links (needs root), or on the loopback
interface of this machine with --loopback.

    compare.py --sluice build/release/bin/sluice --peers build/release/bench/peers --workers 4 --reducers 1,2 --rate 200mbit --sizes 4M,16M --json out.json
    compare.py ... --trace FILE          measures the steps of a trace (`sluice bench replay --print-trace`) instead of operations

The time of an operation is the time of its slowest rank. Medians and 99th percentiles cover the operations of all rounds.
S/goodput is the size divided by the TCP goodput of a worker's link; a ring of n ranks takes at least 2(n-1)/n of it. CPU is
the CPU time of the workers per 1e9 bytes that they contributed; the figure means nothing for libraries that spin while they
wait. Exit codes: 1 when an entry could not be measured, 2 for wrong sums."""

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
from test_network import Loopback, TestNetwork, bits_per_second, rate_text

SCHEMA = "sluice.bench.compare/1"
COLUMNS = ("workers", "entry", "bytes", "rounds", "runs", "median_seconds", "p99_seconds", "algbw_gb_per_second", "of_bound", "of_sluice", "cpu_seconds_per_gb",
           "reducer_cpu_seconds_per_gb", "wrong")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def list_of(parse):
    return lambda text: [parse(item) for item in text.split(",")]


def size_text(value):
    unit = next((name for name in "GMK" if value % UNITS[name] == 0), "")
    return f"{value // UNITS.get(unit, 1)}{unit}"


def goodput(arguments):
    """Payload bytes per second of a worker's link: each packet carries 52 bytes of headers, and its frame 14 more."""
    return bits_per_second(arguments.rate) / 8 * (arguments.mtu - 52) / (arguments.mtu + 14)


def percentile(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


def entries_of(arguments):
    sluice = [peers.Sluice(arguments.sluice, reducers) for reducers in arguments.reducers] if arguments.sluice else []
    return sluice + peers_of(arguments)


def peers_of(arguments):
    return [peers.peer(name, arguments.peers) for name in arguments.entries] if arguments.peers else []


class Comparison:
    """Measures all entries with one number of workers."""

    def __init__(self, arguments, workers, hosts, folder, entries):
        self.arguments = arguments
        self.workers = workers
        self.hosts = hosts
        self.folder = folder
        self.machine = None
        self.failures = []
        self.crashes = {}  # entry: the rounds without a result because the peer crashed
        self.samples = {}  # (entry, size): the results of all rounds
        self.entries = []
        for entry in entries:
            reason = entry.unavailable_reason(hosts)
            if reason:
                self.fail(f"{entry.name} skipped: {reason}")
            else:
                self.entries.append(entry)

    def fail(self, message):
        self.failures.append(message)
        print(f"# {message}", flush=True)

    def run(self):
        for number in range(self.arguments.rounds):
            self.run_round(number)

    def run_round(self, number):
        # The rounds start with different entries, so that no entry always follows the same one.
        first = number % max(1, len(self.entries))
        for entry in self.entries[first:] + self.entries[:first]:
            self.measure(entry)

    def set_reducer_rates(self, entry):
        if isinstance(entry, peers.Sluice) and isinstance(self.hosts, TestNetwork):
            for i in range(entry.reducers):
                matching_rate = rate_text(bits_per_second(self.arguments.rate) * self.workers / entry.reducers)
                self.hosts.set_rate(f"r{i}", self.arguments.reducer_rate or matching_rate)

    def results_of(self, entry):
        """Measures the entry once at each size. Returns the RESULTs (peers.py)."""
        self.set_reducer_rates(entry)
        settings = (self.arguments.iterations, self.arguments.warmup, self.folder)
        if self.arguments.trace:
            return [entry.replay(self.hosts, self.workers, self.arguments.trace, *settings)]
        return entry.measure(self.hosts, self.workers, self.arguments.sizes, *settings)

    def measure(self, entry):
        try:
            results = self.results_of(entry)
        except peers.PeerCrashed as error:
            self.crashes[entry.name] = self.crashes.get(entry.name, 0) + 1
            print(f"# crash of the peer: {error}", flush=True)
            return
        except peers.PeerError as error:
            self.fail(str(error))
            return
        for result in results:
            self.samples.setdefault((entry.name, result["bytes"]), []).append(result)
            if self.machine is None or isinstance(entry, peers.Sluice):
                self.machine = result["machine"]

    def lengths(self):
        return [peers.trace_bytes(self.arguments.trace)] if self.arguments.trace else self.arguments.sizes

    def rows(self):
        for length in self.lengths():
            sluice_median = None
            for entry in self.entries:
                rounds = self.samples.get((entry.name, length))
                if not rounds:
                    continue
                seconds = [s for result in rounds for s in result["operation_seconds"]]
                median = statistics.median_low(seconds)
                if sluice_median is None and isinstance(entry, peers.Sluice):
                    sluice_median = median
                bound = None if self.arguments.loopback or not bits_per_second(self.arguments.rate) else length / goodput(self.arguments)
                reducer_cpu = [result["reducer_cpu_seconds_per_gb"] for result in rounds if result.get("reducer_cpu_seconds_per_gb") is not None]
                yield {"workers": self.workers, "entry": entry.name, "bytes": length, "rounds": len(rounds), "crashes": self.crashes.get(entry.name, 0), "runs": len(seconds), "median_seconds": median,
                       "p99_seconds": percentile(seconds, 0.99), "algbw_gb_per_second": length / median * 1e-9, "of_bound": bound and median / bound,
                       "of_sluice": sluice_median and median / sluice_median, "cpu_seconds_per_gb": statistics.median(result["cpu_seconds_per_gb"] for result in rounds),
                       "reducer_cpu_seconds_per_gb": statistics.median(reducer_cpu) if reducer_cpu else None,
                       "wrong": sum(result["wrong"] for result in rounds), "operation_seconds": [result["operation_seconds"] for result in rounds]}


def print_table(rows):
    def number(value, form):
        return "-" if value is None else format(value, form)

    print("workers   size  entry                          runs  median ms     p99 ms  algbw GB/s  /(S/goodput)  /sluice  CPU s/GB  #wrong")
    for row in rows:
        print(f"{row['workers']:7} {size_text(row['bytes']):>6}  {row['entry']:28} {row['runs']:6} {1e3 * row['median_seconds']:10.3f} "
              f"{1e3 * row['p99_seconds']:10.3f} {row['algbw_gb_per_second']:11.4f} {number(row['of_bound'], '13.3f'):>13} {number(row['of_sluice'], '8.2f'):>8} "
              f"{row['cpu_seconds_per_gb']:9.2f} {row['wrong']:7}" + (f"  crashed in {row['crashes']} more rounds" if row["crashes"] else ""))


def compare(arguments, workers, folder):
    if arguments.loopback:
        hosts = Loopback(os.geteuid() == 0, arguments.congestion)
    else:
        names = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(max(arguments.reducers))] + ["ctl"]
        hosts = TestNetwork(names, lambda host: arguments.rate if host[0] == "w" else "0", arguments.congestion, arguments.mtu)
    with hosts:
        comparison = Comparison(arguments, workers, hosts, folder, entries_of(arguments))
        comparison.run()
    return comparison


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, help="the program; without this option only the peers are measured")
    parser.add_argument("--peers", type=Path, help="folder of the drivers, bench/peers of a build; without this option only sluice is measured")
    parser.add_argument("--entries", type=list_of(str), default=list(peers.PEERS), metavar="NAME,...",
                        help="peers to measure: " + ", ".join(peers.PEERS) + " (default: all)")
    parser.add_argument("--workers", type=list_of(int), default=[4])
    parser.add_argument("--reducers", type=list_of(int), default=[1, 2], help="sizes of the sluice pools, each measured; 0: co-located reducers only (default: 1,2)")
    parser.add_argument("--rate", default="200mbit", help="rate of each worker's link in each direction (default: 200mbit)")
    parser.add_argument("--reducer-rate", help="rate of each reducer's link (default: the pool has the bandwidth of all workers)")
    parser.add_argument("--loopback", action="store_true", help="run everything over the loopback interface without limits; needs no root")
    parser.add_argument("--sizes", type=list_of(size), default=[4 << 20, 16 << 20], help="in bytes, with an optional suffix K, M or G (default: 4M,16M)")
    parser.add_argument("--trace", type=lambda text: Path(text).resolve(), help="trace that states when each bucket is ready; replaces --sizes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5, help="timed operations of each size, or steps of the trace, per round (default: 5)")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--deadline", type=int, default=600, metavar="SECONDS", help="time limit of one entry for all sizes of a round (default: 600)")
    parser.add_argument("--congestion", default="cubic", help="TCP congestion control (default: cubic; on a loopback without root: the machine's setting)")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    for name in arguments.entries:
        if name not in peers.PEERS:
            parser.error(f"--entries {name}: no such peer; the peers are {', '.join(peers.PEERS)}")
    if not arguments.sluice and not arguments.peers:
        parser.error("nothing to measure; set --sluice, --peers or both")
    if not arguments.loopback and os.geteuid() != 0:
        parser.error("a test network needs root; run as root or use --loopback")
    return arguments


def save(arguments, machine, failures, crashes, rows):
    if arguments.json:
        arguments.json.write_text(json.dumps({
            "schema": SCHEMA, "machine": machine,
            "links": None if arguments.loopback else {"rate": arguments.rate, "reducer_rate": arguments.reducer_rate, "mtu": arguments.mtu,
                                                      "burst_bytes": TestNetwork.BURST_BYTES, "queue_ms": TestNetwork.QUEUE_MS},
            "trace": arguments.trace and str(arguments.trace), "rounds": arguments.rounds, "iterations": arguments.iterations, "warmup": arguments.warmup,
            "failures": failures, "crashes": crashes, "results": rows}, indent=1) + "\n", encoding="utf-8")
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


def main():
    # An exception on SIGTERM lets the context managers stop ranks and reducers and remove namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = parse()
    peers.DEADLINE_S = sluice_run.DEADLINE_S = arguments.deadline
    comparisons = []
    with tempfile.TemporaryDirectory() as folder:
        for workers in arguments.workers:
            comparisons.append(compare(arguments, workers, Path(folder)))
    rows = [row for comparison in comparisons for row in comparison.rows()]
    failures = [message for comparison in comparisons for message in comparison.failures]
    links = "loopback" if arguments.loopback else f"links of {arguments.rate}, MTU {arguments.mtu}"
    machine = next((comparison.machine for comparison in comparisons if comparison.machine), {})
    print(f"# {links}, {machine.get('congestion_control')}, {arguments.rounds} rounds of {arguments.iterations} operations after {arguments.warmup}")
    print_table(rows)
    for comparison in comparisons:
        for entry, count in comparison.crashes.items():
            print(f"# {entry} with {comparison.workers} workers crashed in {count} of {arguments.rounds} rounds")
    crashes = [{"workers": comparison.workers, "entry": entry, "rounds": count} for comparison in comparisons for entry, count in comparison.crashes.items()]
    save(arguments, machine, failures, crashes, rows)
    if any(row["wrong"] for row in rows):
        sys.exit(2)
    sys.exit(1 if failures or not rows else 0)


if __name__ == "__main__":
    main()
