"""usage: torch_rank.py BACKEND ROUND-SETTINGS-JSON: one rank of torch_backend.py. Prints a line of JSON with the seconds of every repetition of
every case: single collectives of --bytes, steps of DistributedDataParallel and FSDP2 with and without communication. The cases with bf16 are
fsdp.offload() with the backend sluice, and torch's own collectives with gloo, in f32."""

import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

BACKEND, SETTINGS = sys.argv[1], json.loads(sys.argv[2])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "reduce_scatter beside all_gather", "broadcast", "all_reduce of 4 KiB")
if BACKEND == "sluice":
    import sluice.torch.fsdp  # registers the backend too


def wanted(*names):
    return any(name in SETTINGS["cases"] for name in names)


def timed(call):
    """Seconds of each repetition, from a barrier to the end on this rank."""
    times = []
    for repetition in range(SETTINGS["warmup"] + SETTINGS["repetitions"]):
        dist.barrier()
        began = time.monotonic()
        call()
        if repetition >= SETTINGS["warmup"]:
            times.append(time.monotonic() - began)
    return times


def collectives():
    if not wanted(*COLLECTIVES):
        return
    elements = SETTINGS["bytes"] // 4 // RANKS * RANKS
    whole, part = torch.ones(elements), torch.ones(elements // RANKS)
    other_whole, other_part = torch.ones(elements), torch.ones(elements // RANKS)

    def both():  # as in the backward pass of FSDP2: this layer's gradients beside the next one's parameters
        works = [dist.reduce_scatter_tensor(part, whole, async_op=True), dist.all_gather_into_tensor(other_whole, other_part, async_op=True)]
        for work in works:
            work.wait()

    yield "all_reduce", lambda: dist.all_reduce(whole)
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(part, whole)
    yield "all_gather", lambda: dist.all_gather_into_tensor(whole, part)
    yield "reduce_scatter beside all_gather", both
    yield "broadcast", lambda: dist.broadcast(whole, 0)
    yield "all_reduce of 4 KiB", lambda small=torch.ones(1024): dist.all_reduce(small)


def network(activation):
    """A network of `bytes` of parameters in 8 equal layers."""
    width = int((SETTINGS["bytes"] / 4 / 8) ** 0.5)
    return torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(width, width, bias=False), activation())]), width


def steps(wrap, activation=torch.nn.ReLU, make_input=torch.ones):
    model, width = network(activation)
    model = wrap(model)
    x = make_input(4, width)

    def step():
        model(x).sum().backward()

    return model, step


def wrap_layers(model, asynchronous=False, mesh=None):
    """Shards each layer. `asynchronous`: FSDP2 gathers the next layer's parameters beside this layer's gradients, as it does on a GPU."""
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if asynchronous and isinstance(module, FSDPModule):
            module._set_unshard_async_op(True)
    return model


def offloaded(model):
    if BACKEND == "sluice":
        sluice.torch.fsdp.offload(model, "bf16")
    return model


def hybrid(model, with_copies=True):
    """A copy of the model on each host, whose ranks have one shard each. Without copies: the model of each host trains alone."""
    shards = SETTINGS["ranks_per_host"]
    mesh = init_device_mesh("cpu", (RANKS // shards, shards), mesh_dim_names=("replicate", "shard"))
    if not with_copies:
        return wrap_layers(model, mesh=mesh["shard"])
    if BACKEND != "sluice":
        return wrap_layers(model, mesh=mesh)
    wrap_layers(model, mesh=mesh["shard"])
    sluice.torch.fsdp.offload(model, "bf16", replicas=mesh["replicate"])
    return model


def trainings():
    """Makes a model only where a case of it is measured: those of many ranks would fill the memory."""
    if wanted("ddp step", "ddp step without communication"):
        ddp, step = steps(DistributedDataParallel)

        def alone():
            with ddp.no_sync():
                step()

        yield "ddp step", step
        yield "ddp step without communication", alone
    # No gradient of HSDP's is 0, since zeros are not sent.
    dense = {"activation": torch.nn.Tanh, "make_input": torch.randn}
    for name, wrap, how in (("fsdp2 step", wrap_layers, {}),
                            ("fsdp2 step, asynchronous", lambda model: wrap_layers(model, asynchronous=True), {}),
                            ("fsdp2 step, asynchronous, bf16", lambda model: offloaded(wrap_layers(model, asynchronous=True)), {}),
                            ("hsdp step, bf16", hybrid, dense),
                            ("hsdp step without copies", lambda model: hybrid(model, with_copies=False), dense)):
        if wanted(name):
            yield name, steps(wrap, **how)[1]


def call_seconds():
    """Seconds of an asynchronous allreduce of 4 KiB: from the call until it returns, which is what Python costs, and until wait() returns."""
    small, calls, waits = torch.ones(1024), [], []
    for _ in range(SETTINGS["calls"]):
        began = time.perf_counter()
        work = dist.all_reduce(small, async_op=True)
        calls.append(time.perf_counter() - began)
        work.wait()
        waits.append(time.perf_counter() - began)
    return {"call": calls[20:], "call and wait": waits[20:]}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group(BACKEND, init_method=SETTINGS["store"], rank=RANK, world_size=RANKS, timeout=datetime.timedelta(seconds=120))
    cases = {name: timed(call) for kind in (collectives, trainings) for name, call in kind() if wanted(name)}
    print(json.dumps({**cases, **(call_seconds() if wanted("call") else {})}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
