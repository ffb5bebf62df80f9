"""Part of the section hosts: what the other ranks learn when a rank is killed."""

import json
import os
import subprocess

from run import CannotRun, markdown_table

TITLE = "A rank dies"
DEATHS = 500


def measure(run):
    program = run.program.parents[1] / "tests/fault/rank_death_test"
    if not program.exists():
        raise CannotRun(f"{program} does not exist: build with SLUICE_TESTS and SLUICE_LONG_TESTS")
    out = run.folder / "deaths.json"
    load = os.getloadavg()[0]
    done = subprocess.run([program], capture_output=True, text=True, check=False,
                          env={**os.environ, "SLUICE_TEST_DEATHS": str(run.pick(DEATHS, 6)), "SLUICE_TEST_JSON": str(out)})
    if done.returncode != 0:
        raise CannotRun(f"{program.name} exited with code {done.returncode}: {done.stdout[-2000:]}")
    return {**json.loads(out.read_text(encoding="utf-8")), "load_average": load}


def text(data):
    closes = data["closes_ms"]
    return (f"`tests/fault/rank_death_test`: SIGKILL ends a rank of two hosts with 4 ranks each, {data['deaths']} times, at random moments of its join, operations or close (seed "
            f"{data['seed']}). Some victims have 256 MiB of memory; in some sessions each rank has a forked child that lives on. Times are from the kill to the return of a call with "
            "the error, which names the victim. A death is late if a rank of the victim's host has the error after 10 ms, or another after 1 s. "
            f"{data['unseen']} victims died before another rank knew their process; the join ends by its timeout then. {closes['ranks']} ranks closed without an error, since they "
            f"had all results: within {closes['median']:.1f} ms in the median, {closes['p99']:.0f} ms in the 99th percentile. Nothing was left of any session: no segment, "
            f"descriptor, process, or reducer's memory. The load average was {data['load_average']:.1f} before.")


def table(data):
    def cells(times):
        return [f"{times[key]:.2f}" if times["ranks"] else "" for key in ("median", "p99", "longest")]

    return markdown_table(["deaths", "number", "late", "victim's host: median ms", "p99", "longest", "other host: median ms", "p99", "longest"],
                          [[r["case"], r["deaths"], r["late"], *cells(r["same_host_ms"]), *cells(r["other_host_ms"])] for r in data["rows"]])
