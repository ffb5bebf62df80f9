"""Section: how long a job pauses when a reducer is killed, drained or disconnected, measured by bench/chaos/chaos.py."""

import collections
import json
import subprocess
import sys
from pathlib import Path

from plots import lines
from run import CannotRun, markdown_table, spread

TITLE = "Pauses after the loss of a reducer"
CHAOS = Path(__file__).resolve().parents[2] / "chaos" / "chaos.py"
WORKERS, REDUCERS, SEED = 3, 3, 24
EVENTS = {"kill": "killed (SIGKILL)", "drain": "drained (SIGTERM)", "cut": "connections reset"}


def measure(run):
    def measure_once(event):
        out = run.folder / "chaos.json"
        command = [sys.executable, CHAOS, "--sluice", run.program, "--of", event, "--events", run.pick(60, 3), "--seed", SEED, "--workers", WORKERS,
                   "--reducers", REDUCERS, "--json", out]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise CannotRun(f"chaos.py --of {event} exited with code {done.returncode}: {done.stderr.strip()[-400:]}")
        return [json.loads(out.read_text(encoding="utf-8"))]

    found = run.interleave(list(EVENTS), measure_once)
    return [{"event": event, "events": sum(r["events"][event] for r in results), "wrong": sum(r["soak"]["nwrong"] for r in results),
             "count_of_ms": collections.Counter(str(ms) for r in results for ms in r["stalls_ms"])} for event, results in found.items()]


def text(_rows):
    return (f"{WORKERS} workers and {REDUCERS} reducers on one machine (`bench/chaos/chaos.py`). A pause lasts from the moment when a worker notices the loss until its "
            "session sends again. A killed reducer starts again at once.")


def pauses(row):
    """Returns the pauses in ms, in ascending order."""
    return sorted(int(ms) for ms, count in row["count_of_ms"].items() for _ in range(count))


def table(rows):
    return markdown_table(["event", "events", "pauses", "median ms", "p99 ms", "longest ms", "wrong"],
                          [[EVENTS[r["event"]], r["events"], len(pauses(r)), spread(pauses(r))["median"], spread(pauses(r))["p99"], pauses(r)[-1], r["wrong"]] for r in rows])


def plots(rows, folder):
    percent = [1, *range(5, 100, 5), 99, 100]
    series = []
    for row in rows:
        found = pauses(row)
        series.append((EVENTS[row["event"]], percent, [found[max(0, -(-p * len(found) // 100) - 1)] for p in percent]))
    return lines(folder, "pauses.svg", "pause of a worker: share of the events with at most this pause", "% of the pauses", "ms", series, ticks=range(0, 101, 20))
