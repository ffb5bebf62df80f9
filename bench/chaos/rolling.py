#!/usr/bin/env python3
"""Restarts a whole pool under a job, one reducer after the other, and tells what the job noticed.

Each reducer in turn: SIGTERM, its end with exit code 0, another process at its address, until the job has taken it in; then the next, round
and round. Over `sluice bench soak` (random operations, every result of every rank checked) for --duration, with its throughput in stretches of
--bucket-ms: how low it falls, and how long after SIGTERM and after the new process listens it is back. Over the digits job once undisturbed
and once like that: the weights must have the same bits.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from jobs import Soak  # noqa: E402
from processes import Failed, expect_freed, quantiles, start_pool, until  # noqa: E402

BACK = 0.9  # of the median before: that is "back"


class Pool:
    def __init__(self, program, folder, count):
        self.reducers, self.held = start_pool(count, program, folder, ["--peer-timeout", "5s", "--heartbeat", "500ms"])
        self.restarts = []

    def addresses(self):
        return ",".join(r.address for r in self.reducers)

    def restart(self, r, running):
        """One of them; nothing when the job is over before it is back."""
        event = {"reducer": r.name, "term": time.monotonic()}
        r.drain()
        event["gone"] = time.monotonic()
        r.start()
        event["listens"] = time.monotonic()
        if not until(f"the job has {r.name} again", lambda: "over" if not running() else r.in_use() and "back") == "back":
            return False
        event["back"] = time.monotonic()
        self.restarts.append(event)
        return True

    def end(self):
        for r in self.reducers:
            r.end()


def run_digits(options, folder, pool, result):
    return subprocess.Popen([options.sluice, "demo", "digits", "--workers", str(options.workers), "--epochs", str(options.epochs), "--json", result,
                             "--connect", pool.addresses()], stdout=subprocess.DEVNULL, stderr=open(folder / "digits.log", "ab"))


def digits(options, folder, pool):
    """Trained for longer where it was done before all were restarted."""
    while (result := stirred_digits(options, folder, pool)) is None:
        options.epochs *= 2
    return result


def stirred_digits(options, folder, pool):
    """Once alone, once under restarts of all; the same weights and accuracy. None when not all were restarted."""
    quiet, stirred = folder / "quiet.json", folder / "stirred.json"
    if code := run_digits(options, folder, pool, quiet).wait(timeout=600):
        raise Failed(f"the digits job ended with {code}")
    job = run_digits(options, folder, pool, stirred)
    try:
        until("the digits job runs on all reducers", lambda: all(r.in_use() for r in pool.reducers))
        running = lambda: job.poll() is None
        at = 0
        while running() and pool.restart(pool.reducers[at % len(pool.reducers)], running):
            at += 1
        code = job.wait(timeout=600)
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    if code:
        raise Failed(f"the digits job ended with {code}: " + (folder / "digits.log").read_text()[-600:])
    if at < len(pool.reducers):
        return None
    a, b = json.loads(quiet.read_text()), json.loads(stirred.read_text())
    for key in ("weights_hash", "held_out_accuracy", "weights_identical"):
        if a[key] != b[key]:
            raise Failed(f"{key} is {b[key]} under restarts, {a[key]} without")
    return {"weights_hash": b["weights_hash"], "held_out_accuracy": b["held_out_accuracy"]}


def soak(options, folder, pool):
    options.seed, options.soak = 1, []
    job = Soak(pool.reducers, options, folder)
    job.start()
    try:
        until("the soak runs on all reducers", lambda: (job.check(), all(r.in_use() for r in pool.reducers))[1])
        workers = []
        begin = time.monotonic()
        at = 0
        time.sleep(options.pause_s)
        while time.monotonic() - begin < options.duration_s or at < len(pool.reducers):
            job.check()
            pool.restart(pool.reducers[at % len(pool.reducers)], lambda: job.output.process.poll() is None)
            at += 1
            time.sleep(options.pause_s)  # so that what follows is not what the next restart does
            workers.append(job.workers())
        job.finish()
    finally:
        job.end()
    told = job.result()
    rows = told["results"]
    offset = job.output.first_row - rows[0]["seconds"]
    buckets = [(offset + b["seconds"], (b["bytes"] - a["bytes"]) / (b["seconds"] - a["seconds"])) for a, b in zip(rows, rows[1:])]
    return {"nwrong": told["nwrong"], "operations": told["total"]["operations"], "stalls_ms": sorted(job.stalls), "workers": [workers[0], workers[-1]],
            "throughput": [throughput(buckets, event, options.pause_s) for event in pool.restarts]}


def throughput(buckets, event, pause_s):
    """Of one restart, in bytes a second: before, lowest, after; and seconds until it was back."""
    before = [rate for end, rate in buckets if event["term"] - pause_s < end <= event["term"]]
    after = [rate for end, rate in buckets if event["back"] < end <= event["back"] + pause_s]
    during = [rate for end, rate in buckets if event["term"] < end <= event["back"] + 0.3]
    usual = statistics.median(before) if before else 0
    back = {}
    for what in ("term", "listens"):
        good = [end for end, rate in buckets if end > event[what] and rate >= BACK * usual]
        back[f"back_after_{what}_s"] = round(good[0] - event[what], 3) if good else None
    return {"before": usual, "lowest": min(during) if during else None, "after": statistics.median(after) if after else None, **back,
            "pool_short_s": round(event["back"] - event["term"], 3)}


def summary(rows):
    def middle(key, choose):
        values = [row[key] for row in rows if row[key] is not None]
        return choose(values) if values else float("nan")
    ratio = [row["after"] / row["before"] for row in rows if row["before"] and row["after"]]
    return (f"GB/s before {middle('before', statistics.median) / 1e9:.3f}, lowest stretch {middle('lowest', statistics.median) / 1e9:.3f}, after / before "
            f"{statistics.median(ratio) if ratio else float('nan'):.2f}; back after SIGTERM: median {middle('back_after_term_s', statistics.median):.2f} s, "
            f"longest {middle('back_after_term_s', max):.2f} s; after it listens again: longest {middle('back_after_listens_s', max):.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="sluice", help="the program")
    parser.add_argument("--job", choices=("soak", "digits"), default="soak")
    parser.add_argument("--reducers", type=int, default=3)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--duration-s", type=float, default=60, help="of the soak; all reducers are restarted once at least")
    parser.add_argument("--pause-s", type=float, default=2, help="between one restart and the next")
    parser.add_argument("--bucket-ms", type=int, default=100)
    parser.add_argument("--max-size", default="256K", help="largest operation of the soak")
    parser.add_argument("--epochs", type=int, default=200, help="of the digits job; twice as many where it is done before all are restarted")
    parser.add_argument("--json", help="file for the result")
    options = parser.parse_args()
    if options.reducers < 2:
        parser.error("with fewer than 2 reducers nothing can be restarted")
    error, result, pool = None, {}, None
    with tempfile.TemporaryDirectory(prefix="sluice-rolling-") as name:
        try:
            pool = Pool(options.sluice, Path(name), options.reducers)
            result = (soak if options.job == "soak" else digits)(options, Path(name), pool)
            expect_freed(pool.reducers, pool.held)
        except (Failed, subprocess.TimeoutExpired) as failed:
            error = str(failed)
        finally:
            if pool:
                pool.end()
    restarts = len(pool.restarts) if pool else 0
    result = {"schema": "sluice.rolling/1", "job": options.job, "error": error, "restarts": restarts, **result}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    if options.job == "soak" and not error:
        print(f"{restarts} restarts, {result['operations']} operations, {result['nwrong']} wrong elements; stalls {quantiles(result['stalls_ms'])}")
        print(summary(result["throughput"]))
    else:
        print(f"{restarts} restarts; " + (f"FAILED: {error}" if error else f"weights {result['weights_hash']}, accuracy {result['held_out_accuracy']}"))
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
