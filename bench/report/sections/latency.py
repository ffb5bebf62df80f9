"""Small operations: beside the bare TCP star of the same run, and Open MPI's default."""

import sluice_run
from plots import lines
from run import rate_words, size_text, spread, table

TITLE = "Latency"
RATE = 200e6
SIZES = [8 * 8**k for k in range(5)]  # 8 B to 32 KiB
PEER = "openmpi"


def measure(run):
    rows = []
    for workers in run.pick([4, 8], [2]):
        peer = run.peer(PEER)
        times = run.pick(2000, 50)
        with run.bed(workers, 1, RATE, RATE * workers) as bed, sluice_run.reducers(bed, run.program, 1, run.folder) as pool:

            def turn(name, bed=bed, workers=workers, pool=pool, peer=peer, times=times):
                if name == PEER:
                    return [{"name": PEER, "bytes": r["bytes"], "times": r["operation_seconds"], "wrong": r["wrong"]}
                            for r in peer.measure(bed, workers, SIZES, times, 100, run.folder)]
                with sluice_run.star_server(bed, run.program, run.folder) as star:
                    told = sluice_run.bench(bed, run.program, "latency", workers, pool, run.folder,
                                            ["-b", SIZES[0], "-e", SIZES[-1], "-f", 8, "-n", times, "--star", star])
                run.note_machine(told)
                return [{"name": "sluice", **r} for r in told["results"]]

            found = run.in_turns(["sluice", PEER], turn)
        for size in SIZES:
            ours = [r for r in found["sluice"] if r["size"] == size]
            theirs = [r for r in found[PEER] if r["bytes"] == size]
            row = {"workers": workers, "bytes": size, "rounds": len(ours), "runs": sum(r["sluice"]["count"] for r in ours),
                   "wrong": sum(r["nwrong"] for r in ours) + sum(r["wrong"] for r in theirs)}
            for who in ("sluice", "star"):
                # Of the rounds' own quantiles the middle ones.
                row[who] = {q: spread([r[who][q] for r in ours])["median"] for q in ("p50", "p99", "p999")}
            peer_times = [spread(r["times"]) for r in theirs]
            row[PEER] = {"p50": 1e6 * spread([t["median"] for t in peer_times])["median"], "p99": 1e6 * spread([t["p99"] for t in peer_times])["median"]}
            rows.append(row)
    return rows


def text(rows):
    return (f"Microseconds of one operation, f32 sum, one at a time, the caller drives the progress; links of {rate_words(RATE)}, one reducer as wide as the workers. The "
            "star is the floor of TCP in the same run: one server that answers all once all have sent, no adding, no protocol.\n\n"
            + table(["workers", "size", "sluice p50", "p99", "p99.9", "star p50", "p99", "sluice / star", "Open MPI p50", "p99", "runs", "wrong"],
                    [[r["workers"], size_text(r["bytes"]), f"{r['sluice']['p50']:.0f}", f"{r['sluice']['p99']:.0f}", f"{r['sluice']['p999']:.0f}", f"{r['star']['p50']:.0f}",
                      f"{r['star']['p99']:.0f}", f"{r['sluice']['p50'] / r['star']['p50']:.2f}", f"{r[PEER]['p50']:.0f}", f"{r[PEER]['p99']:.0f}", r["runs"], r["wrong"]]
                     for r in rows]))


def plots(rows, folder):
    workers = max(r["workers"] for r in rows)
    mine = [r for r in rows if r["workers"] == workers]
    sizes = [r["bytes"] for r in mine]
    series = [(label, sizes, [r[key]["p50"] for r in mine]) for label, key in (("sluice", "sluice"), ("Open MPI", PEER))]
    return lines(folder, "latency.svg", f"one allreduce, {workers} workers: median", "bytes", "us", series, [("bare TCP star", sizes, [r["star"]["p50"] for r in mine])],
                 log_x=True, log_y=True)
