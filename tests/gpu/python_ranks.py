"""Ranks that share one GPU and use the Python package: tensors on streams, then training with the DDP hook on CUDA gradients.

usage: python_ranks.py --ranks N --reducers LIST --losses FOLDER. FOLDER/WIRE has the losses of rank 0 for each wire type, FOLDER/gloo those of gloo."""

import argparse
import os
import tempfile
from pathlib import Path

import sluice
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

DTYPES = (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
COUNTS = (1, 1000, 3_000_001)
WIRES = ("f32", "bf16", "mxfp8", "int8")
STEPS = 100


def check_sums(session):
    """The stream is still busy when each operation starts: a result that did not wait for it, or that later work did not wait for, is wrong."""
    stream = torch.cuda.Stream()
    total = session.ranks * (session.ranks + 1) // 2
    for dtype in DTYPES:
        for count in COUNTS:
            with torch.cuda.stream(stream):
                pattern = torch.arange(count, device="cuda") % 5
                torch.cuda._sleep(20_000_000)  # cycles, about 10 ms
                tensor = (pattern * (session.rank + 1)).to(dtype)
                out = torch.full_like(tensor, 77)
                session.allreduce_async(tensor, out=out)
                doubled = out + out
                session.allreduce_async(tensor, "max")
                check_collectives(session, dtype, count, pattern)
            stream.synchronize()
            assert torch.equal(doubled.double(), 2.0 * total * pattern.double()), f"wrong sums of {count} {dtype}"
            assert torch.equal(tensor.double(), session.ranks * pattern.double()), f"wrong maxima of {count} {dtype}"
    assert torch.equal(session.allreduce(torch.ones(1000)), torch.full((1000,), float(session.ranks))), "wrong sums in host memory"


def check_collectives(session, dtype, count, pattern):
    """The other collectives, of the current stream, with a last part of another length."""
    ranks, rank = session.ranks, session.rank
    counts = [count // ranks] * (ranks - 1) + [count - count // ranks * (ranks - 1)]
    begin = sum(counts[:rank])
    whole = (pattern * (rank + 1)).to(dtype)
    part = torch.full((counts[rank],), 77, dtype=dtype, device="cuda")
    session.reduce_scatter_async(whole, part, "max", counts=counts)
    gathered = torch.full_like(whole, 77)
    gathered[begin:begin + counts[rank]] = part + part
    session.all_gather_async(gathered[begin:begin + counts[rank]], gathered, counts=counts)
    copied = torch.full_like(whole, rank)
    with session.group():
        session.broadcast_async(copied, root=ranks - 1)
        session.reduce_async(whole, root=0)
    assert torch.equal(gathered.double(), 2.0 * ranks * pattern.double()), f"wrong gathered maxima of {count} {dtype}"
    assert torch.equal(copied.double(), torch.full_like(pattern, ranks - 1).double()), f"wrong broadcast of {count} {dtype}"
    total = ranks * (ranks + 1) // 2 if rank == 0 else rank + 1
    assert torch.equal(whole.double(), float(total) * pattern.double()), f"wrong reduce of {count} {dtype}"


def check_wire(session):
    """A reduce-scatter of whole blocks rounds and keeps what an allreduce does, in all wire types but f16."""
    count = 256 * 1001
    whole = torch.randn(count * session.ranks, device="cuda", generator=torch.Generator(device="cuda").manual_seed(session.rank))
    residual, feedback = torch.zeros_like(whole), torch.zeros_like(whole)
    part, total = torch.empty(count, device="cuda"), torch.empty_like(whole)
    session.reduce_scatter_async(whole, part, residual=residual)
    session.allreduce_async(whole, out=total, residual=feedback)
    assert torch.equal(part, total[count * session.rank:][:count]), f"wrong reduce-scatter as {session.wire_dtype}"
    assert torch.equal(residual, feedback), f"wrong residual of a reduce-scatter as {session.wire_dtype}"


def train(rank, hook=None):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
    model = DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=2)
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = torch.Generator(device="cuda").manual_seed(100 + rank)
    teacher = torch.randn(256, 10, device="cuda", generator=torch.Generator(device="cuda").manual_seed(7))
    losses = []
    for _ in range(STEPS):
        x = torch.randn(64, 256, device="cuda", generator=data)
        loss = torch.nn.functional.cross_entropy(model(x), (x @ teacher).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().cpu()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def write_losses(folder, losses):
    """losses: {name of the file: those of each step}."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in losses.items():
        (folder / name).write_text("".join(f"{value:.9f}\n" for value in values), encoding="utf-8")
        print(f"{name}: {STEPS} steps, loss {values[0]:.4f} to {values[-1]:.4f}")


def rank_main(rank, arguments, store):
    torch.cuda.set_device(0)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks)
    losses = {"gloo": train(rank)}
    for wire in WIRES:
        with sluice.session_from_torch(arguments.reducers, device="cuda", wire_dtype=wire) as session:
            if wire == "f32":
                check_sums(session)
            check_wire(session)
            losses[wire] = train(rank, sluice.ddp_hook(session))
    if rank == 0:
        write_losses(arguments.losses, losses)
    dist.destroy_process_group()


def run_ranks(rank_main):
    """Runs rank_main(rank, arguments, file for the store of torch) in a process for each rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--reducers", required=True)
    parser.add_argument("--losses", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(arguments, os.path.join(folder, "store")), nprocs=arguments.ranks)


if __name__ == "__main__":
    run_ranks(rank_main)
