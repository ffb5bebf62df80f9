"""usage: health_rank.py hook|backend: a rank of a job in which the gradient of rank 1 has a NaN. Prints JSON.

hook: trains under DistributedDataParallel with the hook; the NaN is in step 3. The steps before the backward pass raised, and the exception.
backend: the backend "sluice", with a function for the findings on rank 0 only. The findings of a training and of two calls, and the exception of a group
with on_finding="raise", with its cause."""

import json
import os
import sys

import sluice
import sluice.torch
import torch
import torch.distributed as dist
from ddp_rank import Data, network
from package_test_bed import join_torch

SICK_RANK, SICK_STEP = 1, 3


def train(model, steps):
    """Yields after each backward pass."""
    current = 0

    def spoil(gradient):
        return with_nan(gradient) if current == SICK_STEP else gradient

    next(model.parameters()).register_hook(spoil)
    data = Data()
    for current in range(1, steps + 1):
        model.zero_grad()
        data.loss(model).backward()
        yield current


def with_nan(x):
    """On the sick rank a copy with a NaN."""
    if dist.get_rank() == SICK_RANK:
        x = x.clone()
        x.view(-1)[0] = float("nan")
    return x


def hook():
    join_torch("gloo")
    steps, error = 0, ""
    with sluice.session_from_torch(os.environ["REDUCERS"], on_finding="raise") as session:
        model = network()
        model.register_comm_hook(None, sluice.ddp_hook(session))
        try:
            for steps in train(model, 10):
                pass
        except Exception as raised:
            error = str(raised)
    return {"steps": steps, "error": error}


def backend():
    os.environ["SLUICE_REDUCERS"] = os.environ["REDUCERS"]
    findings = []
    join_torch("sluice", pg_options=sluice.torch.Options(on_finding=findings.append if os.environ["RANK"] == "0" else None))
    list(train(network(), SICK_STEP))
    of_training = len(findings)
    dist.all_reduce(with_nan(torch.ones(1000)))
    dist.reduce_scatter_tensor(torch.empty(50), with_nan(torch.ones(50 * dist.get_world_size())))
    printed = {"training": list(map(str, findings[:of_training])), "calls": list(map(str, findings[of_training:])), "raised": []}
    strict = dist.new_group(pg_options=sluice.torch.Options(on_finding="raise"))
    try:
        dist.all_reduce(with_nan(torch.ones(1000)), group=strict)
    except dist.DistBackendError as error:
        printed["raised"] = [str(error), error.__cause__.finding.rank]
    return printed


print(json.dumps({"hook": hook, "backend": backend}[sys.argv[1]]()))
dist.destroy_process_group()
