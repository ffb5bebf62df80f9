"""Part of the section hosts: what collectives cost a training that computes on each core."""

from run import markdown_table, size_text
from sections import hosts

TITLE = "Beside a computing thread on each core"
# Options of hosts.py.
CASES = [
    # Without Open MPI, whose ranks wait a time slice in each operation then.
    ["--hosts", "1", "--entries", "gloo-ring", "--ranks-per-host", "2,4", "--size", "64K", "--computing", "0.25", "--iterations", "20"],
    ["--hosts", "1", "--entries", "gloo-ring,openmpi", "--ranks-per-host", "2,4", "--size", "1M,16M", "--computing", "0.25", "--iterations", "20"],
    ["--hosts", "2", "--entries", "gloo-ring", "--rate", "400mbit", "--ranks-per-host", "4", "--reducers", "0", "--sharing", "auto", "--size", "4M", "--computing", "1",
     "--iterations", "10"],
]
BRIEF = [["--hosts", "1", "--entries", "gloo-ring", "--ranks-per-host", "2", "--size", "64K", "--computing", "0.5", "--iterations", "2"]]


def measure(run):
    return [{"options": options, "load_average": output["load_average"], "failures": output["failures"], "rows": output["results"]}
            for options, output in hosts.outputs(run, [["--collectives", "allreduce", *case] for case in run.pick(CASES, BRIEF)])]


def text(cases):
    shares = " or ".join(dict.fromkeys(case["options"][case["options"].index("--computing") + 1] for case in cases))
    return (f"`bench/test_network/hosts.py --computing` ([options](../../bench/report/parts/computing.py)): a thread computes on each core of the machine, and allreduces start in a "
            f"rhythm in which they take up a share of {shares} of the time when nothing computes. Lost is the part of the computation that is missing beside the operations. Sums is "
            "the processor time of all ranks for the operations, as a share of that of all cores: alone or beside the computation, whichever is less. Beyond is the difference. The "
            f"load average was {cases[0]['load_average']['before']:.0f} before.")


def table(cases):
    return markdown_table(["hosts", "L", "S", "entry", "ms alone", "ms beside", "lost %", "sums %", "beyond %"],
                          [[r["hosts"], r["ranks_per_host"], size_text(r["bytes"]), r["entry"], f"{1e3 * r['median_seconds']:.3f}", f"{1e3 * r['median_seconds_beside']:.3f}",
                            *(f"{100 * r[key]:.1f}" for key in ("loss", "sums", "beyond"))] for case in cases for r in case["rows"]])
