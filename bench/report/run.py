"""What the sections of a report share: programs, rounds, beds, and how quiet the machine was."""

import json
import math
import subprocess
from pathlib import Path

from bed import Bed, Loopback, rate_text, why_none
from peers import PeerError, Sluice, peer
from sluice_run import SluiceFailed

# Of a TCP segment with timestamps in an Ethernet frame of 1514 bytes: what a link's rate leaves for payload.
GOODPUT = 1448 / 1514
MIB = 1 << 20


class CannotRun(Exception):
    """Says why."""


class Run:
    def __init__(self, arguments, folder):
        self.program = arguments.sluice.resolve()
        self.programs = arguments.peers.resolve()
        self.rounds = 1 if arguments.brief else arguments.rounds
        self.brief = arguments.brief
        self.folder = folder
        self._stolen = stolen_and_all()
        self._machine = None

    def sluice(self, reducers, options=()):
        return Sluice(self.program, reducers, options)

    def peer(self, name):
        return peer(name, self.programs)

    def bed(self, workers, reducers, worker_rate, reducer_rate):
        """Links in bits per second; 0: no limit."""
        if reason := why_none():
            raise CannotRun(reason)
        hosts = [f"w{i}" for i in range(workers)] + [f"r{i}" for i in range(reducers)] + ["ctl"]
        return Bed(hosts, lambda host: "0" if host == "ctl" else rate_text(worker_rate if host[0] == "w" else reducer_rate))

    def loopback(self):
        return Loopback(apart=why_none() is None)

    def pick(self, full, brief):
        return brief if self.brief else full

    def in_turns(self, what, measure):
        """measure(name) -> list of results, for each name of `what`, in each round; the results of all rounds by name."""
        found = {name: [] for name in what}
        for number in range(self.rounds):
            for name in what:
                print(f"   round {number + 1}: {name}", flush=True)
                try:
                    results = measure(name)
                except (PeerError, SluiceFailed) as error:
                    raise CannotRun(str(error)) from error
                found[name] += results
                for result in results:
                    self.note_machine(result)
        return found

    def verb(self, *words):
        """JSON of `sluice bench WORDS...` on this machine."""
        out = self.folder / "verb.json"
        done = subprocess.run([self.program, "bench", *map(str, words), "--json", out], capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise CannotRun(f"sluice bench {' '.join(map(str, words))} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        told = json.loads(out.read_text(encoding="utf-8"))
        self.note_machine(told)
        return told

    def note_machine(self, told):
        # The peers' drivers know no reducer, so no interface towards one.
        if told.get("machine") and (self._machine is None or told["machine"]["nic"]):
            self._machine = told["machine"]

    def machine(self):
        if self._machine is None:
            self.verb("reduce", "--budget", "1ms", "-d", "f32", "-o", "sum")
        return self._machine

    def disturbed(self):
        """The part of this machine's processor time that the host gave to others since the run began."""
        stolen, everything = (now - then for now, then in zip(stolen_and_all(), self._stolen))
        return stolen / everything if everything else 0.0


def stolen_and_all():
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def ideal_seconds(size, worker_rate, reducer_rate, workers, reducers):
    """S up and S down at once, at the goodput of the narrower side: a worker's link, or its share of the pool's."""
    share = reducers * reducer_rate / workers
    return size * 8 / (GOODPUT * min(worker_rate, share))


def ring_seconds(size, worker_rate, workers):
    """2 (n - 1) / n x S each way: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009."""
    return 2 * (workers - 1) / workers * size * 8 / (GOODPUT * worker_rate)


def spread(values):
    """Median, p99 and number, by nearest rank as `sluice bench` does."""
    ordered = sorted(values)
    rank = lambda p: ordered[max(0, math.ceil(p * len(ordered)) - 1)]  # noqa: E731
    return {"median": rank(0.5), "p99": rank(0.99), "count": len(ordered)}


def size_text(size):
    for unit, factor in (("MiB", MIB), ("KiB", 1024)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def rate_words(rate):
    return f"{rate / 1e9:g} Gb/s" if rate >= 1e9 else f"{rate / 1e6:g} Mb/s"


def table(head, rows):
    """Markdown; cells are text."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"
