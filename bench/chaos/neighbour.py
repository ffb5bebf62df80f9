#!/usr/bin/env python3
"""A job whose every sum is checked, and a model in training, beside strangers and jobs that break the protocol in every state.

The pool has a key. Strangers have no token; neighbours have that of another job. Both are written from the protocol alone
(protocol_client.py), and act in an order that the seed decides. Counted and measured: wrong sums, jobs that end, the longest round of the
checked job in each second before and during the attack, the reducers' memory and descriptors, and the longest turn of their control loops.
Exit code 1: a sum was wrong, a job ended, a reducer did not answer, grew beyond --max-growth, or kept what it had taken."""

import argparse
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import protocol_client as protocol
from acts import ACTS, JOB, NEIGHBOUR, STRANGERS, attack
from processes import Failed, descriptors, start_pool, wait_until

MODEL_JOB = "islands"


class Run:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.attackers, self.processes, self.samples = [], [], []
        self.reducers = []
        self.trainings, self.weights = 0, None  # of the model: completed ones, and what the first one reached
        key = folder / "pool.key"
        subprocess.run([options.sluice, "keygen", "--out", key], check=True, capture_output=True)
        self.key = bytes.fromhex(key.read_text().split()[0])
        os.environ["SLUICE_KEY_FILE"] = str(key)  # for the checked jobs, and the queries of the status
        settings = ["--memory-limit", options.memory_limit, "--handshake-timeout", "5s"]
        self.reducers, self.baselines = start_pool(options.reducers, options.sluice, folder, settings)
        stores, _ = start_pool(1, options.sluice, folder, [*settings, "--state", folder / "state"], first=options.reducers)
        self.reducers += stores
        self.baselines += [wait_until("the store has started", stores[0].steady_resources)]
        self.memory = [resident(r) for r in self.reducers]

    def start_jobs(self):
        pool = ",".join(r.address for r in self.reducers)
        with open(self.folder / "soak.log", "w") as log:
            self.soak = subprocess.Popen([self.options.sluice, "bench", "soak", "--duration", "0", "--interval", "1s", "--connect", pool, "--job", JOB,
                                          "--workers", str(self.options.workers), "--max-size", "256K", "--json", self.folder / "soak.json",
                                          "--seed", str(self.options.seed)], stdout=log, stderr=log)
        self.processes.append(self.soak)
        self.start_training()
        wait_until("the checked job runs", lambda: all(r.in_use(1) for r in self.reducers[:-1]) or self.soak.poll() is not None)

    def start_training(self):
        with open(self.folder / "model.log", "w") as log:
            self.training = subprocess.Popen([self.options.sluice, "demo", "outer-steps", "--reducers", self.reducers[-1].address, "--job", MODEL_JOB,
                                              "--workers", "2", "--epochs", "5", "--json", self.folder / "model.json"], stdout=log, stderr=log)
        self.processes.append(self.training)

    def check_jobs(self):
        if self.soak.poll() is not None:
            raise Failed(f"the checked job ended with exit code {self.soak.returncode}: {(self.folder / 'soak.log').read_text()[-600:]}")
        if (code := self.training.poll()) is not None:
            if code != 0:
                raise Failed(f"the training ended with exit code {code}: {(self.folder / 'model.log').read_text()[-600:]}")
            weights = json.loads((self.folder / "model.json").read_text())["weights_hash"]
            self.weights = self.weights or weights
            if weights != self.weights:
                raise Failed(f"a training has the weights {weights}, the first had {self.weights}")
            self.trainings += 1
            self.processes.remove(self.training)
            self.start_training()

    def sample(self):
        self.samples.append([(resident(r), descriptors(r.process.pid)) for r in self.reducers])

    def during(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check_jobs()
            self.sample()
            time.sleep(0.2)

    def run(self):
        o = self.options
        self.start_jobs()
        began = time.monotonic()
        self.during(max(2.0, o.duration_s / 5))
        quiet = time.monotonic() - began
        results = multiprocessing.Queue()
        addresses = [r.address for r in self.reducers]
        for number in range(o.attackers):
            attacker = multiprocessing.Process(target=attack, args=(addresses, o.seed + number, o.held, protocol.job_token(self.key, NEIGHBOUR), o.of, results))
            attacker.start()
            self.attackers.append(attacker)
        self.during(o.duration_s)
        for attacker in self.attackers:
            attacker.terminate()
        counts = {}
        for _ in self.attackers:
            for key, count in results.get(timeout=60).items():
                counts[key] = counts.get(key, 0) + count
        for attacker in self.attackers:
            attacker.join(timeout=60)
        turns = [wait_until(f"{r.name} answers", r.status)["control"]["longest_turn_us"] / 1000 for r in self.reducers]
        self.check_jobs()
        self.soak.send_signal(signal.SIGINT)
        if (code := self.soak.wait(timeout=60)) != 0:
            raise Failed(f"the checked job ended with exit code {code}: {(self.folder / 'soak.log').read_text()[-600:]}")
        self.training.send_signal(signal.SIGINT)
        self.training.wait(timeout=60)
        self.expect_all_freed()
        soak = json.loads((self.folder / "soak.json").read_text())
        rows = soak["results"]
        before = [row["longest_round_ms"] for row in rows if row["seconds"] < quiet]
        beside = [row["longest_round_ms"] for row in rows if quiet + 1 <= row["seconds"] < quiet + o.duration_s]
        peak = [max(sample[i][0] for sample in self.samples) - self.memory[i] for i in range(len(self.reducers))]
        return {"acts": sum(counts.values()), "counts": dict(sorted(counts.items())), "nwrong": soak["nwrong"], "trainings": self.trainings,
                "longest_round_ms": {"before": summary(before), "beside": summary(beside)}, "growth_mib": [p >> 20 for p in peak],
                "kept_mib": [(resident(r) - m) >> 20 for r, m in zip(self.reducers, self.memory)],
                "descriptors": [max(sample[i][1] for sample in self.samples) for i in range(len(self.reducers))], "longest_turn_ms": turns}

    def expect_all_freed(self):
        for r, baseline in zip(self.reducers, self.baselines):
            try:
                wait_until(f"{r.name} frees everything", lambda r=r, baseline=baseline: r.resources() == baseline, 60)
            except Failed as failed:
                raise Failed(f"{failed}: {baseline} at first, {r.resources()} now") from failed

    def stop(self):
        for process in self.attackers:
            if process.is_alive():
                process.kill()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for r in self.reducers:
            r.kill()


def resident(reducer):
    status = Path(f"/proc/{reducer.process.pid}/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def summary(values):
    return {"median": statistics.median(values), "longest": max(values)} if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="sluice", help="the sluice program")
    parser.add_argument("--seed", type=int, default=0, help="seed of the acts; 0: random")
    parser.add_argument("--duration-s", type=float, default=60, help="time of the attack; a fifth of it passes before, without attack")
    parser.add_argument("--of", default="all", help=f"comma-separated acts, `strangers` or `all`. Acts: {', '.join(ACTS)}")
    parser.add_argument("--workers", type=int, default=4, help="workers of the checked job")
    parser.add_argument("--reducers", type=int, default=2, help="reducers of the checked job beside the one that keeps the model")
    parser.add_argument("--attackers", type=int, default=2, help="processes that misbehave")
    parser.add_argument("--held", type=int, default=1000, help="connections that each of them holds at most")
    parser.add_argument("--memory-limit", default="256M", help="of each reducer")
    parser.add_argument("--max-growth", type=int, default=512, metavar="MIB", help="limit of the growth of a reducer's resident memory")
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs and print its path")
    options = parser.parse_args()
    options.of = list(ACTS) if options.of == "all" else list(STRANGERS) if options.of == "strangers" else options.of.split(",")
    if wrong := [act for act in options.of if act not in ACTS]:
        parser.error(f"no act {wrong[0]}; the acts are {', '.join(ACTS)}")
    options.seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"# seed {options.seed}", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="sluice-neighbour-"))
    run, result, error = None, {}, None
    try:
        run = Run(options, folder)
        result = run.run()
        if result["nwrong"]:
            error = f"{result['nwrong']} wrong sums"
        elif max(result["growth_mib"]) > options.max_growth:
            error = f"a reducer grew by {max(result['growth_mib'])} MiB"
    except (Failed, subprocess.TimeoutExpired) as failed:
        error = str(failed)
    finally:
        if run:
            run.stop()
    result = {"schema": "sluice.neighbour/1", "seed": options.seed, "duration_s": options.duration_s, "error": error, **result}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    if not error:
        before, beside = (result["longest_round_ms"][when] for when in ("before", "beside"))
        print(f"seed {options.seed}: {result['acts']} acts, {result['nwrong']} wrong sums, {result['trainings']} trainings of the model; longest round of each second: "
              f"{before and round(before['median'])} ms before, {beside and round(beside['median'])} ms beside (longest {beside and round(beside['longest'])}); "
              f"memory + {max(result['growth_mib'])} MiB, + {max(result['kept_mib'])} after; {max(result['descriptors'])} descriptors; "
              f"longest turn {max(result['longest_turn_ms']):.1f} ms")
    else:
        print(f"seed {options.seed}: FAILED: {error}")
    if options.keep or error:
        print(f"# logs: {folder}", file=sys.stderr)
    else:
        subprocess.run(["rm", "-r", folder], check=True)
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
