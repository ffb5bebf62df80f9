#!/usr/bin/env python3
"""Does harm to the reducers of a running job, by a seed, and tells what the job noticed.

Starts a pool on loopback, a job over it (jobs.py: `sluice bench soak`, the digits job, or the NCCL plugin under either the digits job or the
program that plays NCCL; everything they compute is checked), and then one event after the other: a reducer is killed and started again,
stopped and woken, drained and started again; its connections are cut, bytes on them turned over, held up; a new one comes into the list,
and with one more than --reducers in it the one that was there longest goes. Ends after --events, asks the job to end, and counts.
Everything follows from --seed, which is printed; how processes and events fall in time does not.
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
from jobs import KINDS  # noqa: E402
from processes import Failed, expect_freed, quantiles, start_pool, until  # noqa: E402

EVENTS = ("kill", "kill-two", "stop", "drain", "cut", "corrupt", "flip", "delay", "add")
GIVEN_UP = "connection given up for a bad frame"


class Chaos:
    def __init__(self, program, folder, options):
        self.options = options
        self.choose = random.Random(options.seed)
        self.counts = dict.fromkeys(EVENTS, 0)
        self.killed = 0
        self.harmed = []  # when, of each event
        self.flipped = None  # bits turned over and found
        relayed = any(e in ("cut", "corrupt", "flip", "delay") for e in options.of)
        timeouts = ["--peer-timeout", f"{options.peer_timeout_ms}ms", "--heartbeat", f"{options.peer_timeout_ms // 10}ms"]
        self.start_pool = lambda count, first=0: start_pool(count, program, folder, timeouts, relayed, first)
        self.reducers, self.held = self.start_pool(options.reducers)
        self.workers = []  # what they hold each time that all is well, in which run of the job, over how many reducers
        self.job = KINDS[options.job](self.reducers, options, folder)

    def whole(self):
        """The job runs on all reducers."""
        self.job.check()
        if not all(self.in_use(r) for r in self.reducers):
            return False
        held = self.job.workers()
        if len(held) == self.options.workers:
            self.workers.append((self.job.runs, len(self.reducers), held))
        return True

    def in_use(self, reducer):
        return reducer.in_use(self.job.sessions)

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

    def found(self):
        """Damaged frames that either side has noticed."""
        closed = [until(f"{r.name} answers", r.status)["closed"] for r in self.reducers]
        return sum(n for reasons in closed for reason, n in reasons.items() if reason.startswith("bad_")) + sum(GIVEN_UP in n for n in self.job.log())

    def flip(self, reducer):
        """One bit of what passes there, which is to be found before there is another. Only where no reducer ends, since it counts."""
        before = reducer.relay.flips
        seed = self.choose.randrange(1 << 30)
        until("data passes", lambda: reducer.relay.flip(seed, before))
        flips = sum(r.relay.flips for r in self.reducers)
        until(f"flipped bit {flips} is found", lambda: (self.job.check(), self.found() == flips)[1])

    def add(self):
        """A new reducer comes into the list, and is used; the one that was in it longest leaves a pool that has got too large, and ends."""
        (new,), held = self.start_pool(1, self.options.reducers + self.counts["add"])
        self.reducers.append(new)
        self.held += held
        self.job.list(self.reducers)
        until(f"the job runs on {new.name}, which is new in the list", lambda: (self.job.check(), self.in_use(new))[1])
        if len(self.reducers) <= self.options.reducers + 1:
            return
        self.job.list(self.reducers[1:])
        expect_freed(self.reducers[:1], self.held[:1])
        self.reducers[0].drain()
        self.reducers.pop(0).end()
        self.held.pop(0)

    def one(self, event):
        r = self.choose.choice(self.reducers)
        pause = self.choose.uniform(0, 0.3)
        self.harmed.append(time.monotonic())
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
            if given_up:  # what it still has of the session is not the session
                until(f"{r.name} sees that the job went on without it", lambda: not self.in_use(r))
        elif event == "drain":
            self.spare_one([r])
            r.drain()
            r.start()
        elif event == "cut":
            r.relay.cut(self.choose.randrange(1 << 30))
        elif event == "corrupt":
            r.relay.corrupt(self.choose.randrange(1 << 30))
        elif event == "flip":
            self.flip(r)
        elif event == "delay":
            r.relay.hold(self.choose.uniform(0.05, 0.5))
        elif event == "add":
            self.add()
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
        if self.options.of == ["flip"]:
            self.flipped = {"flips": sum(r.relay.flips for r in self.reducers), "found": self.found(),
                            "resumed": sum(r.status()["resumes"]["lane"] for r in self.reducers)}
        self.job.finish()
        expect_freed(self.reducers, self.held)
        self.expect_no_growth()

    def expect_no_growth(self):
        """Of the workers, in each run of the job, from when most parts of them have been needed once (threads that watch, mend, survive losses)."""
        if not self.workers:
            raise Failed("what the workers hold could not be read from /proc")
        sessions = self.job.sessions
        bounds = {"descriptors": self.options.reducers * sessions, "threads": self.job.late_threads * sessions, "resident_bytes": self.options.max_growth_mib << 20}
        alike = {}
        for run, reducers, held in self.workers:
            alike.setdefault((run, reducers), []).append(held)
        for moments in alike.values():
            for rank, (then, now) in enumerate(zip(moments[len(moments) // 4], moments[-1])):
                for what, most in bounds.items():
                    if now[what] > then[what] + most:
                        raise Failed(f"worker {rank} has {now[what]} {what}, after a quarter of the events it had {then[what]}")

    def end(self):
        self.job.end()
        for r in self.reducers:
            r.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="sluice", help="the program")
    parser.add_argument("--seed", type=int, default=0, help="0: a random one, which is printed")
    parser.add_argument("--events", type=int, default=50)
    parser.add_argument("--of", default="kill", help=f"kinds of events, with commas between, of {','.join(EVENTS)}, or all (but flip, which counts, and add where the job keeps its list)")
    parser.add_argument("--job", choices=KINDS, default="soak", help="; ".join(f"{name}: {kind.__doc__}" for name, kind in KINDS.items()))
    parser.add_argument("--player", help="the program that plays NCCL (target sluice_nccl_player)")
    parser.add_argument("--plugin", help="libnccl-net-sluice.so; default: the one beside the program")
    parser.add_argument("--epochs", type=int, default=500, help="of one training of the digits job")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--reducers", type=int, default=3)
    parser.add_argument("--max-size", default="1M", help="largest operation of the soak")
    parser.add_argument("--peer-timeout-ms", type=int, default=1000, help="silence after which a reducer is given up")
    parser.add_argument("--max-growth-mib", type=int, default=16, help="most that a worker's resident memory may grow by in the last three quarters")
    parser.add_argument("--soak", action="append", default=[], metavar="OPTION", help="one more option of `sluice bench soak`")
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs, and name it")
    options = parser.parse_args()
    relists = KINDS[options.job].takes_new_lists
    options.of = [e for e in EVENTS if e != "flip" and (e != "add" or relists)] if options.of == "all" else options.of.split(",")
    if wrong := [e for e in options.of if e not in EVENTS]:
        parser.error(f"no event {wrong[0]}; there are {', '.join(EVENTS)}")
    if "flip" in options.of and set(options.of) & {"kill", "kill-two", "drain", "corrupt", "add"}:
        parser.error("flips are counted: not together with what ends reducers, or damages frames besides")
    if "add" in options.of and not relists:
        parser.error(f"add: the job {options.job} begins anew at any moment, and its ranks must all read the same list then")
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
    rounds = sorted(job.longest_rounds(chaos.harmed)) if job and not error else []
    result = {"schema": "sluice.chaos/1", "seed": options.seed, "job": options.job, "events": chaos.counts if chaos else {},
              "killed": chaos.killed if chaos else 0, "error": error, "jobs": job.runs if job else 0, "stalls_ms": stalls, "longest_rounds_ms": rounds,
              "flipped": chaos.flipped if chaos else None, "workers": [held for _, _, held in chaos.workers] if chaos else [], options.job: job.result() if job else None}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    print(f"seed {options.seed}: {sum(result['events'].values())} events, {result['killed']} reducers killed, {result['jobs']} jobs right, stalls {quantiles(stalls)}"
          + (f"; longest round of operations after an event {quantiles(rounds)}" if rounds else "") + (f"; FAILED: {error}" if error else ""))
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
