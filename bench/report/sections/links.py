"""Section: link-bound allreduce with workers of 200 Mb/s and a pool of equal bandwidth, compared with rings and with both bounds."""

from plots import lines
from run import MIB, markdown_table, rate_label, size_text, spread
from test_network import ideal_seconds, ring_seconds

TITLE = "Links of 200 Mb/s, pool with the bandwidth of the workers"
RATE = 200e6
RINGS = ["gloo-ring", "openmpi-ring"]
SETTINGS = {4 * MIB: 6, 16 * MIB: 4, 64 * MIB: 2}  # size: operations per round


def measure(run):
    rows = []
    sizes = run.pick(SETTINGS, {4 * MIB: 1})
    for workers in run.pick([2, 4, 8], [2]):
        # Two reducers share the bandwidth of one.
        for reducers in (1, 2):
            programs = {"sluice": run.sluice(reducers), **({name: run.peer(name) for name in RINGS} if reducers == 1 else {})}
            with run.network(workers, reducers, RATE, RATE * workers / reducers) as network:
                found = run.interleave(programs, lambda name: [
                    result for size, times in sizes.items() for result in programs[name].measure(network, workers, [size], times, 1, run.folder)])
            for name, results in found.items():
                rows += [row(workers, reducers if name == "sluice" else 0, name, size, [r for r in results if r["bytes"] == size]) for size in sizes]
    return rows


def row(workers, reducers, name, size, results):
    return {"workers": workers, "reducers": reducers, "name": name, "bytes": size, "wrong": sum(r["wrong"] for r in results),
            **spread([t for r in results for t in r["operation_seconds"]]),
            "cpu_seconds_per_gb": spread([r["cpu_seconds_per_gb"] for r in results])["median"],
            "ideal_seconds": ideal_seconds(size, RATE, RATE, workers, workers), "ring_seconds": ring_seconds(size, RATE, workers)}


def text(_rows):
    return (f"f32 sums, one operation at a time. S / goodput is the time of the tensor at {rate_label(RATE)} without headers "
            "(1448 of 1514 bytes are payload). The bound of a ring is 2 (n - 1) / n of that time. CPU is that of the workers per GB that each contributes.")


def table(rows):
    best = {}
    for r in rows:
        if r["reducers"] == 0:
            key = (r["workers"], r["bytes"])
            best[key] = min(best.get(key, r["median"]), r["median"])
    cells = []
    for r in rows:
        name = f"sluice, {r['reducers']} reducer{'s' if r['reducers'] > 1 else ''}" if r["reducers"] else r["name"]
        cells.append([r["workers"], name, size_text(r["bytes"]), f"{1e3 * r['median']:.1f}", f"{1e3 * r['p99']:.1f}", r["count"], f"{r['median'] / r['ideal_seconds']:.3f}",
                      f"{r['median'] / r['ring_seconds']:.3f}", f"{best[r['workers'], r['bytes']] / r['median']:.2f}" if r["reducers"] else "",
                      f"{r['cpu_seconds_per_gb']:.2f}", r["wrong"]])
    return markdown_table(["workers", "", "size", "ms", "p99", "runs", "/ (S / goodput)", "/ ring's bound", "best ring / this", "CPU s/GB", "wrong"], cells)


def plots(rows, folder):
    size = max(r["bytes"] for r in rows if r["bytes"] <= 16 * MIB)
    series = []
    for name, reducers in [("sluice", 1), ("sluice", 2), *((ring, 0) for ring in RINGS)]:
        selected = [r for r in rows if (r["name"], r["reducers"], r["bytes"]) == (name, reducers, size)]
        label = f"sluice, {reducers} reducer{'s' if reducers > 1 else ''}" if reducers else name
        series.append((label, [r["workers"] for r in selected], [1e3 * r["median"] for r in selected]))
    bound_rows = sorted({(r["workers"], r["ideal_seconds"], r["ring_seconds"]) for r in rows if r["bytes"] == size})
    bounds = [("S / goodput", [b[0] for b in bound_rows], [1e3 * b[1] for b in bound_rows]), ("a ring's bound", [b[0] for b in bound_rows], [1e3 * b[2] for b in bound_rows])]
    return lines(folder, "links.svg", f"allreduce of {size_text(size)} f32, {rate_label(RATE)} per worker", "workers", "ms", series, bounds)
