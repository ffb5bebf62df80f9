"""Section: links that become slow and reducers that are killed while a job with co-located reducers runs."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import reweight
from run import CannotRun, markdown_table
from test_network import unavailable_reason

TITLE = "Changes while a job runs with co-located reducers"
CHAOS = Path(__file__).resolve().parents[2] / "chaos" / "chaos.py"
LINKS = ["--workers", "4", "--rate", "100mbit", "--slow", "0.5", "--size", "1M"]
KILLS = ["--of", "kill-all", "--colocated", "always", "--workers", "3", "--reducers", "2", "--seed", "26"]


def measure(run):
    if reason := unavailable_reason():
        raise CannotRun(reason)
    runs = []
    for number in range(run.pick(10, 1)):
        print(f"   reweight.py, run {number + 1}", flush=True)
        output = reweight.measure(reweight.parse(["--sluice", str(run.program), *LINKS, *run.pick([], ["--before", "1", "--during", "1", "--after", "1"])]))
        run.record_machine(output)
        runs.append(output)
    rows = [{"event": event, "events": len(runs), "seconds": [r[key] for r in runs], "wrong": sum(r["wrong"] for r in runs)}
            for event, key in (("a worker's link gets half its rate", "delay_slow"), ("it gets its full rate again", "delay_restored"))]
    return [*rows, kills(run)]


def kills(run):
    print("   chaos.py --of kill-all", flush=True)
    out = run.folder / "chaos.json"
    command = [sys.executable, CHAOS, "--sluice", run.program, *KILLS, "--events", run.pick(200, 2), "--json", out]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode != 0:
        raise CannotRun(f"chaos.py --of kill-all exited with code {done.returncode}: {done.stderr.strip()[-400:]}")
    output = json.loads(out.read_text(encoding="utf-8"))
    return {"event": "all reducers are killed, and start again", "events": output["events"]["kill-all"], "seconds": [ms / 1000 for ms in output["stalls_ms"]],
            "wrong": output["soak"]["nwrong"]}


def text(_rows):
    return (f"Links: `bench/test_network/reweight.py {' '.join(LINKS)}`. The time lasts from the change until eight operations in a row have a median within 10 % of "
            f"the minimum that the links allow. Kills: `bench/chaos/chaos.py {' '.join(KILLS)}`. The time is the [pause](#pauses-after-the-loss-of-a-reducer) of a worker.")


def table(rows):
    cells = []
    for r in rows:
        found = [s for s in r["seconds"] if s is not None]
        cells.append([r["event"], r["events"], f"{statistics.median(found):.3f}" if found else "", f"{max(found):.3f}" if found else "",
                      sum(s is None for s in r["seconds"]), r["wrong"]])
    return markdown_table(["event", "events", "median s", "longest s", "not reached", "wrong"], cells)
