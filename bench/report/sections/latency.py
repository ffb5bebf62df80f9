"""Section: latency of small operations, compared with a bare TCP star of the same run and with Open MPI's default."""

import sluice_run
from plots import lines
from run import markdown_table, rate_label, size_text, spread

TITLE = "Latency"
RATE = 200e6
SIZES = [8 * 8**k for k in range(5)]  # 8 B to 32 KiB
PEER = "openmpi"


def measure(run):
    rows = []
    for workers in run.pick([4, 8], [2]):
        peer = run.peer(PEER)
        times = run.pick(2000, 50)
        with run.network(workers, 1, RATE, RATE * workers) as network, sluice_run.reducers(network, run.program, 1, run.folder) as pool:

            def measure_once(name, network=network, workers=workers, pool=pool, peer=peer, times=times):
                if name == PEER:
                    return [{"name": PEER, "bytes": r["bytes"], "times": r["operation_seconds"], "wrong": r["wrong"]}
                            for r in peer.measure(network, workers, SIZES, times, 100, run.folder)]
                with sluice_run.star_server(network, run.program, run.folder) as star:
                    output = sluice_run.bench(network, run.program, "latency", workers, pool, run.folder,
                                              ["-b", SIZES[0], "-e", SIZES[-1], "-f", 8, "-n", times, "--star", star])
                run.record_machine(output)
                return [{"name": "sluice", **r} for r in output["results"]]

            found = run.interleave(["sluice", PEER], measure_once)
        for size in SIZES:
            of_sluice = [r for r in found["sluice"] if r["size"] == size]
            of_peer = [r for r in found[PEER] if r["bytes"] == size]
            row = {"workers": workers, "bytes": size, "rounds": len(of_sluice), "runs": sum(r["sluice"]["count"] for r in of_sluice),
                   "wrong": sum(r["nwrong"] for r in of_sluice) + sum(r["wrong"] for r in of_peer)}
            for program in ("sluice", "star"):
                # Medians over the rounds of each quantile.
                row[program] = {q: spread([r[program][q] for r in of_sluice])["median"] for q in ("p50", "p99", "p999")}
            peer_times = [spread(r["times"]) for r in of_peer]
            row[PEER] = {"p50": 1e6 * spread([t["median"] for t in peer_times])["median"], "p99": 1e6 * spread([t["p99"] for t in peer_times])["median"]}
            rows.append(row)
    return rows


def text(_rows):
    return (f"Microseconds of one f32 sum, one operation at a time, with progress driven by the caller. Links of {rate_label(RATE)}, one reducer with the "
            "bandwidth of all workers. The [star](../guides/benchmark.md#latency) is the lower bound of TCP.")


def table(rows):
    return markdown_table(["workers", "size", "sluice p50", "p99", "p99.9", "star p50", "p99", "sluice / star", "Open MPI p50", "p99", "runs", "wrong"],
                          [[r["workers"], size_text(r["bytes"]), f"{r['sluice']['p50']:.0f}", f"{r['sluice']['p99']:.0f}", f"{r['sluice']['p999']:.0f}",
                            f"{r['star']['p50']:.0f}", f"{r['star']['p99']:.0f}", f"{r['sluice']['p50'] / r['star']['p50']:.2f}", f"{r[PEER]['p50']:.0f}",
                            f"{r[PEER]['p99']:.0f}", r["runs"], r["wrong"]] for r in rows])


def plots(rows, folder):
    workers = max(r["workers"] for r in rows)
    of_largest = [r for r in rows if r["workers"] == workers]
    sizes = [r["bytes"] for r in of_largest]
    series = [(label, sizes, [r[key]["p50"] for r in of_largest]) for label, key in (("sluice", "sluice"), ("Open MPI", PEER))]
    star = ("bare TCP star", sizes, [r["star"]["p50"] for r in of_largest])
    return lines(folder, "latency.svg", f"one allreduce, {workers} workers: median", "bytes", "us", series, [star], log_x=True, log_y=True)
