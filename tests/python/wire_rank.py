"""usage: wire_rank.py hook|backend TYPE...: a rank whose float32 travels as each of the types, one after the other. Prints a line of JSON for each.

hook: trains under DistributedDataParallel with the hook; the losses with and without error feedback, and whether all ranks have equal parameters.
backend: all_reduces of the backend "sluice": a gradient's error without and with the steps before, a short tensor, bytes on the wire, and
reduce-scatters with error feedback or without."""

import gc
import json
import os
import sys

import sluice
import sluice.torch
import torch
import torch.distributed as dist
from ddp_rank import network, train
from package_test_bed import join_torch

COUNT = 100_000


def hook():
    printed = {}
    for name, feedback in (("feedback", None), ("none", False)):
        with sluice.session_from_torch(os.environ["REDUCERS"]) as session:
            model = network()
            model.register_comm_hook(None, sluice.ddp_hook(session, error_feedback=feedback))
            printed[name] = train(model, 50)
            parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
            of_ranks = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]
            dist.all_gather(of_ranks, parameters)
            printed[name + "_equal"] = all(torch.equal(of_ranks[0], other) for other in of_ranks)
            printed["cast"] = session.stream_stats().elements_cast
    return printed


def scattered_errors(group, gradient, exact):
    """The errors of a part of the sum: of one reduce-scatter, of the next, and of the mean of many, each with the same input."""
    part, total, errors = torch.empty(COUNT // dist.get_world_size()), torch.zeros(COUNT // dist.get_world_size()), []
    own = exact.chunk(dist.get_world_size())[dist.get_rank()]
    for _ in range(32):
        dist.reduce_scatter_tensor(part, gradient, group=group)
        total += part
        errors.append(((part - own).norm() / own.norm()).item())
    return [*errors[:2], ((total / 32 - own).norm() / own.norm()).item()]


def backend():
    ranks, rank = dist.get_world_size(), dist.get_rank()
    gradient = torch.randn(COUNT, generator=torch.Generator().manual_seed(rank))
    exact = sum(torch.randn(COUNT, generator=torch.Generator().manual_seed(r)) for r in range(ranks))
    total, buffer, first = torch.zeros(COUNT), torch.empty(COUNT), 0.0
    for step in range(1, 33):
        buffer.copy_(gradient)  # the same memory in each step, as DDP's buckets
        dist.all_reduce(buffer)
        total += buffer
        if step == 1:
            first = ((total - exact).norm() / exact.norm()).item()
    short = torch.full((8191,), 1 / 3)
    dist.all_reduce(short)
    sent = dist.group.WORLD.session().stats().payload_bytes_out
    # A group may choose another type than the variable.
    plain = dist.new_group(pg_options=sluice.torch.Options(wire_dtype="f32"))
    buffer.copy_(gradient)
    dist.all_reduce(buffer, group=plain)
    scattered = {name: scattered_errors(dist.new_group(pg_options=sluice.torch.Options(error_feedback=chosen)), gradient, exact)
                 for name, chosen in (("unasked", None), ("asked", True))}
    return {"scattered": scattered, "first": first, "mean": ((total / 32 - exact).norm() / exact.norm()).item(), "short": short.unique().tolist(), "sent": sent,
            "plain": torch.equal(buffer, exact)}


def main():
    torch.set_num_threads(1)
    run, group = {"hook": (hook, "gloo"), "backend": (backend, "sluice")}[sys.argv[1]]
    os.environ["SLUICE_REDUCERS"] = os.environ["REDUCERS"]
    for wire in sys.argv[2:]:
        os.environ["SLUICE_WIRE"] = wire
        os.environ["STORE"] += f"-{wire}"
        join_torch(group)
        print(json.dumps(run()))
        gc.collect()  # cycles of DDP hold the group, whose threads must not run when the interpreter ends
        dist.destroy_process_group()


main()
