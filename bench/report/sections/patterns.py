"""Through the NCCL plugin in NCCL's own request patterns, beside the client library."""

import sluice_run
from plugin_vs_client import PATTERNS
from run import MIB, ideal_seconds, rate_words, ring_seconds, size_text, spread, table

TITLE = "Through the NCCL plugin, in NCCL's request patterns"
RATE = 200e6
SIZE = 16 * MIB


def measure(run):
    rows = []
    for workers in run.pick([4, 8], [2]):
        for reducers in run.pick([2, 4, 8], [1]):
            with run.bed(workers, reducers, RATE, RATE * workers / reducers) as bed, sluice_run.reducers(bed, run.program, reducers, run.folder) as pool:

                def turn(name, bed=bed, workers=workers, pool=pool):
                    told = sluice_run.bench(bed, run.program, "allreduce", workers, pool, run.folder,
                                            ["-b", SIZE, "-e", SIZE, "-n", 3, "-w", 2, "-c", 1, *PATTERNS[name]])
                    run.note_machine(told)
                    row = told["results"][0]
                    return [{"times": row["out_of_place"]["iteration_times"], "wrong": row["out_of_place"]["nwrong"] + row["in_place"]["nwrong"]}]

                found = run.in_turns(PATTERNS, turn)
            for name, results in found.items():
                rows.append({"workers": workers, "reducers": reducers, "pattern": name, "bytes": SIZE, "wrong": sum(r["wrong"] for r in results),
                             **spread([1e-6 * t for r in results for t in r["times"]]),
                             "ideal_seconds": ideal_seconds(SIZE, RATE, RATE, workers, workers), "ring_seconds": ring_seconds(SIZE, RATE, workers)})
    return rows


def text(rows):
    client = {(r["workers"], r["reducers"]): r["median"] for r in rows if r["pattern"] == "client"}
    return (f"{size_text(SIZE)} f32, workers of {rate_words(RATE)}, a pool as wide. The patterns are NCCL's: as many channels as it says, one request of each in a chunk of "
            "that size, 8 steps in flight; a player makes the calls of NCCL's proxy on the built plugin. No GPU takes part.\n\n"
            + table(["workers", "reducers", "pattern", "ms", "p99", "runs", "/ (S / goodput)", "/ client", "/ ring's bound", "wrong"],
                    [[r["workers"], r["reducers"], r["pattern"], f"{1e3 * r['median']:.0f}", f"{1e3 * r['p99']:.0f}", r["count"],
                      f"{r['median'] / r['ideal_seconds']:.3f}", f"{r['median'] / client[r['workers'], r['reducers']]:.3f}", f"{r['median'] / r['ring_seconds']:.2f}", r["wrong"]]
                     for r in rows]))


def plots(_rows, _folder):
    return []
