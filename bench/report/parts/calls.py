"""Part of the section torch_backend: what a call of the backend costs between two ranks alone."""

from run import markdown_table
from sections import torch_backend

TITLE = "A call of the backend"
# Options of torch_backend.py for two ranks, without reducers.
CASES = {"one host": ["--workers", "1", "--ranks-per-host", "2"], "two hosts": ["--workers", "2"]}
OPTIONS = ["--reducers", "0", "--rate", "0", "--cases", "call"]


def measure(run):
    counts = ["--calls", run.pick("2000", "50"), "--rounds", str(run.rounds)]
    return [{"ranks": case, **row} for case, options in CASES.items() for row in torch_backend.rows(run, *options, *OPTIONS, *counts)]


def text(_rows):
    return (f"`bench/test_network/torch_backend.py {' '.join(OPTIONS)}` with `--workers 1 --ranks-per-host 2` and `--workers 2`: two ranks, alone on the machine, without a limit of the "
            "link. An asynchronous allreduce of 4 KiB, at the slower rank: \"call\" until it returns, from Python to the wire; \"call and wait\" until its wait() returns.")


def table(rows):
    return markdown_table(["ranks on", "case", "entry", "us", "gloo / this"],
                          [[r["ranks"], r["case"], r["entry"], f"{1e6 * r['median_seconds']:.1f}", f"{r['gloo_over_this']:.2f}"] for r in rows])
