#!/usr/bin/env python3
"""Kills replicas of a torchft job with SIGKILL, restarts each, and reports how long the job makes no progress.

Needs torch and torchft; SLUICE_LIBRARY names libsluice, and PYTHONPATH contains the package. Starts torchft's lighthouse and --replicas processes of one
rank on loopback. For each kill it measures the time from the kill until the first survivor notices it, from there until all survivors have
committed a step, how long the new replica takes to join (the longest configure() of a rank), and from its start to its first step. At the end
all replicas must have equal weights.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torchft_replica  # noqa: E402
from torchft.coordination import LighthouseServer  # noqa: E402

DEADLINE_S = 60
ENDLESS = 1 << 40


class Failed(Exception):
    pass


class Replica:
    """One process, and the events that it has sent."""

    def __init__(self, context, *arguments):
        self.events, sender = context.Pipe(duplex=False)
        self.received = []
        self.started = time.monotonic()
        self.process = context.Process(target=torchft_replica.run, args=(*arguments, sender), daemon=True)
        self.process.start()
        sender.close()

    def read(self):
        try:
            self.received.append(self.events.recv())
        except (EOFError, OSError):  # also a message that the kill has cut off
            self.events.close()

    def steps(self, since, ranks):
        """The committed steps of that many ranks."""
        return [e for e in self.received if e[0] == "step" and e[1] >= since and e[3] == ranks and e[4]]

    def first_sign(self, since):
        """When this replica noticed that another one was lost: a step failed, or it began to configure the next group."""
        signs = [e[1] for e in self.received if e[0] == "configured" or (e[0] == "step" and not e[4])]
        return min((t for t in signs if t >= since), default=None)


class Job:
    def __init__(self, options):
        self.options = options
        self.context = multiprocessing.get_context("forkserver")  # so that a restart does not import torch again
        # The server ignores a module that it does not find, and it does not get this program's sys.path.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        self.context.set_forkserver_preload(["torchft_replica"])
        self.last_step = self.context.RawValue("q", ENDLESS)
        self.lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=60_000, quorum_tick_ms=20,
                                           heartbeat_timeout_ms=options.heartbeat_timeout)
        self.address = f"http://127.0.0.1:{self.lighthouse.address().rpartition(':')[2]}"  # its own names the host
        self.replicas = [self.start(number) for number in range(options.replicas)]

    def start(self, number):
        return Replica(self.context, number, self.options.backend, self.address, self.last_step)

    def until(self, what, condition):
        """Reads events until `condition` returns a value other than None, and returns it."""
        deadline = time.monotonic() + DEADLINE_S
        while (value := condition()) is None:
            open_pipes = {replica.events: replica for replica in self.replicas if not replica.events.closed}
            for pipe in wait(list(open_pipes), timeout=1):
                open_pipes[pipe].read()
            if time.monotonic() > deadline:
                raise Failed(f"{what} did not happen within {DEADLINE_S} s: {[replica.received[-3:] for replica in self.replicas]}")
        return value

    def all_commit(self, replicas, since, ranks):
        """Returns when the last of the replicas had committed its first step of that many ranks since then, or None."""
        firsts = [next(iter(replica.steps(since, ranks)), None) for replica in replicas]
        return None if None in firsts else max(step[1] for step in firsts)

    def kill(self, number):
        """Kills a replica and starts it again. Returns the times in seconds."""
        ranks = len(self.replicas)
        self.replicas[number].process.kill()
        killed = time.monotonic()
        self.replicas[number].process.join()
        survivors = [replica for replica in self.replicas if replica is not self.replicas[number]]
        good = self.until("a step of the survivors", lambda: self.all_commit(survivors, killed, ranks - 1))
        detected = min(sign for replica in survivors if (sign := replica.first_sign(killed)) is not None)
        self.replicas[number] = self.start(number)
        started = self.replicas[number].started
        whole = self.until("a step of all replicas", lambda: self.all_commit(self.replicas, started, ranks))
        joins = [e[2] - e[1] for replica in self.replicas for e in replica.received if e[0] == "configured" and e[1] >= started and e[3] == ranks]
        for replica in self.replicas:
            del replica.received[:-10]
        return {"detected": detected - killed, "good_step": good - detected, "join": max(joins), "first_step": whole - started}

    def end(self):
        """Lets all replicas end at one step. Returns the hash of their weights."""
        steps = self.until("a step", lambda: [r.received[-1][2] for r in self.replicas] if all(r.received[-1][0] == "step" for r in self.replicas) else None)
        self.last_step.value = max(steps) + 50
        hashes = self.until("the end", lambda: [r.received[-1][1] for r in self.replicas] if all(r.received[-1][0] == "weights" for r in self.replicas) else None)
        for replica in self.replicas:
            replica.process.join(DEADLINE_S)
            if replica.process.exitcode != 0:
                raise Failed(f"a replica exited with {replica.process.exitcode}")
        if len(set(hashes)) != 1:
            raise Failed(f"the weights differ: {hashes}")
        return hashes[0], self.last_step.value

    def stop(self):
        for replica in self.replicas:
            replica.process.kill()
        self.lighthouse.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--backend", choices=torchft_replica.BACKENDS, default="sluice")
    parser.add_argument("--heartbeat-timeout", type=int, default=1000, help="milliseconds after which the lighthouse takes a silent replica for lost")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    job = Job(options)
    try:
        job.until("a step of all replicas", lambda: job.all_commit(job.replicas, 0, options.replicas))
        times = []
        for kill in range(options.kills):
            times.append(job.kill(chosen.randrange(options.replicas)))
            print(kill + 1, " ".join(f"{name} {1000 * value:.0f} ms" for name, value in times[-1].items()), flush=True)
        weights, steps = job.end()
    finally:
        job.stop()
    summary = {name: {"median_ms": round(1000 * statistics.median(t[name] for t in times)), "max_ms": round(1000 * max(t[name] for t in times))}
               for name in times[0]}
    result = {"command": " ".join(["bench/chaos/torchft_chaos.py", *sys.argv[1:]]), "cpus": os.cpu_count(), "torch": torchft_replica.torch.__version__,
              "backend": options.backend, "replicas": options.replicas, "kills": len(times), "heartbeat_timeout_ms": options.heartbeat_timeout,
              "seed": options.seed, "steps": steps, "weights": weights, "times": summary}
    print(json.dumps(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
