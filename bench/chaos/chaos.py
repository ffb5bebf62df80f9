#!/usr/bin/env python3
"""Injects faults into the reducers of a running job and reports the effects on the job.

Starts a pool on loopback and a job with it (jobs.py): `sluice bench soak`, the digits job, or the NCCL plugin with the digits job
or with the program that acts as NCCL. All results of a job are checked. Then injects --events faults, one after another: kills
and restarts a reducer, stops and continues it, drains and restarts it, resets its connections, corrupts or delays bytes on them,
or adds a reducer to the pool. With more than --reducers + 1 reducers in the pool, the oldest one is removed. With --colocated always
the ranks reduce by themselves while no reducer is left, so kill-all may kill the whole pool, and no event waits for another reducer.

--seed determines the sequence of faults and is printed. It does not determine the timing.
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
from jobs import COLOCATED, KINDS  # noqa: E402
from processes import Failed, expect_freed, start_pool, stall_summary, wait_until  # noqa: E402

EVENTS = ("kill", "kill-two", "kill-all", "stop", "drain", "cut", "corrupt", "flip", "delay", "add")
BAD_FRAME = "connection closed for a malformed frame"


class Chaos:
    """One run: the pool, the job, and the faults."""

    def __init__(self, program, folder, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.counts = dict.fromkeys(EVENTS, 0)
        self.killed = 0
        self.event_times = []
        self.flipped = None  # numbers of flipped and detected bits
        has_relays = any(e in ("cut", "corrupt", "flip", "delay") for e in options.of)
        timeouts = ["--peer-timeout", f"{options.peer_timeout_ms}ms", "--heartbeat", f"{options.peer_timeout_ms // 10}ms"]
        self.start_pool = lambda count, first=0: start_pool(count, program, folder, timeouts, has_relays, first)
        self.reducers, self.baselines = self.start_pool(options.reducers)
        self.workers = []  # (run of the job, number of reducers, resources of each worker) while the job runs on all reducers
        self.job = KINDS[options.job](self.reducers, options, folder)

    def runs_on_all_reducers(self):
        self.job.check()
        if not all(self.in_use(r) for r in self.reducers):
            return False
        resources = self.job.worker_resources()
        if len(resources) == self.options.workers:
            self.workers.append((self.job.runs, len(self.reducers), resources))
        return True

    def in_use(self, reducer):
        return reducer.in_use(self.job.sessions)

    def wait_for_other_reducer(self, victims):
        """Waits until the job runs on a reducer outside of `victims`, because a session without co-located reducers ends with its last
        reducer."""
        if self.options.colocated != "always" and not any(self.in_use(r) for r in self.reducers if r not in victims):
            wait_until("the job runs on all reducers before the next event", self.runs_on_all_reducers)

    def kill(self, victims):
        self.wait_for_other_reducer(victims)
        for r in victims:
            r.process.kill()
            self.killed += 1
        for r in victims:
            r.process.wait()
            r.start()

    def detected_frames(self):
        """Returns the number of corrupt frames that reducers and ranks have detected."""
        closed = [wait_until(f"{r.name} answers", r.status)["closed"] for r in self.reducers]
        return sum(n for reasons in closed for reason, n in reasons.items() if reason.startswith("bad_")) + sum(BAD_FRAME in n for n in self.job.log())

    def flip(self, reducer):
        """Flips one bit and waits until it is detected. The counters require that no reducer ends during the run."""
        before = reducer.relay.flips
        seed = self.random.randrange(1 << 30)
        wait_until("the relay flips a bit", lambda: reducer.relay.flip(seed, before))
        flips = sum(r.relay.flips for r in self.reducers)
        wait_until(f"flipped bit {flips} is detected", lambda: (self.job.check(), self.detected_frames() == flips)[1])

    def add(self):
        """Adds a new reducer to the pool and waits until the job uses it. If the pool is too large, removes the oldest reducer."""
        (new,), baselines = self.start_pool(1, self.options.reducers + self.counts["add"])
        self.reducers.append(new)
        self.baselines += baselines
        self.job.set_pool(self.reducers)
        wait_until(f"the job runs on the new reducer {new.name}", lambda: (self.job.check(), self.in_use(new))[1])
        if len(self.reducers) <= self.options.reducers + 1:
            return
        self.job.set_pool(self.reducers[1:])
        expect_freed(self.reducers[:1], self.baselines[:1])
        self.reducers[0].drain()
        self.reducers.pop(0).kill()
        self.baselines.pop(0)

    def inject(self, event):
        r = self.random.choice(self.reducers)
        pause = self.random.uniform(0, 0.3)
        self.event_times.append(time.monotonic())
        if event == "kill":
            self.kill([r])
        elif event == "kill-two":
            most = len(self.reducers) - (self.options.colocated != "always")
            self.kill(self.random.sample(self.reducers, min(2, most)))
        elif event == "kill-all":
            self.kill(self.reducers)
        elif event == "stop":
            self.wait_for_other_reducer([r])
            r.process.send_signal(signal.SIGSTOP)
            # Either longer than the peer timeout, so that the job continues without the reducer, or shorter.
            is_removed = self.random.random() < 0.5
            time.sleep(self.options.peer_timeout_ms / 1000 * (2.0 if is_removed else 0.4))
            r.process.send_signal(signal.SIGCONT)
            if is_removed:  # the reducer still has an outdated session
                wait_until(f"{r.name} drops the session that continued without it", lambda: not self.in_use(r))
        elif event == "drain":
            self.wait_for_other_reducer([r])
            r.drain()
            r.start()
        elif event == "cut":
            r.relay.reset_connections(self.random.randrange(1 << 30))
        elif event == "corrupt":
            r.relay.corrupt_any(self.random.randrange(1 << 30))
        elif event == "flip":
            self.flip(r)
        elif event == "delay":
            r.relay.delay(self.random.uniform(0.05, 0.5))
        elif event == "add":
            self.add()
        self.counts[event] += 1
        time.sleep(pause)

    def run(self):
        self.job.start()
        for number in range(self.options.events):
            event = self.random.choice(self.options.of)
            if number == 0 or self.job.has_new_run():
                wait_until(f"the job runs on all reducers before event {number}, {event}", self.runs_on_all_reducers)
            self.inject(event)
            self.job.check()
            # In some cases the next event happens before the job has recovered from this one.
            if self.random.random() < 0.8 or event in ("kill-two", "kill-all", "stop"):
                wait_until(f"the job runs on all reducers again after event {number}, {event}", self.runs_on_all_reducers)
            if self.options.progress and (number + 1) % 50 == 0:
                print(f"# {number + 1} events, {self.killed} reducers killed, stalls {stall_summary(self.job.stalls)}", file=sys.stderr)
        wait_until("the job runs on all reducers at the end", self.runs_on_all_reducers)
        if self.options.of == ["flip"]:
            self.flipped = {"flips": sum(r.relay.flips for r in self.reducers), "found": self.detected_frames(),
                            "resumed": sum(wait_until(f"{r.name} answers", r.status)["resumes"]["lane"] for r in self.reducers)}
        self.job.finish()
        expect_freed(self.reducers, self.baselines)
        self.expect_no_growth()

    def expect_no_growth(self):
        """Compares the resources of the workers at the end of each run with those after a quarter of the events. By then most lazy
        parts have started (threads for heartbeats, reconnection and recovery)."""
        if not self.workers:
            raise Failed("cannot read the resources of the workers from /proc")
        sessions = self.job.sessions
        limits = {"descriptors": self.options.reducers * sessions, "threads": self.job.late_threads * sessions, "resident_bytes": self.options.max_growth_mib << 20}
        groups = {}
        for run, reducers, resources in self.workers:
            groups.setdefault((run, reducers), []).append(resources)
        for samples in groups.values():
            for rank, (early, last) in enumerate(zip(samples[len(samples) // 4], samples[-1])):
                for resource, limit in limits.items():
                    if last[resource] > early[resource] + limit:
                        raise Failed(f"worker {rank} has {last[resource]} {resource}; after a quarter of the events it had {early[resource]}")

    def stop(self):
        self.job.kill()
        for r in self.reducers:
            r.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="sluice", help="the sluice program")
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults; 0: random")
    parser.add_argument("--events", type=int, default=50, help="number of events")
    parser.add_argument("--of", default="kill", help=f"comma-separated kinds of events, of {','.join(EVENTS)}; all: all that the job and --colocated allow, but flip")
    parser.add_argument("--job", choices=KINDS, default="soak", help="; ".join(f"{name}: {kind.__doc__}" for name, kind in KINDS.items()))
    parser.add_argument("--player", help="the program that acts as NCCL (target sluice_nccl_player)")
    parser.add_argument("--plugin", help="libnccl-net-sluice.so; default: in ../lib of the sluice program")
    parser.add_argument("--epochs", type=int, default=500, help="epochs of one training of the digits job")
    parser.add_argument("--workers", type=int, default=3, help="number of workers of the job")
    parser.add_argument("--ranks-per-host", type=int, default=1, help="number of workers that share a host (job soak)")
    parser.add_argument("--reducers", type=int, default=3, help="number of reducers of the pool")
    parser.add_argument("--colocated", choices=COLOCATED, default="auto", help="the workers' SLUICE_COLOCATED")
    parser.add_argument("--max-size", default="1M", help="largest operation of the soak job")
    parser.add_argument("--peer-timeout-ms", type=int, default=1000, help="peer timeout: time without a message after which a reducer counts as lost")
    parser.add_argument("--max-growth-mib", type=int, default=16, help="limit of the growth of a worker's resident memory in the last three quarters of a run")
    parser.add_argument("--soak", action="append", default=[], metavar="OPTION", help="additional option of `sluice bench soak`; repeatable")
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("--progress", action="store_true", help="print progress to stderr every 50 events")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs and print its path")
    options = parser.parse_args()
    can_change_pool, needs_no_pool = KINDS[options.job].can_change_pool, options.colocated == "always"
    excluded = {"flip"} | (set() if can_change_pool else {"add"}) | (set() if needs_no_pool else {"kill-all"})
    options.of = [e for e in EVENTS if e not in excluded] if options.of == "all" else options.of.split(",")
    if wrong := [e for e in options.of if e not in EVENTS]:
        parser.error(f"no event {wrong[0]}; the events are {', '.join(EVENTS)}")
    if "flip" in options.of and set(options.of) & {"kill", "kill-two", "kill-all", "drain", "corrupt", "add"}:
        parser.error("flip cannot be combined with kill, kill-two, kill-all, drain, corrupt or add, because it counts detected frames")
    if "add" in options.of and not can_change_pool:
        parser.error(f"the job {options.job} does not support add: it restarts at any time, and its ranks must then read the same list")
    if options.ranks_per_host < 1 or options.workers <= options.ranks_per_host:
        parser.error("--ranks-per-host: expected 1 or more, and fewer than --workers: the workers of one host need no reducer")
    if options.ranks_per_host > 1 and not KINDS[options.job].can_share_hosts:
        parser.error(f"the workers of the job {options.job} have hosts of their own")
    if "kill-all" in options.of and not needs_no_pool:
        parser.error("kill-all needs --colocated always: a job without co-located reducers ends with its last reducer")
    if options.reducers < (1 if needs_no_pool else 2):
        parser.error("expected at least 2 reducers, or 1 with --colocated always: a job cannot recover from the loss of its last reducer")
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
            chaos.stop()
    job = chaos.job if chaos else None
    stalls = sorted(job.stalls) if job else []
    rounds = sorted(job.longest_rounds(chaos.event_times)) if job and not error else []
    result = {"schema": "sluice.chaos/1", "seed": options.seed, "job": options.job, "colocated": options.colocated, "events": chaos.counts if chaos else {},
              "killed": chaos.killed if chaos else 0, "error": error, "jobs": job.runs if job else 0, "stalls_ms": stalls, "longest_rounds_ms": rounds,
              "flipped": chaos.flipped if chaos else None, "workers": [resources for _, _, resources in chaos.workers] if chaos else [], options.job: job.result() if job else None}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    print(f"seed {options.seed}: {sum(result['events'].values())} events, {result['killed']} reducers killed, {result['jobs']} correct jobs, stalls {stall_summary(stalls)}"
          + (f"; longest round of operations after an event {stall_summary(rounds)}" if rounds else "") + (f"; FAILED: {error}" if error else ""))
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
