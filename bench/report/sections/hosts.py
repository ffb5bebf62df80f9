"""Section: hosts with several ranks behind one network card, over links and on one host alone."""

import json
from pathlib import Path

import hosts
from plots import lines
from run import CannotRun, markdown_table, size_text
from test_network import unavailable_reason

TITLE = "Several ranks per host"
RESULTS = "hosts.json"  # a line for each row
FACTS = {"command": "bench/test_network/hosts.py"}
LINKS = ["--hosts", "4", "--rate", "200mbit"]
# Options of hosts.py. The allreduces of this size over links are the plot.
PLOTTED = "16M"
PEERS = ["--entries", "gloo-ring,openmpi"]
CASES = [
    [*LINKS, *PEERS, "--ranks-per-host", "2,4,8", "--reducers", "0,2,4", "--sharing", "auto", "--size", PLOTTED, "--collectives", "allreduce", "--iterations", "6",
     "--warmup", "1"],
    [*LINKS, "--entries", "gloo-ring", "--ranks-per-host", "2,4,8", "--reducers", "4", "--sharing", "off", "--size", PLOTTED, "--collectives", "allreduce", "--iterations", "2",
     "--warmup", "0"],
    [*LINKS, "--entries", "gloo-ring", "--ranks-per-host", "2,4,8", "--reducers", "0,2,4", "--sharing", "auto", "--size", "64M", "--collectives", "allreduce",
     "--iterations", "3", "--warmup", "0"],
    [*LINKS, *PEERS, "--ranks-per-host", "4", "--reducers", "0,4", "--sharing", "auto", "--size", PLOTTED, "--collectives", "reduce_scatter,all_gather,both",
     "--iterations", "6", "--warmup", "1"],
    [*LINKS, *PEERS, "--ranks-per-host", "4", "--reducers", "0,4", "--sharing", "auto", "--size", "4K,64K,1M", "--collectives", "allreduce,reduce_scatter,all_gather",
     "--iterations", "40"],
    ["--hosts", "1", "--ranks-per-host", "2,4,8", "--size", "4K,16K,64K,256K", "--collectives", "allreduce", "--iterations", "500", "--warmup", "50"],
    ["--hosts", "1", "--ranks-per-host", "2,4,8", "--size", "1M,16M,64M", "--collectives", "allreduce", "--iterations", "10"],
]
BRIEF = [["--hosts", "2", "--rate", "400mbit", "--ranks-per-host", "2", "--reducers", "2", "--size", "256K", "--collectives", "allreduce", "--iterations", "2"],
         ["--hosts", "1", "--ranks-per-host", "2", "--size", "64K", "--collectives", "both", "--iterations", "2"]]


def outputs(run, cases):
    """The options of each case and what hosts.py returns with them."""
    if reason := unavailable_reason():
        raise CannotRun(reason)
    for options in cases:
        print(f"   hosts.py {' '.join(options)}", flush=True)
        output = hosts.measure(hosts.parse(["--sluice", str(run.program), "--peers", str(run.programs), "--rounds", str(run.rounds), *options]))
        run.record_machine(output)
        yield options, output


def measure(run):
    cases = []
    for options, output in outputs(run, run.pick(CASES, BRIEF)):
        new = [row for row in output["results"] if row["sharing"] or not any(same_case(row, other) for case in cases for other in case["rows"])]
        cases.append({"options": options, **{key: output[key] for key in ("hosts", "rate", "load_average", "failures")},
                      "rows": new})
    return cases


def same_case(row, other):
    """A library that two runs compare with is listed once."""
    return all(row[key] == other[key] for key in ("entry", "hosts", "ranks_per_host", "collective", "bytes"))


def text(cases):
    loads = [case["load_average"] for case in cases]
    failures = [failure.splitlines()[0] for case in cases for failure in case["failures"]]
    return ("`bench/test_network/hosts.py` ([options](../../bench/report/sections/hosts.py)): L ranks on each of 4 hosts behind one link of 200 Mb/s, K reducers with the link of a host, or one host without a network. Each row is "
            "timed at blocking calls in C, by the driver of its library. \"hosts off\": each rank sends all its data (SLUICE_HOSTS=off). Times are in units of S/goodput of "
            "a host's link. The bound is the minimum of the links with one stream for each host. Sent is what a host's interface sent, headers included, in units of S. "
            "Peer / this is the time of the best other library over this one. CPU is that of all ranks; Open MPI's spin while they wait. "
            f"{polling(cases)}The load average was "
            f"{loads[0]['before']:.0f} before the first run, from other work on the machine, and {min(load['median'] for load in loads):.0f} to "
            f"{max(load['greatest'] for load in loads):.0f} in the runs: medians of many ranks measure the wait for processors, too, and minima less so."
            + (" Not measured: " + "; ".join(failures) + "." if failures else "")
            + "\n\n" + text_of_torch())


def text_of_torch():
    """Of the run whose results are kept beside this section's."""
    rows = json.loads((Path(__file__).parents[3] / "docs/results/torch_hosts.json").read_text(encoding="utf-8"))["rows"]
    faster = {(row["entry"], row["case"]): f"{row['gloo_over_this']:.2f} x" for row in rows}

    def both(case):
        return f"{faster['sluice K=0', case]} and {faster['sluice K=4', case]}"

    return ("PyTorch with 2 ranks on each host, beside gloo, is in [torch_hosts.json](torch_hosts.json): `bench/test_network/torch_backend.py --workers 4 "
            "--ranks-per-host 2 --reducers 0,4 --rate 200mbit --bytes 48M --rounds 1 --repetitions 2`. Without reducers and with 4, a step of DistributedDataParallel is "
            f"{both('ddp step')} as fast; one of FSDP2 that gathers asynchronously {both('fsdp2 step, asynchronous')}; one of HSDP with bf16 on the wire "
            f"{both('hsdp step, bf16')}. Many gradients of this network are zeros, which are not sent.")


def polling(cases):
    if not any(row["entry"] == "mpich" for case in cases for row in case["rows"]):
        return ""
    return "MPICH's ranks never yield a core, so it was measured only where each rank has one. "


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def table(cases):
    cells = [[r["hosts"], r["ranks_per_host"], r["collective"], size_text(r["bytes"]), r["entry"], f"{1e3 * r['median_seconds']:.3f}", f"{1e3 * r['least_seconds']:.3f}",
              r["runs"], number(r["time"]), number(r["bound"]), number(r["over_bound"]), number(r["least_over_bound"]), number(r["sent"]), number(r["sent_over_bound"]),
              number(r["best_peer_over_this"], 2), f"{r['cpu_seconds_per_gb']:.2f}", r["wrong"]] for case in cases for r in case["rows"]]
    return markdown_table(["hosts", "L", "collective", "S", "entry", "ms", "least ms", "runs", "time", "bound", "/ bound", "least / bound", "sent", "sent / bound", "peer / this",
                           "CPU s/GB", "wrong"], cells)


def plots(cases, folder):
    size = cases[0]["rows"][0]["bytes"]
    rows = [r for case in cases for r in case["rows"] if (r["collective"], r["bytes"]) == ("allreduce", size) and r["time"]]
    shown = [entry for entry in SERIES if any(r["entry"] == entry for r in rows)]
    limits = {r["reducers"]: r["bound"] for r in rows if r["sharing"] == "auto"}
    counts = sorted({r["ranks_per_host"] for r in rows})
    bounds = [(f"bound, {reducers} reducers", counts, [limit] * len(counts)) for reducers, limit in sorted(limits.items())]
    title = f"allreduce of {size_text(size)} f32, {cases[0]['hosts']} hosts, {cases[0]['rate']}"

    def plot(name, what, column):
        series = [(SERIES[entry], *zip(*[(r["ranks_per_host"], r[column]) for r in rows if r["entry"] == entry])) for entry in shown]
        return lines(folder, name, f"{title}: {what}", "ranks per host", what, series, bounds, log_y=True)

    return plot("hosts.svg", "time / (S / goodput)", "time") + plot("hosts-bytes.svg", "bytes sent by a host / S", "sent")


SERIES = {"sluice, 0 reducers": "sluice, 0 reducers", "sluice, 2 reducers": "sluice, 2 reducers", "sluice, 4 reducers": "sluice, 4 reducers",
          "sluice, 4 reducers, hosts off": "sluice, 4 reducers, hosts off", "gloo-ring": "Gloo", "openmpi": "Open MPI"}
