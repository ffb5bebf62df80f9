"""Section: scaling from 2 to 64 workers with the same bytes per worker."""

import json

import sluice_run
from run import MIB, markdown_table, rate_label, size_text, spread
from test_network import ideal_seconds

TITLE = "Scaling from 2 to 64 workers"
RATE = 20e6
SIZE = 4 * MIB
REDUCERS = 2
# Operations until the in-flight limit of a session of this size is stable.
WARMUP = 8


def measure(run):
    rows = []
    for workers in run.pick([2, 4, 8, 16, 32, 64], [2]):
        with run.network(workers, REDUCERS, RATE, RATE * workers / REDUCERS) as network, sluice_run.reducers(network, run.program, REDUCERS, run.folder) as pool:
            results = [run.allreduce(network, workers, pool, SIZE, 2, WARMUP) for _ in range(run.rounds)]
            status = json.loads(network.run("r0", [run.program, "status", "--reducers", pool]).stdout)
        rows.append({"workers": workers, "bytes": SIZE, "wrong": sum(r["wrong"] for r in results), **spread([t for r in results for t in r["times"]]),
                     "ideal_seconds": ideal_seconds(SIZE, RATE, RATE, workers, workers), "reducer_rss_bytes": max(reducer["status"]["max_rss_bytes"] for reducer in status)})
    return rows


def text(_rows):
    return (f"Tensors of {size_text(SIZE)} f32, links of {rate_label(RATE)}, {REDUCERS} reducers with the bandwidth of the workers. RSS is the peak of the larger "
            "reducer.")


def table(rows):
    return markdown_table(["workers", "ms", "p99", "runs", "/ (S / goodput)", "reducer RSS", "wrong"],
                          [[r["workers"], f"{1e3 * r['median']:.0f}", f"{1e3 * r['p99']:.0f}", r["count"], f"{r['median'] / r['ideal_seconds']:.3f}",
                            f"{r['reducer_rss_bytes'] / MIB:.0f} MiB", r["wrong"]] for r in rows])
