#!/usr/bin/env python3
"""Measures co-located reducers with pools of several widths, beside rings and beside the bound of the links.

    hybrid.py --sluice build/release/bin/sluice --peers build/release/bench/peers --workers 4 --reducers 0,1,2,3,4 --rate 200mbit --size 64M --json F
    hybrid.py ... --slow-worker 0.5              the last worker has half of the others' rate
    hybrid.py ... --pool-alone                   also measures each pool with SLUICE_COLOCATED=off
    hybrid.py ... --sizes 1K,4K,16K,64K,256K     several sizes

A pool of K reducers has K links of --reducer-rate, by default of a worker's rate. Pool width 0: the workers reduce by themselves.
Every round measures each pool and each ring once at each size, all in one test network with rate-limited links (needs root), or on
the loopback interface with --loopback. The time of an operation is the time of its slowest rank; the table shows medians of the
operations of all rounds.

The columns of time are in units of S/goodput, the size divided by the TCP goodput of a worker's link at --rate. "bound" is the
minimum that the links allow with co-located reducers, "over_bound" the measured time over it. "ring/this" is the faster ring's
time over the pool's. CPU is the CPU time of the worker processes, co-located reducers included, per 1e9 bytes that they
contributed; "/gloo" is the ratio to the Gloo ring's. Open MPI's ranks spin while they wait, so their CPU time is not shown.

Exit codes: 1 when an entry could not be measured, 2 for wrong sums."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from link_split import pool_time, ring_time, split_time
from manage import parse_rate
from test_network import Loopback, TestNetwork, bits_per_second, rate_text, unavailable_reason

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import compare  # noqa: E402
import peers  # noqa: E402
import sluice_run  # noqa: E402

SCHEMA = "sluice.bench.hybrid/1"
RINGS = ["gloo-ring", "openmpi-ring"]
SECONDS_OF_SIZE = 4  # chosen operations of one size take about this long over unlimited hops
MOST_ITERATIONS, LEAST_ITERATIONS, MOST_WARMUP = 200, 2, 20
LOOPBACK_GOODPUT = 1e9  # assumed bytes per second, to choose iterations


class Links:
    """The rates of all hosts, in bits per second; 0: no limit."""

    def __init__(self, arguments):
        self.workers = arguments.workers
        self.rate = bits_per_second(arguments.rate)
        self.reducer_rate = bits_per_second(arguments.reducer_rate or arguments.rate)
        self.slow_worker = arguments.slow_worker
        self.limited = not arguments.loopback

    def rate_of(self, host):
        if host[0] == "r":
            return self.reducer_rate
        if host == f"w{self.workers - 1}" and self.slow_worker:
            return self.rate * self.slow_worker
        return self.rate if host[0] == "w" else 0

    def worker_rates(self):
        """Rates relative to --rate, so that the times of link_split are in units of S/goodput."""
        return [self.rate_of(f"w{rank}") / self.rate for rank in range(self.workers)]

    def bounds(self, reducers):
        """Minimum times with co-located reducers, of the pool alone (None without reducers), and of a ring. A loopback has none."""
        if not self.limited:
            return {"bound": None, "pool_alone_bound": None, "ring_bound": None}
        workers, pool = self.worker_rates(), [self.reducer_rate / self.rate] * reducers
        return {"bound": split_time(workers, pool), "pool_alone_bound": pool_time(workers, pool) if pool else None, "ring_bound": ring_time(workers)}


class Progress:
    """Counts what is measured, out of `steps`."""

    def __init__(self, steps):
        self.steps = steps
        self.done = 0

    def step(self):
        self.done += 1
        return f"{self.done} of {self.steps}"


class TimedComparison(compare.Comparison):
    """Chooses the number of operations by their size, and prints what is measured."""

    goodput = LOOPBACK_GOODPUT
    progress = None  # a Progress, which comparisons of one run may share

    def iterations(self, size):
        """(timed operations, warm-up operations) of one size in one round."""
        chosen = round(min(max(SECONDS_OF_SIZE * self.goodput / size, LEAST_ITERATIONS), MOST_ITERATIONS))
        iterations = chosen if self.arguments.iterations is None else self.arguments.iterations
        warmup = min(max(iterations // 4, 1), MOST_WARMUP) if self.arguments.warmup is None else self.arguments.warmup
        return iterations, warmup

    def results_of(self, entry):
        groups = {}
        for size in self.arguments.sizes:
            groups.setdefault(self.iterations(size), []).append(size)
        began = time.monotonic()
        results = [result for settings, sizes in groups.items() for result in entry.measure(self.hosts, self.workers, sizes, *settings, self.folder)]
        self.print_progress(entry, results, time.monotonic() - began)
        return results

    def print_progress(self, entry, results, seconds):
        times = ", ".join(f"{compare.size_text(r['bytes'])} {1e3 * min(r['operation_seconds']):.1f} ms" for r in results)
        print(f"{self.progress.step()}: {self.label(entry)}: least {times} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    def label(self, entry):
        return entry.name


class Pools(TimedComparison):
    """Measures pools of several widths and the rings in interleaved rounds."""

    def __init__(self, arguments, hosts, folder):
        self.links = Links(arguments)
        link_rate = None if arguments.loopback else self.links.rate_of
        # (pool width, is the pool alone): entry
        self.pools = {(reducers, mode == "off"): peers.Sluice(arguments.sluice, reducers, arguments.bench_option, mode, link_rate)
                      for reducers in arguments.reducers for mode in (["auto", "off"] if arguments.pool_alone and reducers else ["auto"])}
        super().__init__(arguments, arguments.workers, hosts, folder, [*self.pools.values(), *compare.peers_of(arguments)])
        self.progress = Progress(arguments.rounds * len(self.entries))
        if not arguments.loopback:
            self.goodput = compare.goodput(arguments)

    def pool_rows(self, rows):
        """A row for each size and pool width, from the `rows` of all entries."""
        entries = {(row["bytes"], row["entry"]): row for row in rows}
        for size in self.arguments.sizes:
            rings = {name: entries[size, name] for name in self.arguments.entries if (size, name) in entries}
            for reducers in self.arguments.reducers:
                row = entries.get((size, self.pools[reducers, False].name))
                alone = entries.get((size, self.pools[reducers, True].name)) if (reducers, True) in self.pools else None
                if row:
                    yield pool_row(reducers, row, alone, rings, self.links.bounds(reducers))


def pool_row(reducers, row, alone, rings, bounds):
    best_ring = min((ring["median_seconds"] for ring in rings.values()), default=None)
    gloo_cpu = next((ring["cpu_seconds_per_gb"] for name, ring in rings.items() if name.startswith("gloo")), None)
    return {"workers": row["workers"], "bytes": row["bytes"], "reducers": reducers, "runs": row["runs"], "median_seconds": row["median_seconds"],
            "p99_seconds": row["p99_seconds"], "time": row["of_bound"], **bounds,
            "over_bound": row["of_bound"] / bounds["bound"] if row["of_bound"] and bounds["bound"] else None,
            "pool_alone": alone and alone["of_bound"], "pool_alone_seconds": alone and alone["median_seconds"],
            "rings": {name: ring["of_bound"] for name, ring in rings.items()},
            "ring_seconds": {name: ring["median_seconds"] for name, ring in rings.items()},
            "best_ring_over_this": best_ring and best_ring / row["median_seconds"],
            "cpu_seconds_per_gb": row["cpu_seconds_per_gb"], "cpu_over_gloo": row["cpu_seconds_per_gb"] / gloo_cpu if gloo_cpu else None,
            "wrong": row["wrong"] + (alone["wrong"] if alone else 0) + sum(ring["wrong"] for ring in rings.values())}


def print_table(rows, rings):
    def number(value, width, digits=3):
        return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"

    print("  size reducers  runs  median ms      time   bound over_bound " + " ".join(f"{name:>12}" for name in rings) +
          "  ring/this pool alone  CPU s/GB   /gloo  #wrong")
    for row in rows:
        print(f"{compare.size_text(row['bytes']):>6} {row['reducers']:8} {row['runs']:5} {1e3 * row['median_seconds']:10.3f} {number(row['time'], 9)} "
              f"{number(row['bound'], 7)} {number(row['over_bound'], 10)} " + " ".join(number(row["rings"].get(name), 12) for name in rings) +
              f" {number(row['best_ring_over_this'], 10)} {number(row['pool_alone'], 10)} {row['cpu_seconds_per_gb']:9.2f} {number(row['cpu_over_gloo'], 7, 2)} "
              f"{row['wrong']:7}")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 1")
    return value


def not_negative(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a non-negative integer")
    return value


def operation_size(text):
    value = compare.size(text)
    if value < 4 or value % 4:
        raise argparse.ArgumentTypeError(f"{text}: expected a multiple of 4 bytes, the size of an f32")
    return value


def fraction(text):
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a fraction of --rate, more than 0 and at most 1")
    return value


def add_run_options(parser):
    """Adds the options of a measurement in interleaved rounds."""
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--iterations", type=positive, help="timed operations of each size per round (default: by the size, 2 to 200)")
    parser.add_argument("--warmup", type=not_negative, help="operations of each size before the timed ones (default: a quarter of these, at most 20)")
    parser.add_argument("--deadline", type=positive, default=600, metavar="SECONDS", help="time limit of one entry for all sizes of a round (default: 600)")
    parser.add_argument("--congestion", default="cubic", help="TCP congestion control (default: cubic; on a loopback without root: the machine's setting)")
    parser.add_argument("--mtu", type=positive, default=1500)
    parser.add_argument("--json", type=Path)


def check_run_options(parser, arguments):
    for name in arguments.entries:
        if name not in peers.PEERS:
            parser.error(f"--entries {name}: no such peer; the peers are {', '.join(peers.PEERS)}")
    arguments.entries = arguments.entries if arguments.peers else []
    arguments.trace = None  # a setting of compare.py
    if arguments.json and not arguments.json.resolve().parent.is_dir():
        parser.error(f"--json {arguments.json}: the folder does not exist")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program")
    parser.add_argument("--peers", type=Path, help="folder of the drivers, bench/peers of a build; without this option no ring is measured")
    parser.add_argument("--entries", type=compare.list_of(str), default=RINGS, metavar="NAME,...", help=f"rings to measure (default: {','.join(RINGS)})")
    parser.add_argument("--workers", type=positive, default=4)
    parser.add_argument("--reducers", type=compare.list_of(not_negative), default=[0, 1, 2, 3, 4], metavar="K,...", help="pool widths (default: 0,1,2,3,4)")
    parser.add_argument("--rate", type=parse_rate, default="200mbit", help="rate of each worker's link in each direction (default: 200mbit)")
    parser.add_argument("--reducer-rate", type=parse_rate, help="rate of each reducer's link (default: --rate)")
    parser.add_argument("--slow-worker", type=fraction, metavar="FRACTION", help="limit the last worker's link to this fraction of --rate")
    parser.add_argument("--loopback", action="store_true", help="run everything over the loopback interface without limits; needs no root")
    parser.add_argument("--size", "--sizes", type=compare.list_of(operation_size), default=[64 << 20], dest="sizes", metavar="SIZE,...",
                        help="in bytes, with an optional suffix K, M or G (default: 64M)")
    parser.add_argument("--pool-alone", action="store_true", help="also measure each pool without co-located reducers")
    parser.add_argument("--bench-option", action="append", default=[], metavar="OPTION", help="option of `sluice bench allreduce`, for example --bench-option=--no-crc")
    add_run_options(parser)
    arguments = parser.parse_args(argv)
    check_run_options(parser, arguments)
    for option in ("rate", "reducer_rate"):
        if not arguments.loopback and getattr(arguments, option) is not None and not bits_per_second(getattr(arguments, option)):
            parser.error(f"--{option.replace('_', '-')} 0: the bound needs a limited rate; use --loopback to measure without limits")
    if arguments.loopback and arguments.slow_worker:
        parser.error("--slow-worker: a loopback has no limits")
    if not arguments.loopback and os.geteuid() != 0:
        parser.error("a test network needs root; run as root or use --loopback")
    return arguments


def hosts_of(arguments):
    if arguments.loopback:
        return Loopback(unavailable_reason() is None, arguments.congestion)
    links = Links(arguments)
    names = [f"w{i}" for i in range(arguments.workers)] + [f"r{i}" for i in range(max(arguments.reducers))] + ["ctl"]
    return TestNetwork(names, lambda host: rate_text(links.rate_of(host)), arguments.congestion, arguments.mtu)


def measure(arguments):
    """Runs all rounds. Returns the content of the --json file."""
    peers.DEADLINE_S = sluice_run.DEADLINE_S = arguments.deadline
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, hosts_of(arguments) as hosts:
        comparison = Pools(arguments, hosts, Path(folder))
        comparison.run()
    rows = list(comparison.rows())
    return {"schema": SCHEMA, "machine": comparison.machine or {}, "load_average": {"before": load, "after": os.getloadavg()[0]},
            "links": None if arguments.loopback else {"rate": arguments.rate, "reducer_rate": arguments.reducer_rate or arguments.rate,
                                                      "slow_worker": arguments.slow_worker, "mtu": arguments.mtu, "burst_bytes": TestNetwork.BURST_BYTES,
                                                      "queue_ms": TestNetwork.QUEUE_MS},
            "workers": arguments.workers, "options": arguments.bench_option, "rings": arguments.entries, "rounds": arguments.rounds,
            "iterations": {size: comparison.iterations(size)[0] for size in arguments.sizes},
            "warmup": {size: comparison.iterations(size)[1] for size in arguments.sizes},
            "failures": comparison.failures, "crashes": comparison.crashes, "pools": list(comparison.pool_rows(rows)), "results": rows}


def main():
    # An exception on SIGTERM lets the context managers stop ranks and reducers and remove namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = parse()
    output = measure(arguments)
    slow = f", one at {arguments.slow_worker:g} of it" if arguments.slow_worker else ""
    links = "loopback" if arguments.loopback else f"links of {arguments.rate}{slow}, MTU {arguments.mtu}"
    print(f"# {arguments.workers} workers, {links}, {output['machine'].get('congestion_control')}, {arguments.rounds} rounds, "
          f"load average {output['load_average']['before']:.1f} before")
    print_table(output["pools"], arguments.entries)
    if arguments.json:
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        arguments.json.write_text(json.dumps({**output, "command": command}, indent=1) + "\n", encoding="utf-8")
    if any(row["wrong"] for row in output["results"]):
        sys.exit(2)
    sys.exit(1 if output["failures"] or not output["pools"] else 0)


if __name__ == "__main__":
    main()
