"""Section: co-located reducers with pools of several widths, compared with rings and with the bound of the links."""

import hybrid
from plots import lines
from run import CannotRun, markdown_table, size_text
from test_network import unavailable_reason

TITLE = "Co-located reducers"
LATENCY_SIZES = "1K,4K,16K,64K,256K"
# Options of hybrid.py. The first case is the plot.
CASES = [
    ["--workers", "4", "--reducers", "0,1,2,3,4", "--rate", "200mbit", "--size", "64M", "--pool-alone"],
    ["--workers", "8", "--reducers", "0,2,4,6,8", "--rate", "50mbit", "--size", "32M"],
    ["--workers", "4", "--reducers", "0,1,2,3,4", "--rate", "100mbit", "--size", "8M"],
    ["--workers", "4", "--reducers", "0", "--rate", "200mbit", "--size", "16M", "--slow-worker", "0.5"],
    ["--workers", "4", "--reducers", "0", "--rate", "200mbit", "--size", "16M", "--bench-option=--no-crc", "--bench-option=--no-keep"],
    ["--workers", "4", "--reducers", "0", "--rate", "200mbit", "--sizes", LATENCY_SIZES],
    ["--workers", "8", "--reducers", "0", "--rate", "200mbit", "--sizes", LATENCY_SIZES],
]
BRIEF = [["--workers", "2", "--reducers", "0,1", "--rate", "200mbit", "--size", "256K", "--iterations", "2"]]


def measure(run):
    if reason := unavailable_reason():
        raise CannotRun(reason)
    cases = []
    for options in run.pick(CASES, BRIEF):
        print(f"   hybrid.py {' '.join(options)}", flush=True)
        output = hybrid.measure(hybrid.parse(["--sluice", str(run.program), "--peers", str(run.programs), "--rounds", str(run.rounds), *options]))
        if output["failures"]:
            raise CannotRun("; ".join(output["failures"]))
        run.record_machine(output)
        cases.append({key: output[key] for key in ("workers", "links", "options", "rings", "load_average", "pools")})
    return cases


def text(cases):
    loads = [case["load_average"]["before"] for case in cases]
    return ("`bench/test_network/hybrid.py`: f32 sums over a pool of K reducers, each with the link of a worker, and a co-located reducer in every worker. Times are in "
            "units of S/goodput. The bound is the minimum that the links allow with co-located reducers. Ring / this is the faster ring's time over this one. CPU is that "
            f"of the workers with their co-located reducers. The load average before a run was {min(loads):.0f} to {max(loads):.0f}.")


def link_text(case):
    links = case["links"]
    slow = f", one at {links['slow_worker']:g}" if links["slow_worker"] else ""
    return " ".join([links["rate"] + slow, *case["options"]])


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def table(cases):
    rings = cases[0]["rings"]
    cells = []
    for case in cases:
        for r in case["pools"]:
            cells.append([r["workers"], link_text(case), size_text(r["bytes"]), r["reducers"], f"{1e3 * r['median_seconds']:.2f}", r["runs"], number(r["time"]),
                          number(r["bound"]), number(r["over_bound"]), *(number(r["rings"].get(name)) for name in rings), number(r["best_ring_over_this"], 2),
                          number(r["pool_alone"]), f"{r['cpu_seconds_per_gb']:.2f}", number(r["cpu_over_gloo"], 2), r["wrong"]])
    return markdown_table(["workers", "links", "size", "K", "ms", "runs", "time", "bound", "/ bound", *rings, "ring / this", "pool alone", "CPU s/GB", "/ Gloo's", "wrong"],
                          cells)


def plots(cases, folder):
    case = cases[0]
    rows = case["pools"]
    pools = [r["reducers"] for r in rows]
    series = [("sluice, co-located", pools, [r["time"] for r in rows])]
    series += [(name, pools, [r["rings"][name] for r in rows]) for name in case["rings"]]
    alone = [r for r in rows if r["pool_alone"] is not None]
    if alone:
        series.append(("pool alone", [r["reducers"] for r in alone], [r["pool_alone"] for r in alone]))
    title = f"allreduce of {size_text(rows[0]['bytes'])} f32, {case['workers']} workers, {case['links']['rate']}"
    return lines(folder, "colocated.svg", title, "reducers", "time / (S / goodput)", series, [("bound", pools, [r["bound"] for r in rows])])
