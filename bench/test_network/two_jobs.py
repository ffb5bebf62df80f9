#!/usr/bin/env python3
"""Measures how two jobs share one reducer whose link is the bottleneck, in a test network (test_network.py).

    two_jobs.py --sluice build/bin/sluice --weight b=3 --seconds 20
    two_jobs.py --sluice build/bin/sluice --only b
    two_jobs.py --sluice build/bin/sluice --stop a

Prints the bandwidth of each job over its workers' links once per second, then the ratio of the jobs over the measured time.
The measurement begins after --settle seconds."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from sluice_run import kill_all, wait_for_port
from test_network import TestNetwork

JOBS = ("a", "b")


class TwoJobs:
    """Runs a test network, a reducer at r0, and the ranks of two jobs at a0, a1, ..., b0, b1, ... Ends everything on exit."""

    def __init__(self, sluice, workers, rate, worker_rate, reducer_options=()):
        self.sluice = sluice
        self.hosts = {job: [f"{job}{i}" for i in range(workers)] for job in JOBS}
        all_hosts = [*self.hosts["a"], *self.hosts["b"], "r0"]
        self.network = TestNetwork(all_hosts, lambda host: rate if host == "r0" else worker_rate)
        self.reducer_options = reducer_options
        self.ranks = {job: [] for job in JOBS}
        self.tenants = {}
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stack.enter_context(self.network)
            port_file = folder / "port"
            self.reducer = self.network.start("r0", [self.sluice, "reducer", "--insecure", "--listen", f"{self.network.address('r0')}:0", "--port-file", port_file,
                                                     *self.reducer_options], stderr=subprocess.DEVNULL)
            stack.callback(kill_all, [self.reducer])
            self.pool = f"{self.network.address('r0')}:{wait_for_port(self.reducer, port_file, 'reducer')}"
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self, job, options, tenant):
        self.tenants[job] = tenant
        session = os.urandom(16).hex()
        workers = len(self.hosts[job])
        for rank, host in enumerate(self.hosts[job]):
            command = [self.sluice, "bench", "allreduce", "--connect", self.pool, "--session", session, "--workers", workers, "--rank", rank,
                       "--tenant", tenant, *options]
            self.ranks[job].append(self.network.start(host, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.stack.callback(kill_all, self.ranks[job])

    def signal(self, job, rank, number):
        self.ranks[job][rank].send_signal(number)

    def sent(self):
        return {job: self.network.sent_bytes(hosts) for job, hosts in self.hosts.items()}

    def served(self):
        """Payload bytes that the reducer has served for the tenant of each job: both directions, all ranks."""
        tenants = {entry["tenant"]: entry["served_bytes"] for entry in self.status()["tenants"]}
        return {job: tenants.get(self.tenants.get(job), 0) for job in JOBS}

    def status(self):
        shown = self.network.run("r0", [self.sluice, "status", "--reducers", self.pool])
        return json.loads(shown.stdout)[0]["status"]


def measure(jobs, seconds, print_line):
    """Prints a line per second. Returns the mean bandwidth of each job in Mb/s."""
    first = before = jobs.sent()
    began = last = time.monotonic()
    while last - began < seconds:
        time.sleep(1)
        now, sent = time.monotonic(), jobs.sent()
        fair = jobs.status()["fair"]
        print_line("  ".join(f"{job} {(sent[job] - before[job]) * 8e-6 / (now - last):7.1f} Mb/s" for job in JOBS), f"  {fair}")
        before, last = sent, now
    return {job: (before[job] - first[job]) * 8e-6 / (last - began) for job in JOBS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2, help="number of workers of each job")
    parser.add_argument("--rate", default="200mbit", help="rate of the reducer's link")
    parser.add_argument("--worker-rate", default="0", help="rate of each worker's link")
    parser.add_argument("--weight", action="append", default=[], metavar="JOB=N")
    parser.add_argument("--reducer-option", action="append", default=[])
    parser.add_argument("--size", default="4M", help="size of an operation")
    parser.add_argument("--size-a", help="size of an operation of job a; default: --size")
    parser.add_argument("--open", default="2", help="number of operations that a job keeps in flight")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--settle", type=float, default=5)
    parser.add_argument("--only", choices=JOBS, help="run only this job")
    parser.add_argument("--stop", choices=JOBS, help="send SIGSTOP to a rank of this job after --settle")
    arguments = parser.parse_args()
    weights = [option for weight in arguments.weight for option in ("--weight", weight)]
    with TwoJobs(arguments.sluice.resolve(), arguments.workers, arguments.rate, arguments.worker_rate, [*weights, *arguments.reducer_option]) as jobs:
        for job in JOBS if arguments.only is None else arguments.only:
            size = arguments.size_a if job == "a" and arguments.size_a else arguments.size
            jobs.start(job, ["-b", size, "-e", size, "-n", 100000, "-m", arguments.open, "-c", 0], job)
        time.sleep(arguments.settle)
        if arguments.stop:
            jobs.signal(arguments.stop, 0, signal.SIGSTOP)
        rates = measure(jobs, arguments.seconds, print)
        print("  ".join(f"{job} {rates[job]:.1f} Mb/s" for job in JOBS), f" b / a {rates['b'] / max(rates['a'], 1e-9):.3f}  sum {sum(rates.values()):.1f}")
        if arguments.stop:
            jobs.signal(arguments.stop, 0, signal.SIGCONT)


if __name__ == "__main__":
    main()
