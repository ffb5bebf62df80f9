"""Link-bound: workers of 200 Mb/s, a pool as wide as they are together, beside the rings of others and both bounds."""

from plots import lines
from run import MIB, ideal_seconds, rate_words, ring_seconds, size_text, spread, table

TITLE = "On links of 200 Mb/s, a pool as wide as the workers"
RATE = 200e6
RINGS = ["gloo-ring", "openmpi-ring"]
SETTINGS = {4 * MIB: 6, 16 * MIB: 4, 64 * MIB: 2}  # size: operations of a turn


def measure(run):
    rows = []
    sizes = run.pick(SETTINGS, {4 * MIB: 1})
    for workers in run.pick([2, 4, 8], [2]):
        # The ports of 2 reducers share what the one had.
        for reducers in (1, 2):
            programs = {"sluice": run.sluice(reducers), **({name: run.peer(name) for name in RINGS} if reducers == 1 else {})}
            with run.bed(workers, reducers, RATE, RATE * workers / reducers) as bed:
                found = run.in_turns(programs, lambda name: [
                    result for size, times in sizes.items() for result in programs[name].measure(bed, workers, [size], times, 1, run.folder)])
            for name, results in found.items():
                rows += [row(workers, reducers if name == "sluice" else 0, name, size, [r for r in results if r["bytes"] == size]) for size in sizes]
    return rows


def row(workers, reducers, name, size, results):
    return {"workers": workers, "reducers": reducers, "name": name, "bytes": size, "wrong": sum(r["wrong"] for r in results),
            **spread([t for r in results for t in r["operation_seconds"]]),
            "cpu_seconds_per_gb": spread([r["cpu_seconds_per_gb"] for r in results])["median"],
            "ideal_seconds": ideal_seconds(size, RATE, RATE, workers, workers), "ring_seconds": ring_seconds(size, RATE, workers)}


def text(rows):
    best = {}
    for r in rows:
        if r["reducers"] == 0:
            key = (r["workers"], r["bytes"])
            best[key] = min(best.get(key, r["median"]), r["median"])
    cells = []
    for r in rows:
        name = f"sluice, {r['reducers']} reducer{'s' if r['reducers'] > 1 else ''}" if r["reducers"] else r["name"]
        cells.append([r["workers"], name, size_text(r["bytes"]), f"{1e3 * r['median']:.1f}", f"{1e3 * r['p99']:.1f}", r["count"], f"{r['median'] / r['ideal_seconds']:.3f}",
                      f"{r['median'] / r['ring_seconds']:.3f}", f"{best[r['workers'], r['bytes']] / r['median']:.2f}" if r["reducers"] else "", f"{r['cpu_seconds_per_gb']:.2f}", r["wrong"]])
    return (f"f32 sums, single operations, their fill and drain included. S / goodput: the tensor at {rate_words(RATE)} less headers (1448 of 1514 bytes). A ring's bound is "
            "2 (n - 1) / n of that: 1.00, 1.50 and 1.75 for 2, 4 and 8 workers. CPU: of the workers, per GB that each contributes.\n\n"
            + table(["workers", "", "size", "ms", "p99", "runs", "/ (S / goodput)", "/ ring's bound", "best ring / this", "CPU s/GB", "wrong"], cells))


def plots(rows, folder):
    size = max(r["bytes"] for r in rows if r["bytes"] <= 16 * MIB)
    series = []
    for name, reducers in [("sluice", 1), ("sluice", 2), *((ring, 0) for ring in RINGS)]:
        mine = [r for r in rows if (r["name"], r["reducers"], r["bytes"]) == (name, reducers, size)]
        label = f"sluice, {reducers} reducer{'s' if reducers > 1 else ''}" if reducers else name
        series.append((label, [r["workers"] for r in mine], [1e3 * r["median"] for r in mine]))
    one = sorted({(r["workers"], r["ideal_seconds"], r["ring_seconds"]) for r in rows if r["bytes"] == size})
    bounds = [("S / goodput", [b[0] for b in one], [1e3 * b[1] for b in one]), ("a ring's bound", [b[0] for b in one], [1e3 * b[2] for b in one])]
    return lines(folder, "links.svg", f"allreduce of {size_text(size)} f32, {rate_words(RATE)} per worker", "workers", "ms", series, bounds)
