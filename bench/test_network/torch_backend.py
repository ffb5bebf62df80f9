#!/usr/bin/env python3
"""Measures the backend "sluice" of torch.distributed beside gloo, in a test network with rate-limited links (needs root).

    torch_backend.py --sluice build/release/bin/sluice --library build/release/lib/libsluice.so --python build/python-venv/bin/python \\
        --workers 4 --reducers 0,4 --rate 200mbit --bytes 32M --json F

--workers counts hosts; --ranks-per-host starts several ranks on each, behind its one link. "call" is the time of an asynchronous allreduce of
4 KiB until it returns, "call and wait" until its wait() returns; with --cases call nothing else is measured.

The cases with bf16 are fsdp.offload() with 16 bits on the wire beside torch's own FSDP2 and HSDP over gloo in f32.

Every round runs gloo and each pool width K once, in one test network. Pool width 0: the ranks reduce by themselves. The time of a
repetition is that of its slowest rank; the table has medians over all rounds. "time" is in units of S/goodput, the parameters' or
tensor's bytes divided by the TCP goodput of a link. "gloo/this" is gloo's median over this entry's of the same run. The DDP step's
"communication" is its time minus that of the same step without communication, and HSDP's "between hosts" its time minus that of a step in which
each host trains alone. "bound" is the least time that the links allow:

    all_reduce                         K = 0: 2(n-1)/n    K >= n: 1
    reduce_scatter                     K = 0: (n-1)/n     K >= n: 1
    all_gather                         (n-1)/n
    reduce_scatter beside all_gather   K = 0: 2(n-1)/n    K >= n: 1 + 1/n
    broadcast                          K >= n: 1"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sluice_run
from hybrid import not_negative, operation_size, positive
from manage import parse_rate
from test_network import GOODPUT, TestNetwork, bits_per_second

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import compare  # noqa: E402

SCHEMA = "sluice.bench.torch_backend/1"
PACKAGE = Path(__file__).resolve().parents[2] / "gpu_client/python/src"
RANK = Path(__file__).with_name("torch_rank.py")
CASES = ("all_reduce", "reduce_scatter", "all_gather", "reduce_scatter beside all_gather", "broadcast", "all_reduce of 4 KiB", "ddp step",
         "ddp step without communication", "fsdp2 step", "fsdp2 step, asynchronous", "fsdp2 step, asynchronous, bf16", "hsdp step, bf16",
         "hsdp step without copies", "call")


def bound(case, workers, reducers):
    """In units of S/goodput; None where the page above gives none."""
    ring = (workers - 1) / workers
    full = reducers is not None and reducers >= workers
    return {"all_reduce": 1 if full else 2 * ring, "reduce_scatter": 1 if full else ring, "all_gather": ring,
            "reduce_scatter beside all_gather": 1 + 1 / workers if full else 2 * ring, "broadcast": 1 if full else None}.get(case) if not reducers or full else None


def run_ranks(network, arguments, backend, pool, folder):
    """Returns the output of every rank."""
    count = arguments.workers * arguments.ranks_per_host
    settings = {"bytes": arguments.bytes, "repetitions": arguments.repetitions, "warmup": 1, "cases": arguments.cases, "ranks_per_host": arguments.ranks_per_host,
                "calls": arguments.calls, "store": f"file://{folder}/store-{time.monotonic_ns()}"}
    env = {**os.environ, "SLUICE_LIBRARY": str(arguments.library.resolve()), "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(count),
           "SLUICE_REDUCERS": pool, "GLOO_SOCKET_IFNAME": network.interface, "MASTER_ADDR": network.address("w0")}
    if bits_per_second(arguments.rate):
        env["SLUICE_LINK_RATE"] = arguments.rate
    ranks = []
    try:
        for rank in range(count):
            ranks.append(network.start(f"w{rank // arguments.ranks_per_host}", [arguments.python, "-B", RANK, backend, json.dumps(settings)], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env={**env, "RANK": str(rank)}))
        outputs = [rank.communicate(timeout=arguments.deadline) for rank in ranks]
    finally:
        sluice_run.kill_all(ranks)
    for rank, (process, (_, errors)) in enumerate(zip(ranks, outputs)):
        if process.returncode != 0:
            raise SystemExit(f"{backend}: rank {rank} exited with code {process.returncode}: {errors[-2000:]}")
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def measure(arguments):
    entries = {"gloo": None, **{f"sluice K={reducers}": reducers for reducers in arguments.reducers}}
    times = {name: {} for name in entries}
    hosts = [f"w{rank}" for rank in range(arguments.workers)] + [f"r{i}" for i in range(max(arguments.reducers))]
    with tempfile.TemporaryDirectory() as folder, TestNetwork(hosts, arguments.rate) as network:
        for number in range(arguments.rounds):
            for name, reducers in entries.items():
                began = time.monotonic()
                with sluice_run.reducers(network, arguments.sluice, reducers or 0, Path(folder)) as pool:
                    outputs = run_ranks(network, arguments, name.split()[0], pool, folder)
                for case in outputs[0]:
                    slowest = [max(by_rank) for by_rank in zip(*(output[case] for output in outputs))]
                    times[name].setdefault(case, []).extend(slowest)
                print(f"round {number + 1} of {arguments.rounds}: {name} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return entries, times


def rows_of(arguments, entries, times):
    unit = 8 * arguments.bytes / (GOODPUT * (bits_per_second(arguments.rate) or math.inf))
    medians = {name: {case: statistics.median(seconds) for case, seconds in cases.items()} for name, cases in times.items()}
    for cases in medians.values():
        if "ddp step without communication" in cases:
            cases["ddp communication"] = cases["ddp step"] - cases["ddp step without communication"]
        if "hsdp step without copies" in cases:
            cases["hsdp, bf16, between hosts"] = cases["hsdp step, bf16"] - cases["hsdp step without copies"]
    for name, reducers in entries.items():
        for case, seconds in medians[name].items():
            yield {"entry": name, "case": case, "median_seconds": seconds, "time": seconds / unit if unit else None, "bound": bound(case, arguments.workers, reducers),
                   "gloo_over_this": medians["gloo"][case] / seconds}


def print_table(rows):
    print(f"{'case':34} {'entry':12} {'median ms':>10} {'time':>7} {'bound':>7} {'gloo/this':>9}")
    for row in sorted(rows, key=lambda row: row["case"]):
        limit = f"{row['bound']:7.3f}" if row["bound"] else "      -"
        print(f"{row['case']:34} {row['entry']:12} {1e3 * row['median_seconds']:10.3f} {row['time'] or 0:7.3f} {limit} {row['gloo_over_this']:9.2f}")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program")
    parser.add_argument("--library", type=Path, required=True, help="libsluice.so")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch (default: this one)")
    parser.add_argument("--workers", type=positive, default=4)
    parser.add_argument("--ranks-per-host", type=positive, default=1)
    parser.add_argument("--reducers", type=compare.list_of(not_negative), default=[0, 4], metavar="K,...", help="pool widths (default: 0,4)")
    parser.add_argument("--rate", type=parse_rate, default="200mbit", help="rate of each link in each direction; 0: no limit (default: 200mbit)")
    parser.add_argument("--bytes", type=operation_size, default=32 << 20, help="of a tensor, and of the networks' parameters (default: 32M)")
    parser.add_argument("--cases", type=lambda text: text.split(";"), default=list(CASES), metavar="CASE;...", help=f"default: all, {'; '.join(CASES)}")
    parser.add_argument("--rounds", type=positive, default=2)
    parser.add_argument("--repetitions", type=positive, default=3, help="timed repetitions of each case in a round (default: 3)")
    parser.add_argument("--calls", type=positive, default=200, help="calls of 4 KiB, without the first 20 (default: 200)")
    parser.add_argument("--deadline", type=positive, default=600, metavar="SECONDS", help="time limit of one entry of a round (default: 600)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    if wrong := [case for case in arguments.cases if case not in CASES]:
        parser.error(f"no case {wrong[0]}; the cases are {', '.join(CASES)}")
    return arguments


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = parse()
    rows = list(rows_of(arguments, *measure(arguments)))
    print_table(rows)
    if arguments.json:
        facts = {"schema": SCHEMA, "workers": arguments.workers, "ranks_per_host": arguments.ranks_per_host, "rate": arguments.rate, "bytes": arguments.bytes}
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        arguments.json.write_text(f'{json.dumps(facts)[:-1]},\n "rows": [\n  {lines}]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
