"""From 2 to 64 workers, the same bytes each."""

import json
import subprocess

import sluice_run
from run import MIB, ideal_seconds, rate_words, size_text, spread, table

TITLE = "From 2 to 64 workers"
RATE = 20e6
SIZE = 4 * MIB
REDUCERS = 2
# As many operations as a session of this size needs to find its pace.
WARMUP = 8


def measure(run):
    rows = []
    for workers in run.pick([2, 4, 8, 16, 32, 64], [2]):
        with run.bed(workers, REDUCERS, RATE, RATE * workers / REDUCERS) as bed, sluice_run.reducers(bed, run.program, REDUCERS, run.folder) as pool:
            times, wrong = [], 0
            for _ in range(run.rounds):
                told = sluice_run.bench(bed, run.program, "allreduce", workers, pool, run.folder, ["-b", SIZE, "-e", SIZE, "-n", 2, "-w", WARMUP, "-c", 1])
                run.note_machine(told)
                row = told["results"][0]
                times += [1e-6 * t for t in row["out_of_place"]["iteration_times"]]
                wrong += row["out_of_place"]["nwrong"] + row["in_place"]["nwrong"]
            status = json.loads(bed.run("r0", [run.program, "status", "--reducers", pool]).stdout)
        rows.append({"workers": workers, "bytes": SIZE, "wrong": wrong, **spread(times), "ideal_seconds": ideal_seconds(SIZE, RATE, RATE, workers, workers),
                     "reducer_rss_bytes": max(reducer["status"]["max_rss_bytes"] for reducer in status)})
    return rows


def text(rows):
    return (f"{size_text(SIZE)} f32 each, links of {rate_words(RATE)}, {REDUCERS} reducers, together as wide as the workers. RSS: the larger of the reducers' "
            "greatest; docs/operations.md has the formula.\n\n"
            + table(["workers", "ms", "p99", "runs", "/ (S / goodput)", "reducer RSS", "wrong"],
                    [[r["workers"], f"{1e3 * r['median']:.0f}", f"{1e3 * r['p99']:.0f}", r["count"], f"{r['median'] / r['ideal_seconds']:.3f}",
                      f"{r['reducer_rss_bytes'] / MIB:.0f} MiB", r["wrong"]] for r in rows]))


def plots(_rows, _folder):
    return []
