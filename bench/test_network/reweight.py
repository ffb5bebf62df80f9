#!/usr/bin/env python3
"""Measures how soon the workers' shares follow a link that becomes slow while a job runs, and fast again.

    reweight.py --sluice build/release/bin/sluice --workers 4 --rate 100mbit --slow 0.5 --size 1M --json F

All ranks run allreduces of one size with co-located reducers and no pool, in a test network with rate-limited links (needs root).
After --before seconds the last worker's link gets --slow of its rate, after --during more seconds its full rate again; the
operations last --after seconds more. In each of the two phases the operations should come within --tolerance of the minimum that
the links allow. The delay is the time from the change of the rate to the first of several good operations.

Exit codes: 1 when a delay exceeds --limit seconds or no rank reported a changed rate, 2 for wrong sums."""

import argparse
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import sluice_run
from hybrid import fraction, operation_size, positive
from link_split import split_time
from manage import parse_rate
from test_network import GOODPUT, TestNetwork, bits_per_second, rate_text

SCHEMA = "sluice.bench.reweight/1"


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program")
    parser.add_argument("--workers", type=positive, default=4)
    parser.add_argument("--rate", type=parse_rate, default="100mbit", help="rate of each worker's link in each direction (default: 100mbit)")
    parser.add_argument("--slow", type=fraction, default=0.5, metavar="FRACTION", help="rate of the slow link as a fraction of --rate (default: 0.5)")
    parser.add_argument("--size", type=operation_size, default=1 << 20, help="in bytes, with an optional suffix K, M or G (default: 1M)")
    parser.add_argument("--before", type=float, default=5, metavar="SECONDS", help="time before the link becomes slow (default: 5)")
    parser.add_argument("--during", type=float, default=10, metavar="SECONDS", help="time with the slow link (default: 10)")
    parser.add_argument("--after", type=float, default=10, metavar="SECONDS", help="time with the restored link (default: 10; 0: the link stays slow)")
    parser.add_argument("--tolerance", type=float, default=0.1, help="distance to the minimum at which an operation counts as good (default: 0.1)")
    parser.add_argument("--limit", type=float, default=5, metavar="SECONDS", help="longest allowed delay (default: 5)")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(argv)


SEVERAL = 8  # operations whose median counts, since single ones are late on a busy machine


def operations(row):
    """(begin in Unix time, duration) of all timed operations. A duration is that of the slowest rank, so their sum is too long."""
    for side in ("out_of_place", "in_place"):
        times = row[side]["iteration_times"]
        begin, scale = row[side]["began"], row[side]["time"] * len(times) / sum(times)
        for us in times:
            yield begin, 1e-6 * us
            begin += 1e-6 * us * scale


def settle(done, begin, end, target):
    """Seconds from `begin` to the first of several operations whose median is at most the target, and the median from there until
    `end`; (None, None) without such operations."""
    phase = [(start, seconds) for start, seconds in done if begin <= start < end]
    times = [seconds for _, seconds in phase]
    for i in range(len(phase) - SEVERAL + 1):
        if statistics.median(times[i:i + SEVERAL]) <= target:
            return phase[i][0] - begin, statistics.median(times[i:])
    return None, None


def evaluate(done, changed, arguments):
    """Delays after the changes at the times `changed`. The best median before them is that of equal links."""
    rates = [1.0] * arguments.workers
    full, slow = split_time(rates, []), split_time([*rates[:-1], arguments.slow], [])
    times = [seconds for start, seconds in done if start + seconds < changed[0]]
    optimum = min(statistics.median(times[i:i + SEVERAL]) for i in range(max(len(times) - SEVERAL + 1, 1)))
    unit = 8 * arguments.size / (GOODPUT * bits_per_second(arguments.rate))
    result = {"optimum_seconds": optimum, "optimum_over_bound": optimum / (full * unit)}
    ends = [*changed[1:], float("inf")]
    for name, begin, end, best in zip(("slow", "restored"), changed, ends, (optimum * slow / full, optimum)):
        delay, later = settle(done, begin, end, (1 + arguments.tolerance) * best)
        result |= {f"delay_{name}": delay, f"{name}_over_optimum": later and later / best}
    return result


def change_links(network, host, arguments, stop, changed):
    changes = [(arguments.before, bits_per_second(arguments.rate) * arguments.slow)]
    changes += [(arguments.during, bits_per_second(arguments.rate))] if arguments.after else []
    for wait, rate in changes:
        if stop.wait(wait):
            return
        network.set_rate(host, rate_text(rate))
        changed.append(time.time())


def measure(arguments):
    unit = 8 * arguments.size / (GOODPUT * bits_per_second(arguments.rate))
    rates = [1.0] * arguments.workers
    full, slow = split_time(rates, []) * unit, split_time([*rates[:-1], arguments.slow], []) * unit
    # Each of the two series of `bench allreduce`, out of place and in place, has half of the operations.
    iterations = round(((arguments.before + arguments.after) / full + arguments.during / slow) / 2)
    log, stop, changed = [], threading.Event(), []
    hosts = [f"w{rank}" for rank in range(arguments.workers)]
    with tempfile.TemporaryDirectory() as folder, TestNetwork(hosts, arguments.rate) as network:
        changes = threading.Thread(target=change_links, args=(network, hosts[-1], arguments, stop, changed))
        changes.start()
        try:
            options = ["-b", arguments.size, "-e", arguments.size, "-n", iterations, "-w", 1, "-c", 1]
            output = sluice_run.bench(network, arguments.sluice, "allreduce", arguments.workers, sluice_run.NO_REDUCERS, Path(folder), options,
                                      lambda _host: {"SLUICE_COLOCATED": "auto", "SLUICE_LINK_RATE": arguments.rate}, log)
        finally:
            stop.set()
            changes.join()
    row = output["results"][0]
    done = list(operations(row))
    return {"schema": SCHEMA, "machine": output["machine"], "workers": arguments.workers, "rate": arguments.rate, "slow": arguments.slow, "bytes": arguments.size,
            "tolerance": arguments.tolerance, "wrong": row["out_of_place"]["nwrong"] + row["in_place"]["nwrong"], **evaluate(done, changed, arguments),
            "changes": [line for line in log if "'s link: " in line], "changed": changed, "operations": done}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = parse()
    began = time.monotonic()
    output = measure(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(output, indent=1) + "\n", encoding="utf-8")
    print("\n".join(output["changes"]) or "no rank reported a changed rate")
    for name, value in output.items():
        if isinstance(value, float) or name in ("wrong", "delay_slow", "delay_restored"):
            print(f"{name:22} {value if not isinstance(value, float) else format(value, '.3f')}")
    print(f"# {time.monotonic() - began:.0f} s")
    if output["wrong"]:
        sys.exit(2)
    delays = [output["delay_slow"], *([output["delay_restored"]] if arguments.after else [])]
    sys.exit(0 if output["changes"] and all(d is not None and d <= arguments.limit for d in delays) else 1)


if __name__ == "__main__":
    main()
