"""Section: the backend of torch.distributed beside gloo."""

from pathlib import Path

import torch_backend
from run import CannotRun, markdown_table
from test_network import unavailable_reason

TITLE = "PyTorch: the backend sluice beside gloo"
ENVIRONMENT = Path("build/python-venv")
OPTIONS = ["--workers", "4", "--reducers", "0,4", "--rate", "200mbit", "--bytes", "96M", "--rounds", "1", "--repetitions", "2"]


def measure(run):
    return rows(run, *OPTIONS, *run.pick([], ["--bytes", "1M", "--rounds", "1", "--repetitions", "1"]))


def rows(run, *options):
    """The rows of torch_backend.py with these options, of which the last of a name counts."""
    if reason := unavailable_reason():
        raise CannotRun(reason)
    if not (ENVIRONMENT / "has-torch").exists():
        raise CannotRun(f"{ENVIRONMENT} has no torch: run scripts/python_env.sh")
    library = run.program.parents[1] / "lib" / "libsluice.so"
    arguments = torch_backend.parse(["--sluice", str(run.program), "--library", str(library), "--python", str(ENVIRONMENT / "bin" / "python"), *options])
    return list(torch_backend.rows_of(arguments, *torch_backend.measure(arguments)))


def text(_rows):
    return (f"`bench/test_network/torch_backend.py {' '.join(OPTIONS)}`: one torch process for each worker, a tensor or a network of 96 MiB of f32. Time and bound are in units of "
            "S/goodput; the bound is the minimum that the links allow. \"ddp communication\" is the time of a step of DistributedDataParallel minus that of the same step without "
            "communication. \"asynchronous\" gathers parameters beside gradients, as FSDP2 does on a GPU. \"call\" is the time until an asynchronous allreduce of 4 KiB returns.\n\n"
            "See also the times of 200 [kills under torchft](torchft.json), and [gloo's result and ours](../../tests/torch_suite/cases.tsv) for each case of "
            "PyTorch's own suite.")


def table(rows):
    cells = [[r["case"], r["entry"], f"{1e3 * r['median_seconds']:.3f}", f"{r['time']:.3f}" if r["bound"] else "", f"{r['bound']:.3f}" if r["bound"] else "",
              f"{r['gloo_over_this']:.2f}"] for r in sorted(rows, key=lambda r: r["case"])]
    return markdown_table(["case", "entry", "ms", "time", "bound", "gloo / this"], cells)
