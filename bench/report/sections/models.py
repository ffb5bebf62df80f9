"""Section: models (sluice.store) beside Redis and torchft."""

import models
from plots import bars
from run import CannotRun, markdown_table, size_text
from test_network import unavailable_reason

TITLE = "Models beside Redis and torchft"
# Options of models.py. The first case is the plot.
CASES = [["--rate", "200mbit", "--bytes", "64M", "--reducers", "6,4"]]
BRIEF = [["--rate", "200mbit", "--bytes", "256K", "--reducers", "2", "--workers", "2", "--readers", "2", "--models", "2", "--repetitions", "1"]]


def measure(run):
    if reason := unavailable_reason():
        raise CannotRun(reason)
    cases = []
    for options in run.pick(CASES, BRIEF):
        arguments = models.parse(["--sluice", str(run.program), "--rounds", str(run.rounds), *options])
        if not arguments.python.exists():
            raise CannotRun(f"{arguments.python} does not exist: run scripts/python_env.sh")
        try:
            cases.append({"options": options, **models.measure(arguments)})
        except SystemExit as error:
            raise CannotRun(str(error)) from error
    return cases


def text(cases):
    first = cases[0]
    pages = sum(row["disk_read_bytes"] for case in cases for row in case["rows"] if "disk_read_bytes" in row)
    commands = " and ".join(f"`models.py {' '.join(case['options'])}`" for case in cases)
    missing = "".join(f" Not measured: {peer}." for peer in first["missing"])
    rounds = f"{first['rounds']} round{'s' if first['rounds'] > 1 else ''}"
    return (f"{commands}, {rounds} ([bounds](../../bench/test_network/models.py)). \"step\": all workers push, then pull. \"push_pull\": in one call. "
            f"\"overlapped\": step after step of {first['models']} models at once. \"read\": {first['readers']} readers pull one version. mxfp8: of pushes, or of readers. Reducers read {pages or 'no'} bytes from disks.{missing}")


def table(cases):
    cells = []
    for case in cases:
        for r in case["rows"]:
            egress = f"{100 * r['egress_of_links']:.0f} %" if "egress_of_links" in r else ""
            phases = [f"{r[phase]:.3f}" if phase in r else "" for phase in ("push", "pull")]
            cells.append([case["rate"], size_text(case["bytes"]), r["case"], r["entry"], f"{1e3 * r['median_seconds']:.0f}", r["runs"], f"{r['time']:.3f}", f"{r['bound']:.3f}",
                          f"{r['over_bound']:.3f}", *phases, egress])
    return markdown_table(["links", "S", "case", "entry", "ms", "runs", "time", "bound", "/ bound", "push", "pull", "egress"], cells)


def plots(cases, folder):
    case = cases[0]
    groups = [(name, [(r["entry"], r["time"], r["bound"]) for r in case["rows"] if r["case"] == name]) for name in models.CASES]
    return bars(folder, "models.svg", f"{size_text(case['bytes'])}, {case['workers']} workers, {case['rate']}", "time / (S / goodput)", groups)
