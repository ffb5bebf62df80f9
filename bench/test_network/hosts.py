#!/usr/bin/env python3
"""Measures collectives of hosts with several ranks each: Sluice over K reducers beside Gloo, Open MPI and the bound of the links, in
interleaved rounds, in one test network with a rate-limited link for each host (needs root).

    hosts.py --sluice build/release/bin/sluice --peers build/release/bench/peers --hosts 4 --ranks-per-host 2,4,8 --reducers 0,2,4 \\
        --rate 200mbit --size 64M --json F
    hosts.py --sluice ... --peers ... --hosts 1 --ranks-per-host 2,4,8 --size 4K,64K,1M,16M,64M    one host, without a network or reducers

Sluice is measured at the blocking calls of its C API, with each value of SLUICE_HOSTS in --sharing: with "auto" a host sends its sum once,
with "off" each rank sends all its data. MPICH's ranks poll and never give a core away, so that with more ranks than cores a wait lasts until
the kernel takes it from them, several milliseconds; it is left out there. Open MPI uses shared memory inside a host, and in openmpi-han also its hierarchical collectives.
Collectives: allreduce, reduce_scatter, all_gather, and "both", a reduce-scatter and an all-gather at once as in a step of FSDP2. S is the
size of the whole tensor, of which a rank has a part of equal size in all but allreduce.

The time of an operation is that of its slowest rank; the table has medians and minima over all rounds, with several hosts in units of
S/goodput of a host's link. "bound" is the minimum that the links allow with one stream per host:

    allreduce        as of hybrid.py with a worker for each host: 2(H-1)/H without reducers, 1 with K >= H
    reduce_scatter   K = 0: (H-1)/H     K >= H: 1
    all_gather       (H-1)/H
    both             K = 0: 2(H-1)/H    K >= H: 1 + 1/H

"sent" is what the interface of the host that sends most has sent per operation, in units of S, as the interface counts: with headers. CPU
is the CPU time of all ranks per 1e9 bytes of S at each rank, including that of ranks that spin while they wait.

With --computing SHARE a thread computes on each core of this machine, in the processes of the ranks, and an operation starts in a rhythm in
which operations take up SHARE of the time when no thread computes. The columns are those of a second table: "loss" is the share of the
computation that is lost beside the operations, "sums" the share of all cores' time that the operations use, without computing threads or
beside them, whichever is less (ranks that poll use more), and "beyond" the difference. "ms beside" is the time of an operation then.

Exit codes: 1 when an entry could not be measured, 2 for wrong results."""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import torch_backend
from hybrid import Progress, TimedComparison, add_run_options, check_run_options, not_negative, operation_size, positive
from link_split import split_time
from manage import parse_rate
from test_network import Loopback, TestNetwork, bits_per_second, unavailable_reason

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import compare  # noqa: E402
import peers  # noqa: E402
import sluice_run  # noqa: E402

SCHEMA = "sluice.bench.hosts/1"
PEERS = ["gloo-ring", "openmpi", "openmpi-ring", "openmpi-han"]
PEERS_OF_ONE_HOST = [*PEERS, "mpich"]
TORCH_NAMES = {"reduce_scatter": "reduce_scatter", "all_gather": "all_gather", "both": "reduce_scatter beside all_gather"}


def bound(collective, hosts, reducers):
    """The least time in units of S/goodput; None where the page above gives none."""
    if hosts == 1:
        return None
    if collective == "allreduce":
        return split_time([1.0] * hosts, [1.0] * reducers)
    return torch_backend.bound(TORCH_NAMES[collective], hosts, reducers)


def is_measured(entry, collective, ranks):
    if entry.name == "mpich" and ranks > len(os.sched_getaffinity(0)):
        print(f"# mpich is left out with {ranks} ranks, which are more than there are cores", flush=True)
        return False
    # A ring of Open MPI exists for allreduce only.
    return collective == "allreduce" or entry.name == "openmpi" or not entry.name.startswith("openmpi-r")


class Case(TimedComparison):
    """One collective with one number of ranks per host."""

    def __init__(self, arguments, hosts, folder, ranks_per_host, collective):
        self.ranks_per_host = ranks_per_host
        self.collective = collective
        link_rate = (lambda _: bits_per_second(arguments.rate)) if arguments.hosts > 1 else None
        sharing = arguments.sharing if arguments.hosts > 1 else ["auto"]
        sluice = [peers.SluiceLibrary(arguments.sluice, arguments.peers, reducers, share, link_rate) for share in sharing for reducers in arguments.reducers]
        others = [entry for entry in compare.peers_of(arguments) if is_measured(entry, collective, ranks_per_host * arguments.hosts)]
        for entry in sluice + others:
            entry.ranks_per_host = ranks_per_host
            entry.collective = collective
            entry.computing = arguments.computing
        super().__init__(arguments, arguments.hosts * ranks_per_host, hosts, folder, sluice + others)
        if arguments.hosts > 1:
            self.goodput = compare.goodput(arguments)

    def label(self, entry):
        return f"{self.ranks_per_host} ranks per host, {self.collective}: {entry.name}"

    def rows(self):
        for size in self.arguments.sizes:
            for entry in self.entries:
                if results := self.samples.get((entry.name, size)):
                    yield self.row(entry, size, results)

    def row(self, entry, size, results):
        seconds = [second for result in results for second in result["operation_seconds"]]
        median, least = statistics.median_low(seconds), min(seconds)
        several = self.arguments.hosts > 1
        unit = size / self.goodput if several else None
        limit = bound(self.collective, self.arguments.hosts, getattr(entry, "reducers", 0))
        sent = statistics.median(max(result["sent_bytes"]) / len(result["operation_seconds"]) / size for result in results) if several else None
        return {"hosts": self.arguments.hosts, "ranks_per_host": self.ranks_per_host, "collective": self.collective, "bytes": size, "entry": entry.name,
                "reducers": getattr(entry, "reducers", None), "sharing": getattr(entry, "share_hosts", None), "runs": len(seconds),
                "crashes": self.crashes.get(entry.name, 0), "median_seconds": median, "least_seconds": least, "time": unit and median / unit,
                "least_time": unit and least / unit, "bound": limit, "over_bound": limit and median / unit / limit,
                "least_over_bound": limit and least / unit / limit, "sent": sent, "sent_over_bound": sent and limit and sent / limit,
                "cpu_seconds_per_gb": statistics.median(result["cpu_seconds_per_gb"] for result in results),
                "wrong": sum(result["wrong"] for result in results), **computing(results)}


def computing(results):
    """What the operations cost threads that compute, as medians of the rounds."""
    if "computing" not in results[0]:
        return {}
    sums = [min(result["computing"]["sums"], result["computing"]["sums_beside"]) for result in results]
    median = lambda key: statistics.median(result["computing"][key] for result in results)  # noqa: E731
    return {"period_seconds": median("period_seconds"), "loss": median("loss"), "sums": statistics.median(sums),
            "beyond": statistics.median(result["computing"]["loss"] - share for result, share in zip(results, sums)),
            "sums_beside": median("sums_beside"),
            "median_seconds_beside": statistics.median(second for result in results for second in result["computing"]["beside_seconds"])}


def with_best_peer(rows):
    """Adds to each row of Sluice the best peer's median over this one's, of the same case."""
    for row in rows:
        case = [other for other in rows if other["sharing"] is None and all(other[key] == row[key] for key in ("ranks_per_host", "collective", "bytes"))]
        best = min(case, key=lambda other: other["median_seconds"], default=None) if row["sharing"] else None
        row["best_peer"] = best and best["entry"]
        row["best_peer_over_this"] = best and best["median_seconds"] / row["median_seconds"]
    return rows


def print_table(rows):
    def number(value, width, digits=3):
        return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"

    print("   L collective       size  entry                          runs  median ms   least ms     time   bound over_bound    sent /bound  CPU s/GB peer/this  #wrong")
    for row in rows:
        print(f"{row['ranks_per_host']:4} {row['collective']:14} {compare.size_text(row['bytes']):>6}  {row['entry']:28} {row['runs']:6} {1e3 * row['median_seconds']:10.3f} "
              f"{1e3 * row['least_seconds']:10.3f} {number(row['time'], 8)} {number(row['bound'], 7)} {number(row['over_bound'], 10)} {number(row['sent'], 7)} "
              f"{number(row['sent_over_bound'], 6)} {row['cpu_seconds_per_gb']:9.2f} {number(row['best_peer_over_this'], 9, 2)} {row['wrong']:7}"
              + (f"  crashed in {row['crashes']} more rounds" if row["crashes"] else ""))


def print_computing(rows):
    print("   L collective       size  entry                         period ms        ms  ms beside  loss %  sums %  beyond %")
    for row in rows:
        print(f"{row['ranks_per_host']:4} {row['collective']:14} {compare.size_text(row['bytes']):>6}  {row['entry']:28} {1e3 * row['period_seconds']:10.3f} "
              f"{1e3 * row['median_seconds']:9.3f} {1e3 * row['median_seconds_beside']:10.3f} {100 * row['loss']:7.2f} {100 * row['sums']:7.2f} {100 * row['beyond']:9.2f}")


def one_of(names):
    def parse_name(text):
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text}: expected one of {', '.join(names)}")
        return text

    return parse_name


def share(text):
    if not 0 < (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0, at most 1")
    return value


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program, for reducers")
    parser.add_argument("--peers", type=Path, required=True, help="folder of the drivers of Sluice and of the other libraries, bench/peers of a build")
    parser.add_argument("--entries", type=compare.list_of(str), metavar="NAME,...",
                        help=f"other libraries to measure (default: {','.join(PEERS)}; on one host also mpich)")
    parser.add_argument("--hosts", type=positive, default=4, help="number of hosts H (default: 4)")
    parser.add_argument("--ranks-per-host", type=compare.list_of(positive), default=[2, 4, 8], metavar="L,...", help="default: 2,4,8")
    parser.add_argument("--reducers", type=compare.list_of(not_negative), metavar="K,...", help="pool widths (default: 0,2,4; with one host: 0)")
    parser.add_argument("--sharing", type=compare.list_of(one_of(("auto", "off"))), default=["auto", "off"], metavar="VALUE,...", help="values of SLUICE_HOSTS (default: auto,off)")
    parser.add_argument("--collectives", type=compare.list_of(one_of(tuple(peers.TRANSFERS))), default=list(peers.TRANSFERS), metavar="NAME,...",
                        help=f"default: {','.join(peers.TRANSFERS)}")
    parser.add_argument("--rate", type=parse_rate, default="200mbit", help="rate of the link of each host and reducer in each direction (default: 200mbit)")
    parser.add_argument("--size", "--sizes", type=compare.list_of(operation_size), default=[64 << 20], dest="sizes", metavar="SIZE,...",
                        help="in bytes, with an optional suffix K, M or G (default: 64M)")
    parser.add_argument("--computing", type=share, default=0, metavar="SHARE", help="measure beside computing threads, operations in a rhythm (example: 0.25)")
    add_run_options(parser)
    arguments = parser.parse_args(argv)
    arguments.loopback = arguments.hosts == 1
    arguments.entries = arguments.entries or (PEERS_OF_ONE_HOST if arguments.loopback else PEERS)
    check_run_options(parser, arguments)
    arguments.reducer_rate = None  # a setting of compare.py
    arguments.reducers = arguments.reducers or ([0] if arguments.loopback else [0, 2, 4])
    if arguments.loopback and arguments.reducers != [0]:
        parser.error("--reducers: the ranks of one host need none")
    if not arguments.loopback and not bits_per_second(arguments.rate):
        parser.error("--rate 0: the bound needs a limited rate")
    for size in arguments.sizes:
        for ranks_per_host in arguments.ranks_per_host:
            if set(arguments.collectives) != {"allreduce"} and size % (4 * arguments.hosts * ranks_per_host):
                parser.error(f"--size {size}: expected a multiple of 4 B for each of {arguments.hosts * ranks_per_host} ranks")
    return arguments


def hosts_of(arguments):
    if arguments.loopback:
        return Loopback(unavailable_reason() is None, arguments.congestion)
    if os.geteuid() != 0:
        raise SystemExit("a test network needs root; run as root or use --hosts 1")
    names = [f"w{i}" for i in range(arguments.hosts)] + [f"r{i}" for i in range(max(arguments.reducers))]
    return TestNetwork([*names, "ctl"], lambda host: "0" if host == "ctl" else arguments.rate, arguments.congestion, arguments.mtu)


def measure(arguments):
    """Runs all rounds. Returns the content of the --json file."""
    peers.DEADLINE_S = sluice_run.DEADLINE_S = arguments.deadline
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder, hosts_of(arguments) as hosts:
        cases = [Case(arguments, hosts, Path(folder), ranks_per_host, collective) for ranks_per_host in arguments.ranks_per_host for collective in arguments.collectives]
        progress = Progress(arguments.rounds * sum(len(case.entries) for case in cases))
        for number in range(arguments.rounds):
            for case in cases:
                case.progress = progress
                case.run_round(number)
                loads.append(os.getloadavg()[0])
    return {"schema": SCHEMA, "machine": next((case.machine for case in cases if case.machine), {}),
            "load_average": {"before": loads[0], "median": statistics.median(loads[1:]), "greatest": max(loads)}, "hosts": arguments.hosts,
            "rate": None if arguments.loopback else arguments.rate, "mtu": arguments.mtu, "rounds": arguments.rounds,
            "iterations": {size: cases[0].iterations(size)[0] for size in arguments.sizes}, "failures": [failure for case in cases for failure in case.failures],
            "results": with_best_peer([row for case in cases for row in case.rows()])}


def main():
    # An exception on SIGTERM lets the context managers stop ranks and reducers and remove namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = parse()
    output = measure(arguments)
    load = output["load_average"]
    links = "no network" if arguments.loopback else f"links of {arguments.rate}, MTU {arguments.mtu}"
    print(f"# {arguments.hosts} host{'' if arguments.loopback else 's'}, {links}, {output['machine'].get('congestion_control')}, {arguments.rounds} rounds, "
          f"load average {load['before']:.1f} before, {load['median']:.1f} in the median and {load['greatest']:.1f} at most, with the ranks' own")
    print_table(output["results"])
    if arguments.computing:
        print_computing(output["results"])
    if arguments.json:
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        arguments.json.write_text(json.dumps({**output, "command": command}, indent=1) + "\n", encoding="utf-8")
    if any(row["wrong"] for row in output["results"]):
        sys.exit(2)
    sys.exit(1 if output["failures"] or not output["results"] else 0)


if __name__ == "__main__":
    main()
