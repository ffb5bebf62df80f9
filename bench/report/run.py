"""Provides the parts that the sections of a report share: programs, rounds, test networks, and the steal time of the machine."""

import datetime
import json
import math
import subprocess
import time
from pathlib import Path

import sluice_run
from peers import PeerError, Sluice, peer
from sluice_run import SluiceFailed
from test_network import Loopback, TestNetwork, rate_text, unavailable_reason

MIB = 1 << 20


class CannotRun(Exception):
    """A section cannot be measured on this machine; the message states the reason."""


class Measurement:
    """When and on which machine something is measured, from the creation of the object on."""

    def __init__(self, program, folder):
        self.program = program.resolve()
        self.folder = folder
        self._began = time.monotonic()
        self._cpu_ticks = steal_and_total_ticks()
        self._machine = None

    def entry(self, data):
        """Returns the form in which the results of a section are stored."""
        return {"measured": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "seconds": round(time.monotonic() - self._began),
                "disturbed": self.steal_share(), "machine": self.machine(), "data": data}

    def bench(self, *arguments):
        """Runs `sluice bench ARGUMENTS...` on this machine. Returns the content of its --json file."""
        out = self.folder / "bench.json"
        done = subprocess.run([self.program, "bench", *map(str, arguments), "--json", out], capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise CannotRun(f"sluice bench {' '.join(map(str, arguments))} exited with code {done.returncode}: {done.stderr.strip()[-400:]}")
        output = json.loads(out.read_text(encoding="utf-8"))
        self.record_machine(output)
        return output

    def record_machine(self, output):
        # The drivers of the peers have no reducer, so their facts lack the interface towards a reducer.
        if output.get("machine") and (self._machine is None or output["machine"]["nic"]):
            self._machine = output["machine"]

    def machine(self):
        if self._machine is None:
            self.bench("reduce", "--budget", "1ms", "-d", "f32", "-o", "sum")
        return self._machine

    def steal_share(self):
        """Returns the share of steal time in the processor time since the beginning: a hypervisor gave it to other guests."""
        steal, total = (now - before for now, before in zip(steal_and_total_ticks(), self._cpu_ticks))
        return steal / total if total else 0.0


class Run(Measurement):
    """The run of one section."""

    def __init__(self, arguments, folder):
        super().__init__(arguments.sluice, folder)
        self.programs = arguments.peers.resolve()
        self.rounds = 1 if arguments.brief else arguments.rounds
        self.brief = arguments.brief

    def sluice(self, reducers, options=()):
        return Sluice(self.program, reducers, options)

    def peer(self, name):
        return peer(name, self.programs)

    def network(self, workers, reducers, worker_rate, reducer_rate):
        """Returns a test network. Rates in bits per second; 0: no limit."""
        if reason := unavailable_reason():
            raise CannotRun(reason)
        hosts = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(reducers)] + ["ctl"]
        return TestNetwork(hosts, lambda host: "0" if host == "ctl" else rate_text(worker_rate if host[0] == "w" else reducer_rate))

    def loopback(self):
        return Loopback(private=unavailable_reason() is None)

    def pick(self, full, brief):
        return brief if self.brief else full

    def interleave(self, names, measure):
        """Calls measure(name), which returns a list of results, for each name in each round. Returns the results by name."""
        found = {name: [] for name in names}
        for number in range(self.rounds):
            for name in names:
                print(f"   round {number + 1}: {name}", flush=True)
                try:
                    results = measure(name)
                except (PeerError, SluiceFailed) as error:
                    raise CannotRun(str(error)) from error
                found[name] += results
                for result in results:
                    self.record_machine(result)
        return found

    def allreduce(self, network, workers, pool, size, iterations, warmup, *options):
        """Runs `sluice bench allreduce` at the workers. Returns the seconds of each operation out of place, and the number of wrong elements."""
        output = sluice_run.bench(network, self.program, "allreduce", workers, pool, self.folder,
                                  ["-b", size, "-e", size, "-n", iterations, "-w", warmup, "-c", 1, *options])
        self.record_machine(output)
        row = output["results"][0]
        return {"times": [1e-6 * t for t in row["out_of_place"]["iteration_times"]], "wrong": row["out_of_place"]["nwrong"] + row["in_place"]["nwrong"]}


def steal_and_total_ticks():
    ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def spread(values):
    """Returns median, p99 and count. Quantiles use the nearest rank, as in `sluice bench`."""
    ordered = sorted(values)
    rank = lambda p: ordered[max(0, math.ceil(p * len(ordered)) - 1)]  # noqa: E731
    return {"median": rank(0.5), "p99": rank(0.99), "count": len(ordered)}


def size_text(size):
    for unit, factor in (("MiB", MIB), ("KiB", 1024)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def rate_label(rate):
    return f"{rate / 1e9:g} Gb/s" if rate >= 1e9 else f"{rate / 1e6:g} Mb/s"


def markdown_table(head, rows):
    """Returns a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"
