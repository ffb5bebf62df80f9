"""Section: the NCCL plugin with NCCL's request patterns, compared with the client library."""

import sluice_run
from plugin_vs_client import PATTERNS
from run import MIB, markdown_table, rate_label, size_text, spread
from test_network import ideal_seconds, ring_seconds

TITLE = "NCCL plugin with NCCL's request patterns"
RATE = 200e6
SIZE = 16 * MIB


def measure(run):
    rows = []
    for workers in run.pick([4, 8], [2]):
        for reducers in run.pick([2, 4, 8], [1]):
            with run.network(workers, reducers, RATE, RATE * workers / reducers) as network, sluice_run.reducers(network, run.program, reducers, run.folder) as pool:
                found = run.interleave(PATTERNS, lambda name: [run.allreduce(network, workers, pool, SIZE, 3, 2, *PATTERNS[name])])  # noqa: B023
            for name, results in found.items():
                rows.append({"workers": workers, "reducers": reducers, "pattern": name, "bytes": SIZE, "wrong": sum(r["wrong"] for r in results),
                             **spread([t for r in results for t in r["times"]]),
                             "ideal_seconds": ideal_seconds(SIZE, RATE, RATE, workers, workers), "ring_seconds": ring_seconds(SIZE, RATE, workers)})
    return rows


def text(_rows):
    return (f"Tensors of {size_text(SIZE)} f32, workers of {rate_label(RATE)}, a pool with the bandwidth of the workers. A pattern states the number of channels "
            "and the chunk size of the requests. A test program calls the plugin in place of NCCL, without a GPU.")


def table(rows):
    client = {(r["workers"], r["reducers"]): r["median"] for r in rows if r["pattern"] == "client"}
    return markdown_table(["workers", "reducers", "pattern", "ms", "p99", "runs", "/ (S / goodput)", "/ client", "/ ring's bound", "wrong"],
                          [[r["workers"], r["reducers"], r["pattern"], f"{1e3 * r['median']:.0f}", f"{1e3 * r['p99']:.0f}", r["count"],
                            f"{r['median'] / r['ideal_seconds']:.3f}", f"{r['median'] / client[r['workers'], r['reducers']]:.3f}",
                            f"{r['median'] / r['ring_seconds']:.2f}", r["wrong"]] for r in rows])
