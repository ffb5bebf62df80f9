"""The jobs that chaos.py does harm to. Each tells of its stalls, says whether it still runs, and at its end whether all it computed was right."""

import json
import os
import re
import signal
import subprocess
import threading
import time

from processes import Failed, hold_of_children

LIBRARY = re.compile(r"session goes on after (\d+) ms")
PLUGIN = re.compile(r"NET/SLUICE: \w+ rank \d+: session goes on after (\d+) ms")
EPOCH = re.compile(r"^epoch +(\d+)/(\d+) ")


class Output:
    """A process, its lines read as they come."""

    def __init__(self, command, stall, stalls, env=None):
        self.stalls, self._stall = stalls, stall
        self.lines, self.notes, self.epoch = [], [], 0
        self.first_row = None  # when the first row of progress came
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="replace", env={**os.environ, **(env or {})})
        self._readers = [threading.Thread(target=self._read, args=(stream, keep), daemon=True)
                         for stream, keep in ((self.process.stdout, self.lines), (self.process.stderr, self.notes))]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, keep):
        for line in stream:
            if keep is self.lines and not line.startswith("#") and self.first_row is None:
                self.first_row = time.monotonic()
            keep.append(line.rstrip())
            if found := self._stall.search(line):
                self.stalls.append(int(found[1]))
            if found := EPOCH.match(line):
                self.epoch = int(found[1])

    def wait(self):
        code = self.process.wait(timeout=300)  # a training runs to its end
        for reader in self._readers:
            reader.join(timeout=5)
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Job:
    sessions = 1  # that it has at each reducer
    late_threads = 3  # that a session of a rank may get after the first quarter of a run: to watch, to mend, to survive a loss
    takes_new_lists = False  # while it runs; else it has the first one to its end

    def __init__(self, pool, options, folder):
        self.options, self.folder = options, folder
        self.stalls, self.output = [], None
        self.runs = 0  # that ended, and were right
        if self.takes_new_lists:
            self.list(pool)
            self.addresses = f"@{folder / 'pool'}"
        else:
            self.addresses = ",".join(r.address for r in pool)

    def list(self, pool):
        """From now on these are its reducers."""
        beside = self.folder / "pool.new"
        beside.write_text("".join(f"{r.address}\n" for r in pool))
        beside.rename(self.folder / "pool")

    def start(self):
        raise NotImplementedError

    def begin(self, *command, stall=LIBRARY, env=None):
        self.output = Output(command, stall, self.stalls, env)

    def failed(self, what):
        return Failed(f"{what}: " + " | ".join((self.output.lines[-2:] + self.output.notes)[-8:]))

    def check(self):
        """Raises Failed when it has ended, or ended wrongly."""
        if self.output.process.poll() is not None:
            raise self.failed(f"the job ended with {self.output.process.returncode}")

    def fresh(self):
        """True when another run of it has just begun, which is not to be harmed before it runs on all reducers."""
        return False

    def finish(self):
        """Ends it in order. Raises Failed when something was wrong."""
        self.check()
        self.stop()
        if (code := self.output.wait()) != 0:
            raise self.failed(f"the job ended with {code}")
        self.runs += 1

    def stop(self):
        raise NotImplementedError

    def result(self):
        return None

    def longest_rounds(self, events):
        return []

    def workers(self):
        """What each rank holds now; all ranks of all kinds are children of one process."""
        return hold_of_children(self.output.process.pid)

    def log(self):
        return self.output.lines + self.output.notes if self.output else []

    def end(self):
        if self.output:
            self.output.end()


class Soak(Job):
    """Random operations through libsluice, every result of every rank checked."""

    late_threads = 1  # a run is long
    takes_new_lists = True

    def start(self):
        o = self.options
        self.begin(o.sluice, "bench", "soak", "--duration", "0", "--interval", f"{getattr(o, 'bucket_ms', 100)}ms", "--json", self.folder / "soak.json", "--connect", self.addresses, "--workers",
                   o.workers, "--seed", o.seed, "--max-size", o.max_size, *o.soak)

    def list(self, pool):
        super().list(pool)
        if self.output:  # else a second passes before it looks
            self.output.process.send_signal(signal.SIGHUP)

    def stop(self):
        self.output.process.send_signal(signal.SIGINT)

    def result(self):
        path = self.folder / "soak.json"
        return json.loads(path.read_text()) if path.exists() else None

    def longest_rounds(self, events):
        """Of each event (when it was, in order), the longest round in ms from then to the next: no stall was longer, whoever noticed it or not."""
        rows = self.result()["results"]
        began = self.output.first_row - rows[0]["seconds"]
        ends = [began + row["seconds"] for row in rows]
        return [max((row["longest_round_ms"] for row, begin, end in zip(rows, [began, *ends], ends) if end > event and begin < after), default=0)
                for event, after in zip(events, [*events[1:], float("inf")])]


class Player(Job):
    """The program that plays NCCL to the plugin: random collectives, every result of every rank checked, and that nothing is written late."""

    takes_new_lists = True  # looks once a second

    def start(self):
        o = self.options
        self.begin(o.player, o.plugin, "--scenario", "until-stopped", "--ranks", o.workers, "--seconds", 7 * 86400, stall=PLUGIN,
                   env={"SLUICE_REDUCERS": self.addresses, "SLUICE_IFNAME": "lo", "SLUICE_NET": "always"})

    def stop(self):
        self.output.process.stdin.close()


class Digits(Job):
    """The digits job through libsluice, trained over and over; the first training is left alone, and all others must come to its weights."""

    stall = LIBRARY

    def __init__(self, pool, options, folder):
        super().__init__(pool, options, folder)
        self._json = folder / "digits.json"
        self._hash, self._fresh = None, False

    def start(self):
        self._train()
        self.output.process.wait(timeout=600)
        self.check()

    def _train(self):
        self.begin(self.options.sluice, "demo", "digits", "--connect", self.addresses, "--workers", self.options.workers, "--epochs",
                   self.options.epochs, "--seed", self.options.seed, "--json", self._json, *self.more(), stall=self.stall, env={"NCCL_DEBUG": "WARN"})
        self._fresh = True

    def more(self):
        return ()

    def fresh(self):
        # A training that is about to end is left to end: leaving and a loss at the same moment are another matter.
        if self.output.process.poll() is None and self.output.epoch > self.options.epochs * 0.85:
            try:
                self.output.process.wait(timeout=60)
            except subprocess.TimeoutExpired as expired:
                raise self.failed("the job does not end") from expired
        self.check()
        was, self._fresh = self._fresh, False
        return was

    def _ended(self):
        code = self.output.wait()
        if code != 0:
            raise self.failed(f"the job ended with {code}")
        result = json.loads(self._json.read_text())
        if self._hash is None:
            self._hash = result["weights_hash"]
        elif result["weights_hash"] != self._hash:
            raise self.failed(f"the weights have the hash {result['weights_hash']}, undisturbed {self._hash}")
        self.runs += 1

    def check(self):
        if self.output.process.poll() is not None:
            self._ended()
            self._train()

    def finish(self):
        self._ended()

    def result(self):
        return {"weights_hash": self._hash, "epochs": self.options.epochs, "trainings": self.runs}


class DigitsThroughPlugin(Digits):
    """The same, its gradients through the NCCL plugin; what its ranks say to each other beside that goes through libsluice."""

    sessions = 2
    stall = PLUGIN

    def more(self):
        return "--through-plugin", "--plugin", self.options.plugin


KINDS = {"soak": Soak, "player": Player, "digits": Digits, "digits-plugin": DigitsThroughPlugin}
