"""Defines the jobs of chaos.py and rolling.py. A job reports its stalls, whether it runs, and at its end whether all results were
correct."""

import json
import os
import re
import signal
import subprocess
import threading
import time

from processes import Failed, child_resources

# Log lines that report the length of a stall in ms.
LIBRARY_STALL = re.compile(r"session resumed after (\d+) ms")
PLUGIN_STALL = re.compile(r"NET/SLUICE: \w+ rank \d+: session resumed after (\d+) ms")
COLOCATED = ("auto", "off", "always")  # values of SLUICE_COLOCATED
EPOCH = re.compile(r"^epoch +(\d+)/(\d+) ")


class ProcessOutput:
    """Starts a process and reads its output in threads."""

    def __init__(self, command, stall_pattern, stalls, env=None):
        self.stalls, self._stall_pattern = stalls, stall_pattern
        self.lines, self.notes, self.epoch = [], [], 0  # notes: lines on stderr
        self.first_row = None  # time of the first progress line
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="replace", env={**os.environ, **(env or {})})
        self._readers = [threading.Thread(target=self._read, args=(stream, lines), daemon=True)
                         for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.notes))]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, lines):
        for line in stream:
            if lines is self.lines and not line.startswith("#") and self.first_row is None:
                self.first_row = time.monotonic()
            lines.append(line.rstrip())
            if found := self._stall_pattern.search(line):
                self.stalls.append(int(found[1]))
            if found := EPOCH.match(line):
                self.epoch = int(found[1])

    def wait(self):
        code = self.process.wait(timeout=300)  # the time of a whole training
        for reader in self._readers:
            reader.join(timeout=5)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Job:
    """Base class of the jobs."""

    sessions = 1  # number of sessions at each reducer
    late_threads = 3  # threads that a session may start after the first quarter of a run: heartbeats, reconnection, recovery
    can_change_pool = False  # whether the pool may change while the job runs
    can_share_hosts = False  # whether several workers may share a host

    def __init__(self, pool, options, folder):
        self.options, self.folder = options, folder
        self.sessions *= options.ranks_per_host  # a rail for each of them
        self.stalls, self.output = [], None
        self.runs = 0  # number of completed and correct runs
        if self.can_change_pool:
            self.set_pool(pool)
            self.addresses = f"@{folder / 'pool'}"
        else:
            self.addresses = ",".join(r.address for r in pool)

    def set_pool(self, pool):
        """Replaces the pool file atomically."""
        temporary = self.folder / "pool.new"
        temporary.write_text("".join(f"{r.address}\n" for r in pool))
        temporary.rename(self.folder / "pool")

    def start(self):
        raise NotImplementedError

    def start_process(self, *command, stall_pattern=LIBRARY_STALL, env=None):
        self.output = ProcessOutput(command, stall_pattern, self.stalls, {"SLUICE_COLOCATED": self.options.colocated, **(env or {})})

    def failure(self, message):
        return Failed(f"{message}: " + " | ".join((self.output.lines[-2:] + self.output.notes)[-8:]))

    def check(self):
        """Raises Failed when the job has ended."""
        if self.output.process.poll() is not None:
            raise self.failure(f"the job exited with code {self.output.process.returncode}")

    def has_new_run(self):
        """Returns True when a new run has just started. It must run on all reducers before the next event."""
        return False

    def finish(self):
        """Ends the job in an orderly way. Raises Failed when a result was wrong."""
        self.check()
        self.stop()
        if (code := self.output.wait()) != 0:
            raise self.failure(f"the job exited with code {code}")
        self.runs += 1

    def stop(self):
        raise NotImplementedError

    def result(self):
        return None

    def longest_rounds(self, events):
        return []

    def worker_resources(self):
        """Returns the current resources of each rank. The ranks of every job are children of one process."""
        return child_resources(self.output.process.pid)

    def log(self):
        return self.output.lines + self.output.notes if self.output else []

    def kill(self):
        if self.output:
            self.output.kill()


class Soak(Job):
    """random operations with libsluice; every rank checks every result"""

    late_threads = 1  # long runs start most threads in the first quarter
    can_change_pool = True
    can_share_hosts = True

    def start(self):
        o = self.options
        self.start_process(o.sluice, "bench", "soak", "--duration", "0", "--interval", f"{getattr(o, 'bucket_ms', 100)}ms",
                           "--json", self.folder / "soak.json", "--connect", self.addresses, "--workers", o.workers, "--seed", o.seed,
                           "--ranks-per-host", o.ranks_per_host,
                           "--max-size", o.max_size, *o.soak)

    def set_pool(self, pool):
        super().set_pool(pool)
        if self.output:  # without the signal, the ranks read the file once per second
            self.output.process.send_signal(signal.SIGHUP)

    def stop(self):
        self.output.process.send_signal(signal.SIGINT)

    def result(self):
        path = self.folder / "soak.json"
        return json.loads(path.read_text()) if path.exists() else None

    def longest_rounds(self, events):
        """Returns for each event (a time; in order) the longest round in ms until the next event, an upper bound of all stalls."""
        rows = self.result()["results"]
        began = self.output.first_row - rows[0]["seconds"]
        ends = [began + row["seconds"] for row in rows]
        return [max((row["longest_round_ms"] for row, begin, end in zip(rows, [began, *ends], ends) if end > event and begin < after), default=0)
                for event, after in zip(events, [*events[1:], float("inf")])]


class Player(Job):
    """the program that acts as NCCL for the plugin; random collectives, checks of all results and of late writes"""

    can_change_pool = True  # reads the file once per second

    def start(self):
        o = self.options
        self.start_process(o.player, o.plugin, "--scenario", "until-stopped", "--ranks", o.workers, "--seconds", 7 * 86400, stall_pattern=PLUGIN_STALL,
                           env={"SLUICE_REDUCERS": self.addresses, "SLUICE_IFNAME": "lo", "SLUICE_NET": "always"})

    def stop(self):
        self.output.process.stdin.close()


class Digits(Job):
    """the digits job with libsluice in repeated trainings; the first one has no faults, and all others must reach the same weights"""

    stall_pattern = LIBRARY_STALL

    def __init__(self, pool, options, folder):
        super().__init__(pool, options, folder)
        self._json = folder / "digits.json"
        self._hash, self._is_new_run = None, False

    def start(self):
        self._train()
        self.output.process.wait(timeout=600)
        self.check()

    def _train(self):
        self.start_process(self.options.sluice, "demo", "digits", "--connect", self.addresses, "--workers", self.options.workers, "--epochs",
                           self.options.epochs, "--seed", self.options.seed, "--json", self._json, *self.extra_options(),
                           stall_pattern=self.stall_pattern, env={"NCCL_DEBUG": "WARN"})
        self._is_new_run = True

    def extra_options(self):
        return ()

    def has_new_run(self):
        # Lets a training near its end finish, because an event during the leave is a different case.
        if self.output.process.poll() is None and self.output.epoch > self.options.epochs * 0.85:
            try:
                self.output.process.wait(timeout=60)
            except subprocess.TimeoutExpired as expired:
                raise self.failure("the job did not exit within 60 s") from expired
        self.check()
        is_new_run, self._is_new_run = self._is_new_run, False
        return is_new_run

    def _check_result(self):
        code = self.output.wait()
        if code != 0:
            raise self.failure(f"the job exited with code {code}")
        result = json.loads(self._json.read_text())
        if self._hash is None:
            self._hash = result["weights_hash"]
        elif result["weights_hash"] != self._hash:
            raise self.failure(f"the weights have the hash {result['weights_hash']}; expected {self._hash} as without faults")
        self.runs += 1

    def check(self):
        if self.output.process.poll() is not None:
            self._check_result()
            self._train()

    def finish(self):
        self._check_result()

    def result(self):
        return {"weights_hash": self._hash, "epochs": self.options.epochs, "trainings": self.runs}


class DigitsThroughPlugin(Digits):
    """the digits job with the NCCL plugin for gradients; its other messages use libsluice"""

    sessions = 2
    stall_pattern = PLUGIN_STALL

    def extra_options(self):
        return "--through-plugin", "--plugin", self.options.plugin


KINDS = {"soak": Soak, "player": Player, "digits": Digits, "digits-plugin": DigitsThroughPlugin}
