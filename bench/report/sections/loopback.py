"""Section: all processes on one machine without link limits, which shows the CPU cost per byte."""

from plots import lines
from run import MIB, markdown_table, size_text, spread

TITLE = "Loopback on one machine"
PEERS = ["openmpi", "openmpi-rabenseifner-links2", "openmpi-ring", "gloo-halving-doubling", "gloo-ring"]
SIZES = {1 * MIB: 60, 4 * MIB: 20, 16 * MIB: 8, 64 * MIB: 3}
# The second variant has no checksums and keeps no results for other ranks, like the other libraries.
SLUICE = {"sluice": [], "sluice --no-crc --no-keep": ["--no-crc", "--no-keep"]}


def measure(run):
    rows = []
    sizes = run.pick(SIZES, {1 * MIB: 2})
    for workers in run.pick([4, 8], [2]):
        programs = {**{name: run.sluice(1, options) for name, options in SLUICE.items()}, **{name: run.peer(name) for name in PEERS}}
        with run.loopback() as hosts:
            found = run.interleave(programs, lambda name: [
                r for size, times in sizes.items() for r in programs[name].measure(hosts, workers, [size], times, 2, run.folder)])  # noqa: B023
        for name, results in found.items():
            for size in sizes:
                of_size = [r for r in results if r["bytes"] == size]
                reducer = [r["reducer_cpu_seconds_per_gb"] for r in of_size if r.get("reducer_cpu_seconds_per_gb") is not None]
                rows.append({"workers": workers, "name": name, "bytes": size, "wrong": sum(r["wrong"] for r in of_size),
                             **spread([t for r in of_size for t in r["operation_seconds"]]),
                             "cpu_seconds_per_gb": spread([r["cpu_seconds_per_gb"] for r in of_size])["median"],
                             "reducer_cpu_seconds_per_gb": spread(reducer)["median"] if reducer else None})
    return rows


def text(_rows):
    return ("The processors are the bottleneck, and reducers use those of the workers. CPU is that of the workers per GB "
            "that each contributes, and of the reducer per GB that it receives. The second row of Sluice leaves out what the other libraries lack: "
            "checksums, and results kept for recovery.")


def table(rows):
    best = {}
    for r in rows:
        if not r["name"].startswith("sluice"):
            key = (r["workers"], r["bytes"])
            best[key] = min(best.get(key, r["median"]), r["median"])
    return markdown_table(["workers", "size", "", "ms", "p99", "runs", "algbw GB/s", "best other / this", "worker CPU s/GB", "reducer CPU s/GB", "wrong"],
                          [[r["workers"], size_text(r["bytes"]), r["name"], f"{1e3 * r['median']:.2f}", f"{1e3 * r['p99']:.2f}", r["count"],
                            f"{1e-9 * r['bytes'] / r['median']:.2f}", f"{best[r['workers'], r['bytes']] / r['median']:.2f}" if r["name"].startswith("sluice") else "",
                            f"{r['cpu_seconds_per_gb']:.2f}", "" if r["reducer_cpu_seconds_per_gb"] is None else f"{r['reducer_cpu_seconds_per_gb']:.2f}", r["wrong"]]
                           for r in sorted(rows, key=lambda r: (r["workers"], r["bytes"]))])


def plots(rows, folder):
    workers = min(r["workers"] for r in rows)
    series = []
    for name in ["sluice", "sluice --no-crc --no-keep", "openmpi", "gloo-halving-doubling", "gloo-ring"]:
        selected = [r for r in rows if (r["workers"], r["name"]) == (workers, name)]
        series.append((name, [r["bytes"] / MIB for r in selected], [1e-9 * r["bytes"] / r["median"] for r in selected]))
    return lines(folder, "loopback.svg", f"{workers} workers on one machine", "MiB", "algbw, GB/s", series, log_x=True)
