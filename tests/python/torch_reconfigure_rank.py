"""A rank of a group that torch.distributed reconfigures, with the variables NAME, RANK, WORLD_SIZE, STORE, FOLDER. It follows the lines on stdin:

configure NUMBER MEMBERS: makes the group of the members, for example "abd", and prints JSON with what it reduces and gathers. reduce: reduces, and prints
the error as JSON. The end of the input: destroys the group."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import sluice.torch  # noqa: F401
import torch
import torch.distributed as dist
from package_test_bed import join_torch
from torch.distributed.distributed_c10d import _get_reconfigure_handle, _reconfigure, _supports_reconfigure

TIMEOUT = timedelta(seconds=60)


def exchange(number, members):
    """Returns the handles of all members."""
    folder, name = Path(os.environ["FOLDER"]), os.environ["NAME"]
    draft = folder / f"draft-{name}"
    draft.write_text(_get_reconfigure_handle())
    draft.rename(folder / f"{number}-{name}")
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    files = [folder / f"{number}-{member}" for member in members]
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, "the other members did not come"
        time.sleep(0.01)
    return [file.read_text() for file in files]


def results():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, whole, exchanged = torch.full((1000,), float(rank + 1)), torch.empty(ranks << 18), torch.empty(ranks)
    dist.all_reduce(x)
    dist.all_gather_into_tensor(whole, torch.full((1 << 18,), float(rank)))
    dist.all_to_all_single(exchanged, torch.full((ranks,), float(rank)))  # in gloo
    return {"rank": rank, "sum": x[0].item(), "gathered": whole[:: 1 << 18].tolist(), "exchanged": exchanged.tolist()}


def error_of_reduction():
    try:
        dist.all_reduce(torch.ones(10))
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def configure(number, members):
    handles = exchange(number, members)
    begin = time.monotonic()
    _reconfigure(number, handles, timeout=TIMEOUT).wait()
    return {**results(), "seconds": time.monotonic() - begin}


def main():
    torch.set_num_threads(1)
    join_torch("sluice", enable_reconfigure=True, timeout=TIMEOUT)
    assert _supports_reconfigure()
    for line in sys.stdin:
        command, *arguments = line.split()
        print(json.dumps(configure(int(arguments[0]), arguments[1]) if command == "configure" else error_of_reduction()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
