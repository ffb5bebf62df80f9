#!/usr/bin/env python3
"""Measures models (sluice.store) beside Redis and torchft, in a test network with rate-limited links (needs root, etcd, and --python with NumPy).

    models.py --sluice build/release/bin/sluice --workers 4 --reducers 6,4 --rate 200mbit --bytes 64M --json F

Every round measures each entry once, with new processes. S: the bytes of all parameters. Links of reducers are like those of workers.

    step         all workers push S, one version is made of their mean, and all pull it. One after the other, without overlap
    push_pull    the same in one call: pulls follow the pushes through the step
    overlapped   step after step of --models models that together have S, each as soon as its last one ended: the time per S, once steady
    read         --readers readers pull one version of S at once

Entries: sluice with each number of reducers, with Nesterov momentum, which a copy has, too (one more reducer than the greatest number), and with mxfp8 for
pushes, or pulls of readers, which changes w and "read" by a factor of 264/1024; redis: servers at the hosts of the first number of reducers, with a shard of the tensor each (models_redis.py); torchft LocalSGD and DiLoCo over gloo.
redis and torchft are left out, by name, where they are not installed.

"time" is in units of S/goodput. "bound" is the least that the links allow, for n workers, R reducers with a copy elsewhere, a arrays (2 with
momentum):

    sluice step          w + max(1, n/R) + a/R, with w = max(1, n/R) of pushes     R = 1: 2n
    sluice push_pull     max(w, (n + a)/R, 1)       R = 1: n
    sluice overlapped    max(1, (n + a)/R)       R = 1: n
    sluice read          max(1, readers/R)
    redis step           max(1, n/R) + 2 max((n-1)/n, (n-1)/R) + max(1/n, 1/R)
    redis overlapped     max(1 + 1/n, (n+1)/R, 2(n-1)/n, 2(n-1)/R)
    torchft step         2(n-1)/n"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import sluice_run
from hybrid import operation_size, positive
from manage import parse_rate
from test_network import GOODPUT, TestNetwork, bits_per_second

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import compare  # noqa: E402

SCHEMA = "sluice.bench.models/1"
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gpu_client/python/src"
RANK = Path(__file__).with_name("models_rank.py")
CASES = ("step", "push_pull", "overlapped", "read")
MEMORY = Path("/dev/shm")  # of etcd's files: all hosts of the network share one disk
ETCD_PORTS = (2379, 2380)
REDIS_THREADS = 5  # steps at once of a worker; 16 are slower
WIRE_BYTES = {"f32": 4, "mxfp8": 264 / 256}  # of a value
REDIS_PORT, LIGHTHOUSE_PORT = 6379, 29510
# Waits until something listens at an address.
WAIT = """import socket, sys, time
while True:
    try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close(); break
    except OSError: time.sleep(0.02)"""


class Entry:
    def __init__(self, case, peer, reducers=None, rule="add", wire="f32"):
        self.case, self.peer, self.reducers, self.rule, self.wire = case, peer, reducers, rule, wire
        special = (", momentum" if rule != "add" else "") + (f", {wire}" if wire != "f32" else "")
        self.name = f"{peer}, {reducers} {'servers' if peer == 'redis' else 'reducers'}{special}" if reducers else peer

    def bound(self, n, readers):
        """In units of S/goodput."""
        if self.peer.startswith("torchft"):
            return 2 * (n - 1) / n
        r = self.reducers
        wide = max(1, n / r)
        if self.peer == "redis":
            fetched = max((n - 1) / n, (n - 1) / r)
            return wide + 2 * fetched + max(1 / n, 1 / r) if self.case == "step" else max(1 + 1 / n, (n + 1) / r, 2 * (n - 1) / n, 2 * (n - 1) / r)
        copied = 0 if r == 1 else 1 if self.rule == "add" else 2
        shrink = WIRE_BYTES[self.wire] / 4
        pushed = shrink * wide
        return {"step": pushed + wide + copied / r, "push_pull": max(pushed, (n + copied) / r, wide), "overlapped": max(1, (n + copied) / r), "read": shrink * max(1, readers / r)}[self.case]


class Bench:
    """The network of all entries. `missing`: what is not installed, by entry."""

    def __init__(self, arguments, network, folder):
        self.arguments, self.network, self.folder = arguments, network, folder

    def start(self, stack, host, command, **options):
        process = self.network.start(host, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        stack.callback(sluice_run.kill_all, [process])
        return process

    def wait_for(self, host, port):
        self.network.run("ctl", [sys.executable, "-c", WAIT, self.network.address(host), port], timeout=30)

    def start_reducers(self, stack, count):
        """Starts etcd and reducers. Returns the processes, and the variables of the ranks."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        client, peer = (f"http://{self.network.address('ctl')}:{port}" for port in ETCD_PORTS)
        data = tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else folder)
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        self.start(stack, "ctl", ["etcd", "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                                  "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"])
        self.wait_for("ctl", ETCD_PORTS[0])
        processes, pool = [], []
        for host in (f"r{i}" for i in range(count)):
            port_file = folder / host
            processes.append(self.start(stack, host, [self.arguments.sluice, "reducer", "--insecure", "--lanes", 1, "--listen", f"{self.network.address(host)}:0",
                                                      "--port-file", port_file, "--state", folder / f"state-{host}", "--coordinator", client.replace("http", "etcd")]))
            pool.append(f"{self.network.address(host)}:{sluice_run.wait_for_port(processes[-1], port_file, host)}")
        return processes, {"SLUICE_REDUCERS": ",".join(pool)}

    def start_peer(self, stack, entry):
        if entry.peer == "sluice":
            return self.start_reducers(stack, entry.reducers)
        if entry.peer == "redis":
            hosts = [f"r{i}" for i in range(entry.reducers)]
            processes = [self.start(stack, host, ["redis-server", "--port", REDIS_PORT, "--bind", self.network.address(host), "--protected-mode", "no", "--save", "",
                                                  "--appendonly", "no"]) for host in hosts]
            for host in hosts:
                self.wait_for(host, REDIS_PORT)
            return processes, {"REDIS": ",".join(f"{self.network.address(host)}:{REDIS_PORT}" for host in hosts)}
        address = f"{self.network.address('ctl')}:{LIGHTHOUSE_PORT}"
        lighthouse = self.start(stack, "ctl", [lighthouse_of(self.arguments.python), "--min_replicas", self.arguments.workers, "--bind", address, "--quorum_tick_ms", "10"])
        self.wait_for("ctl", LIGHTHOUSE_PORT)
        return [lighthouse], {"LIGHTHOUSE": f"http://{address}"}

    def measure(self, entry):
        """Returns the results of the ranks, and the counters of the reducers at each barrier."""
        arguments = self.arguments
        ranks = arguments.readers if entry.case == "read" else arguments.workers
        settings = {"case": entry.case, "with": entry.peer, "rule": entry.rule, "wire": entry.wire, "bytes": arguments.bytes, "repetitions": arguments.repetitions,
                    "models": arguments.models if entry.case == "overlapped" else 1,
                    "threads": REDIS_THREADS if entry.peer == "redis" else arguments.models}
        with ExitStack() as stack:
            servers, variables = self.start_peer(stack, entry)
            env = {**os.environ, **variables, "SLUICE_LIBRARY": str(arguments.library.resolve()), "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1",
                   "WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": self.network.interface}
            processes = []
            for rank in range(ranks):
                host = f"w{rank}"
                errors = stack.enter_context((self.folder / f"errors-{host}").open("w+", encoding="utf-8"))
                processes.append(self.network.start(host, [arguments.python, "-B", RANK, json.dumps(settings)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                                    text=True, env={**env, "RANK": str(rank), "ADDRESS": self.network.address(host)}))
                stack.callback(sluice_run.kill_all, [processes[-1]])
            counters = []
            while True:
                lines = [process.stdout.readline() for process in processes]
                for rank, line in enumerate(lines):
                    if not line:
                        raise SystemExit(f"{entry.name}: rank {rank} ended: {(self.folder / f'errors-w{rank}').read_text(encoding='utf-8')[-2000:]}")
                if lines[0] != "barrier\n":
                    return [json.loads(line) for line in lines], counters
                if entry.case == "read":
                    counters.append({"sent": self.network.sent_bytes([f"r{i}" for i in range(entry.reducers)]), "disk_read": sum(map(disk_read_bytes, servers))})
                for process in processes:
                    process.stdin.write("\n")
                    process.stdin.flush()


def disk_read_bytes(process):
    """Bytes that the process caused to be read from disks so far."""
    return int(next(line for line in Path(f"/proc/{process.pid}/io").read_text(encoding="ascii").splitlines() if line.startswith("read_bytes")).split()[1])


def lighthouse_of(python):
    return Path(python).with_name("torchft_lighthouse")


def missing_peers(arguments):
    found = {}
    if shutil.which("redis-server") is None:
        found["redis"] = "redis-server is not installed (apt-get install redis-server)"
    if not lighthouse_of(arguments.python).exists():
        found["torchft"] = f"{arguments.python} has no torchft (scripts/python_env.sh)"
    return found


def entries_of(arguments, missing):
    pools, widest = arguments.reducers, max(arguments.reducers)
    entries = [Entry(case, "sluice", reducers) for case in CASES for reducers in pools]
    entries += [Entry(case, "sluice", widest + 1, "nesterov") for case in ("step", "push_pull", "overlapped")]
    entries += [Entry(case, "sluice", widest, wire="mxfp8") for case in ("step", "push_pull", "read")]
    entries += [Entry(case, "redis", pools[0]) for case in ("step", "overlapped")]
    entries += [Entry("step", f"torchft {name}") for name in ("LocalSGD", "DiLoCo")]
    return [entry for entry in entries if entry.case in arguments.cases and entry.peer.split()[0] not in missing and
            (not arguments.entries or any(entry.name.startswith(prefix) for prefix in arguments.entries))]


def measure(arguments):
    """Runs all rounds. Returns the content of the --json file."""
    if shutil.which("etcd") is None:
        raise SystemExit("etcd is not installed (apt-get install etcd-server)")
    missing = missing_peers(arguments)
    entries = entries_of(arguments, missing)
    load = os.getloadavg()[0]
    found = {entry: {"times": [], "phases": [], "sent": [], "disk_read": 0} for entry in entries}
    hosts = [f"w{i}" for i in range(max(arguments.workers, arguments.readers if "read" in arguments.cases else 0))]
    hosts += [f"r{i}" for i in range(max(entry.reducers or 0 for entry in entries))]
    with tempfile.TemporaryDirectory() as folder, TestNetwork([*hosts, "ctl"], lambda host: "0" if host == "ctl" else arguments.rate) as network:
        bench = Bench(arguments, network, Path(folder))
        for number in range(arguments.rounds):
            for entry in entries:
                began = time.monotonic()
                results, counters = bench.measure(entry)
                add_results(found[entry], entry, results, counters)
                print(f"round {number + 1} of {arguments.rounds}: {entry.case}: {entry.name}: {found[entry]['times'][-1]:.3f} s ({time.monotonic() - began:.0f} s)",
                      file=sys.stderr, flush=True)
    return {"schema": SCHEMA, "workers": arguments.workers, "readers": arguments.readers, "rate": arguments.rate, "bytes": arguments.bytes, "models": arguments.models, "rounds": arguments.rounds, "missing": missing, "load_average": {"before": load, "after": os.getloadavg()[0]},
            "rows": [row_of(arguments, entry, found[entry]) for entry in entries]}


def add_results(found, entry, results, counters):
    if len({json.dumps(result["value"]) for result in results}) != 1:
        raise SystemExit(f"{entry.name}: ranks have different values: {[result['value'] for result in results]}")
    slowest = [max(of_ranks) for of_ranks in zip(*(result["times"] for result in results))]
    found["times"] += slowest
    if results[0]["phases"]:
        found["phases"].append([max(of_ranks) for of_ranks in zip(*(result["phases"] for result in results))])
    if counters:
        # The first of these repetitions is the warm-up.
        found["sent"] += [(after["sent"] - before["sent"]) / seconds for before, after, seconds in zip(counters[1:], counters[2:], slowest)]
        found["disk_read"] += counters[-1]["disk_read"] - counters[0]["disk_read"]


def row_of(arguments, entry, found):
    rate = bits_per_second(arguments.rate)
    unit = 8 * arguments.bytes / (GOODPUT * rate)
    median, bound = statistics.median(found["times"]), entry.bound(arguments.workers, arguments.readers)
    row = {"case": entry.case, "entry": entry.name, "runs": len(found["times"]), "median_seconds": median, "least_seconds": min(found["times"]),
           "greatest_seconds": max(found["times"]), "time": median / unit, "bound": bound, "over_bound": median / unit / bound}
    if found["phases"] and entry.case == "step":
        push, pull = (statistics.median(phase) / unit for phase in zip(*found["phases"]))
        row |= {"push": push, "pull": pull}
    if found["sent"]:
        row |= {"egress_of_links": 8 * statistics.median(found["sent"]) / (rate * entry.reducers), "disk_read_bytes": found["disk_read"]}
    return row


def print_table(output):
    print(f"{'case':11} {'entry':32} {'runs':>4} {'median ms':>10} {'time':>7} {'bound':>7} {'/ bound':>7} {'push':>6} {'pull':>6} {'egress':>7} {'disk read':>9}")
    for row in output["rows"]:
        phases = f"{row['push']:6.3f} {row['pull']:6.3f}" if "push" in row else f"{'':13}"
        read = f" {100 * row['egress_of_links']:6.1f}% {row['disk_read_bytes']:9}" if "disk_read_bytes" in row else ""
        print(f"{row['case']:11} {row['entry']:32} {row['runs']:4} {1e3 * row['median_seconds']:10.1f} {row['time']:7.3f} {row['bound']:7.3f} {row['over_bound']:7.3f} {phases}{read}")
    for peer, reason in output["missing"].items():
        print(f"{peer}: not measured: {reason}")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, required=True, help="the program")
    parser.add_argument("--library", type=Path, help="libsluice.so (default: that beside the program)")
    parser.add_argument("--python", type=Path, default=ROOT / "build/python-venv/bin/python", help="an interpreter with numpy and torchft (default: build/python-venv's)")
    parser.add_argument("--workers", type=positive, default=4)
    parser.add_argument("--reducers", type=compare.list_of(positive), default=[6, 4, 1], metavar="R,...", help="numbers of reducers (default: 6,4,1)")
    parser.add_argument("--readers", type=positive, default=8)
    parser.add_argument("--rate", type=parse_rate, default="200mbit", help="rate of each link in each direction (default: 200mbit)")
    parser.add_argument("--bytes", type=operation_size, default=64 << 20, help="of all parameters (default: 64M)")
    parser.add_argument("--models", type=positive, default=16, help="models of equal size in \"overlapped\" (default: 16)")
    parser.add_argument("--cases", type=compare.list_of(str), default=list(CASES), metavar="CASE,...", help=f"default: {','.join(CASES)}")
    parser.add_argument("--entries", type=lambda text: text.split(";"), metavar="PREFIX;...", help="measure only entries whose names begin so")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--repetitions", type=positive, default=3, help="timed repetitions of each entry in a round (default: 3)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    arguments.library = arguments.library or arguments.sluice.resolve().parents[1] / "lib" / "libsluice.so"
    if wrong := [case for case in arguments.cases if case not in CASES]:
        parser.error(f"no case {wrong[0]}; the cases are {', '.join(CASES)}")
    if not bits_per_second(arguments.rate):
        parser.error("--rate 0: the bound needs a limited rate")
    return arguments


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = parse()
    output = measure(arguments)
    print_table(output)
    if arguments.json:
        arguments.json.write_text(json.dumps(output, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
