#!/usr/bin/env python3
"""Restarts all reducers of a pool during a job, one after another, and reports the effects on the job.

A restart sends SIGTERM, waits for exit code 0, starts a new process at the same address, and waits until the job uses it. The
restarts repeat round-robin. With the soak job (--duration-s) the result contains the throughput in intervals of --bucket-ms: the
lowest value, and the recovery time after SIGTERM and after the new process listens. With the digits job the program trains once
without and once with restarts; the weights must be bit-identical.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from jobs import COLOCATED, Soak  # noqa: E402
from processes import Failed, expect_freed, start_pool, stall_summary, wait_until  # noqa: E402

RECOVERED = 0.9  # throughput has recovered at this share of the median before the restart


class Pool:
    """A pool whose reducers restart."""

    def __init__(self, program, folder, count):
        self.reducers, self.baselines = start_pool(count, program, folder, ["--peer-timeout", "5s", "--heartbeat", "500ms"])
        self.restarts = []

    def addresses(self):
        return ",".join(r.address for r in self.reducers)

    def restart(self, r, is_running):
        """Restarts a reducer. Returns False when the job ends before it uses the new process."""
        event = {"reducer": r.name, "term": time.monotonic()}
        r.drain()
        event["exited"] = time.monotonic()
        r.start()
        event["listens"] = time.monotonic()
        if not wait_until(f"the job uses {r.name} again", lambda: "ended" if not is_running() else r.in_use() and "in use") == "in use":
            return False
        event["back"] = time.monotonic()
        self.restarts.append(event)
        return True

    def kill(self):
        for r in self.reducers:
            r.kill()


def run_digits(options, folder, pool, result):
    return subprocess.Popen([options.sluice, "demo", "digits", "--workers", str(options.workers), "--epochs", str(options.epochs), "--json", result,
                             "--connect", pool.addresses()], stdout=subprocess.DEVNULL, stderr=open(folder / "digits.log", "ab"),
                            env={**os.environ, "SLUICE_COLOCATED": options.colocated})


def digits(options, folder, pool):
    """Doubles the epochs until the training is long enough to restart all reducers."""
    while (result := digits_with_restarts(options, folder, pool)) is None:
        options.epochs *= 2
    return result


def digits_with_restarts(options, folder, pool):
    """Trains once without and once with restarts, and compares weights and accuracy. Returns None when the training ended before all
    reducers were restarted."""
    reference, restarted = folder / "reference.json", folder / "restarted.json"
    if code := run_digits(options, folder, pool, reference).wait(timeout=600):
        raise Failed(f"the digits job exited with code {code}")
    job = run_digits(options, folder, pool, restarted)
    try:
        is_running = lambda: job.poll() is None
        wait_until("the digits job runs on all reducers", lambda: not is_running() or all(r.in_use() for r in pool.reducers))
        at = 0
        while is_running() and pool.restart(pool.reducers[at % len(pool.reducers)], is_running):
            at += 1
        code = job.wait(timeout=600)
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    if code:
        raise Failed(f"the digits job exited with code {code}: " + (folder / "digits.log").read_text()[-600:])
    if at < len(pool.reducers):
        return None
    a, b = json.loads(reference.read_text()), json.loads(restarted.read_text())
    for key in ("weights_hash", "held_out_accuracy", "weights_identical"):
        if a[key] != b[key]:
            raise Failed(f"{key} is {b[key]} with restarts, {a[key]} without")
    return {"weights_hash": b["weights_hash"], "held_out_accuracy": b["held_out_accuracy"]}


def soak(options, folder, pool):
    options.seed, options.soak, options.ranks_per_host = 1, [], 1
    job = Soak(pool.reducers, options, folder)
    job.start()
    try:
        wait_until("the soak job runs on all reducers", lambda: (job.check(), all(r.in_use() for r in pool.reducers))[1])
        workers = []
        begin = time.monotonic()
        at = 0
        time.sleep(options.pause_s)
        while time.monotonic() - begin < options.duration_s or at < len(pool.reducers):
            job.check()
            pool.restart(pool.reducers[at % len(pool.reducers)], lambda: job.output.process.poll() is None)
            at += 1
            time.sleep(options.pause_s)  # separates the effects of two restarts
            workers.append(job.worker_resources())
        job.finish()
    finally:
        job.kill()
    output = job.result()
    rows = output["results"]
    offset = job.output.first_row - rows[0]["seconds"]
    buckets = [(offset + b["seconds"], (b["bytes"] - a["bytes"]) / (b["seconds"] - a["seconds"])) for a, b in zip(rows, rows[1:])]
    return {"nwrong": output["nwrong"], "operations": output["total"]["operations"], "stalls_ms": sorted(job.stalls), "workers": [workers[0], workers[-1]],
            "throughput": [throughput(buckets, event, options.pause_s) for event in pool.restarts]}


def throughput(buckets, event, pause_s):
    """Returns the throughput around one restart in bytes per second (before, lowest, after) and the recovery times in seconds."""
    before = [rate for end, rate in buckets if event["term"] - pause_s < end <= event["term"]]
    after = [rate for end, rate in buckets if event["back"] < end <= event["back"] + pause_s]
    during = [rate for end, rate in buckets if event["term"] < end <= event["back"] + 0.3]
    median_before = statistics.median(before) if before else 0
    recovery = {}
    for start in ("term", "listens"):
        recovered = [end for end, rate in buckets if end > event[start] and rate >= RECOVERED * median_before]
        recovery[f"back_after_{start}_s"] = round(recovered[0] - event[start], 3) if recovered else None
    return {"before": median_before, "lowest": min(during) if during else None, "after": statistics.median(after) if after else None, **recovery,
            "pool_short_s": round(event["back"] - event["term"], 3)}


def summary(rows):
    def combine(key, function):
        values = [row[key] for row in rows if row[key] is not None]
        return function(values) if values else float("nan")
    ratio = [row["after"] / row["before"] for row in rows if row["before"] and row["after"]]
    return (f"GB/s before {combine('before', statistics.median) / 1e9:.3f}, lowest interval {combine('lowest', statistics.median) / 1e9:.3f}, after / before "
            f"{statistics.median(ratio) if ratio else float('nan'):.2f}; recovered after SIGTERM: median {combine('back_after_term_s', statistics.median):.2f} s, "
            f"longest {combine('back_after_term_s', max):.2f} s; after the new process listens: longest {combine('back_after_listens_s', max):.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="sluice", help="the sluice program")
    parser.add_argument("--job", choices=("soak", "digits"), default="soak")
    parser.add_argument("--reducers", type=int, default=3)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--duration-s", type=float, default=60, help="duration of the soak job; all reducers restart at least once")
    parser.add_argument("--pause-s", type=float, default=2, help="pause between two restarts")
    parser.add_argument("--bucket-ms", type=int, default=100, help="interval of the throughput measurement")
    parser.add_argument("--max-size", default="256K", help="largest operation of the soak job")
    parser.add_argument("--epochs", type=int, default=200, help="epochs of the digits job; doubled if it ends before all reducers have restarted")
    parser.add_argument("--colocated", choices=COLOCATED, default="auto", help="the workers' SLUICE_COLOCATED")
    parser.add_argument("--json", help="file for the result")
    options = parser.parse_args()
    if options.reducers < 2:
        parser.error("expected at least 2 reducers: a job cannot run while its only reducer restarts")
    error, result, pool = None, {}, None
    with tempfile.TemporaryDirectory(prefix="sluice-rolling-") as name:
        try:
            pool = Pool(options.sluice, Path(name), options.reducers)
            result = (soak if options.job == "soak" else digits)(options, Path(name), pool)
            expect_freed(pool.reducers, pool.baselines)
        except (Failed, subprocess.TimeoutExpired) as failed:
            error = str(failed)
        finally:
            if pool:
                pool.kill()
    restarts = len(pool.restarts) if pool else 0
    result = {"schema": "sluice.rolling/1", "job": options.job, "error": error, "restarts": restarts, **result}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    if options.job == "soak" and not error:
        print(f"{restarts} restarts, {result['operations']} operations, {result['nwrong']} wrong elements; stalls {stall_summary(result['stalls_ms'])}")
        print(summary(result["throughput"]))
    else:
        print(f"{restarts} restarts; " + (f"FAILED: {error}" if error else f"weights {result['weights_hash']}, accuracy {result['held_out_accuracy']}"))
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
