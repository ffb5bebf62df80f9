#!/usr/bin/env python3
"""Does harm to the reducers of a running job, by a seed, and tells what the job noticed.

Starts a pool on loopback, a job over it (jobs.py: `sluice bench soak`, the digits job, or the NCCL plugin under either the digits job or the
program that plays NCCL; everything they compute is checked), and then one event after the other: a reducer is killed and started again,
stopped and woken, drained and started again; its connections are cut, bytes on them turned over, held up. Ends after --events, asks the job
to end, and counts. Everything follows from --seed, which is printed; how processes and events fall in time does not.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from jobs import KINDS, Failed  # noqa: E402
from relay import Relay  # noqa: E402

EVENTS = ("kill", "kill-two", "stop", "drain", "cut", "corrupt", "delay")


def until(what, condition, deadline_s=60.0):
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        value = condition()
        if value is not None and value is not False:
            return value
        time.sleep(0.01)
    raise Failed(f"not within {deadline_s:.0f} s: {what}")


class Reducer:
    """A reducer on a port of its own, which it keeps over its restarts; workers reach it through a relay when connections are to be harmed."""

    def __init__(self, program, folder, name, options, relayed):
        self.program, self.folder, self.name, self.options = program, folder, name, options
        self.port, self.process, self.starts = 0, None, 0
        self.start()
        self.relay = Relay(f"127.0.0.1:{self.port}") if relayed else None
        self.address = self.relay.address if relayed else f"127.0.0.1:{self.port}"

    def start(self):
        self.starts += 1
        port_file = self.folder / f"{self.name}.port"
        port_file.unlink(missing_ok=True)

        def listens():
            # Connections of the one before may hold the port for a moment.
            if self.process is None or self.process.poll() is not None:
                with open(self.folder / f"{self.name}.log", "ab") as log:
                    self.process = subprocess.Popen([self.program, "reducer", "--listen", f"127.0.0.1:{self.port}", "--port-file", port_file,
                                                     *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            return port_file.exists() and port_file.read_text().strip()

        self.port = int(until(f"{self.name} listens", listens))

    def status(self):
        done = subprocess.run([self.program, "status", "--reducers", f"127.0.0.1:{self.port}", "--timeout", "2s"], capture_output=True, text=True,
                              timeout=10, check=False)
        try:
            return json.loads(done.stdout)[0]["status"]
        except (ValueError, KeyError, IndexError):
            return None

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Chaos:
    def __init__(self, program, folder, options):
        self.options = options
        self.choose = random.Random(options.seed)
        self.counts = dict.fromkeys(EVENTS, 0)
        self.killed = 0
        relayed = any(e in ("cut", "corrupt", "delay") for e in options.of)
        timeouts = ["--peer-timeout", f"{options.peer_timeout_ms}ms", "--heartbeat", f"{options.peer_timeout_ms // 10}ms"]
        self.reducers = [Reducer(program, folder, f"reducer-{i}", timeouts, relayed) for i in range(options.reducers)]
        self.job = KINDS[options.job](self.reducers, options, folder)

    def in_use(self, reducer):
        status = reducer.status()
        return status is not None and status["sessions"]["open"] == self.job.sessions and status["data"]["bytes_in"] > 0

    def whole(self):
        """The job runs on all reducers."""
        self.job.check()
        return all(self.in_use(r) for r in self.reducers)

    def spare_one(self, victims):
        """The last reducer of a session can't be outlived: waits until the job runs on one that is left."""
        if not any(self.in_use(r) for r in self.reducers if r not in victims):
            until("the job runs on all reducers before the next blow", self.whole)

    def kill(self, victims):
        self.spare_one(victims)
        for r in victims:
            r.process.kill()
            self.killed += 1
        for r in victims:
            r.process.wait()
            r.start()

    def one(self, event):
        r = self.choose.choice(self.reducers)
        pause = self.choose.uniform(0, 0.3)
        if event == "kill":
            self.kill([r])
        elif event == "kill-two":
            self.kill(self.choose.sample(self.reducers, min(2, len(self.reducers) - 1)))
        elif event == "stop":
            self.spare_one([r])
            r.process.send_signal(signal.SIGSTOP)
            # Longer than its silence is borne, so that the job goes on without it; or shorter.
            given_up = self.choose.random() < 0.5
            time.sleep(self.options.peer_timeout_ms / 1000 * (2.0 if given_up else 0.4))
            r.process.send_signal(signal.SIGCONT)
            if given_up:  # a process that a session has removed is not taken back: the next one is
                r.process.terminate()
                r.process.wait(timeout=60)
                r.start()
        elif event == "drain":
            self.spare_one([r])
            r.process.send_signal(signal.SIGTERM)
            code = r.process.wait(timeout=60)
            if code != 0:
                raise Failed(f"{r.name} drained with exit code {code}")
            r.start()
        elif event == "cut":
            r.relay.cut(self.choose.randrange(1 << 30))
        elif event == "corrupt":
            r.relay.corrupt(self.choose.randrange(1 << 30))
        elif event == "delay":
            r.relay.hold(self.choose.uniform(0.05, 0.5))
        self.counts[event] += 1
        time.sleep(pause)

    def run(self):
        self.job.start()
        for number in range(self.options.events):
            event = self.choose.choice(self.options.of)
            if number == 0 or self.job.fresh():
                until(f"the job runs on all reducers before event {number}, {event}", self.whole)
            self.one(event)
            self.job.check()
            # Now and then the next blow falls before the job has got over this one.
            if self.choose.random() < 0.8 or event in ("kill-two", "stop"):
                until(f"the job runs on all reducers again after event {number}, {event}", self.whole)
            if self.options.progress and (number + 1) % 50 == 0:
                print(f"# {number + 1} events, {self.killed} reducers killed, stalls {quantiles(self.job.stalls)}", file=sys.stderr)
        until("the job runs on all reducers at the end", self.whole)
        self.job.finish()

    def end(self):
        self.job.end()
        for r in self.reducers:
            if r.relay:
                r.relay.close()
            r.end()


def quantiles(stalls):
    if not stalls:
        return "none"
    s = sorted(stalls)
    return f"median {s[len(s) // 2]} ms, p99 {s[min(len(s) - 1, len(s) * 99 // 100)]} ms, longest {s[-1]} ms ({len(s)})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="sluice", help="the program")
    parser.add_argument("--seed", type=int, default=0, help="0: a random one, which is printed")
    parser.add_argument("--events", type=int, default=50)
    parser.add_argument("--of", default="kill", help=f"kinds of events, with commas between, of {','.join(EVENTS)}, or all")
    parser.add_argument("--job", choices=KINDS, default="soak", help="; ".join(f"{name}: {kind.__doc__}" for name, kind in KINDS.items()))
    parser.add_argument("--player", help="the program that plays NCCL (target sluice_nccl_player)")
    parser.add_argument("--plugin", help="libnccl-net-sluice.so; default: the one beside the program")
    parser.add_argument("--epochs", type=int, default=500, help="of one training of the digits job")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--reducers", type=int, default=3)
    parser.add_argument("--max-size", default="1M", help="largest operation of the soak")
    parser.add_argument("--peer-timeout-ms", type=int, default=1000, help="silence after which a reducer is given up")
    parser.add_argument("--soak", action="append", default=[], metavar="OPTION", help="one more option of `sluice bench soak`")
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs, and name it")
    options = parser.parse_args()
    options.of = list(EVENTS) if options.of == "all" else options.of.split(",")
    if wrong := [e for e in options.of if e not in EVENTS]:
        parser.error(f"no event {wrong[0]}; there are {', '.join(EVENTS)}")
    if options.reducers < 2:
        parser.error("with fewer than 2 reducers nothing can be survived")
    if options.job == "player" and not options.player:
        parser.error("the job player needs --player FILE")
    options.plugin = options.plugin or Path(options.sluice).resolve().parent.parent / "lib" / "libnccl-net-sluice.so"
    options.seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"# seed {options.seed}", file=sys.stderr)

    folder = Path(tempfile.mkdtemp(prefix="sluice-chaos-"))
    chaos, error = None, None
    try:
        chaos = Chaos(options.sluice, folder, options)
        chaos.run()
    except (Failed, subprocess.TimeoutExpired) as failed:
        error = str(failed)
    finally:
        if chaos:
            chaos.end()
    job = chaos.job if chaos else None
    stalls = sorted(job.stalls) if job else []
    result = {"schema": "sluice.chaos/1", "seed": options.seed, "job": options.job, "events": chaos.counts if chaos else {},
              "killed": chaos.killed if chaos else 0, "error": error, "jobs": job.runs if job else 0, "stalls_ms": stalls,
              options.job: job.result() if job else None}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    print(f"seed {options.seed}: {sum(result['events'].values())} events, {result['killed']} reducers killed, {result['jobs']} jobs right, stalls {quantiles(stalls)}"
          + (f"; FAILED: {error}" if error else ""))
    if options.keep or error:
        print(f"# logs: {folder}", file=sys.stderr)
        if chaos:
            (folder / "job.log").write_text("\n".join(job.log()))
    else:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
