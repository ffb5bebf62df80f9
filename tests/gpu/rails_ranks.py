"""Ranks that share one GPU and stand for those of two hosts, in the torch.distributed backend "sluice": collectives that a host reduces first, in NCCL or gloo,
and the rest on rails. Then training with DDP, and the collectives with all ranks on one host.

usage: rails_ranks.py --ranks N --reducers LIST --losses FOLDER [--group nccl|gloo] [--device cpu]. FOLDER/plain and FOLDER/GROUP have the losses of rank 0 in
gloo and in the backend. NCCL sees each rank as a host, because it refuses two ranks of a host on one GPU. --device cpu runs it on host streams, over gloo."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from sluice.torch.device import STREAMED, CudaDevice, HostDevice
from sluice.torch.rails.railed_session import RailedSession
from torch.nn.parallel import DistributedDataParallel

COUNTS = (1, 1000, 100_000, 3_000_001)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8)
STEPS = 50


class GlooInside(CudaDevice):
    """A GPU whose ranks of a host use gloo in place of NCCL."""

    has_groups = HostDevice.has_groups
    new_group = HostDevice.new_group
    close_group = HostDevice.close_group
    abort_group = HostDevice.abort_group


def busy(device):
    """Later work of the current stream runs when this thread has gone on: a result that nothing waited for is wrong."""
    if device.type == "cuda":
        torch.cuda._sleep(20_000_000)  # cycles, about 10 ms


def check(name, found, expected):
    assert torch.equal(found.cpu().double(), expected.cpu().double()), f"wrong {name}"


def check_collectives(rank, ranks, device):
    total = ranks * (ranks + 1) // 2
    for count in COUNTS:
        pattern = torch.arange(count, device=device) % 3
        for dtype in DTYPES:
            name, mine = f"{count} {dtype}", (pattern * (rank + 1)).to(dtype)
            x, largest, rooted, sent = mine.clone(), mine.clone(), mine.clone(), torch.full_like(mine, rank)
            part, whole = torch.zeros_like(mine), torch.zeros(ranks * count, dtype=dtype, device=device)
            busy(device)
            work = dist.all_reduce(x, async_op=True)
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            dist.reduce(rooted, ranks - 1)
            dist.broadcast(sent, 1)
            dist.all_gather_into_tensor(whole, mine)
            dist.reduce_scatter_tensor(part, whole)
            work.wait()
            doubled = x + x
            check(f"sum of {name}", doubled, 2 * total * pattern)
            check(f"maximum of {name}", largest, ranks * pattern)
            check(f"reduce of {name}", rooted, total * pattern if rank == ranks - 1 else mine)
            check(f"broadcast of {name}", sent, torch.full_like(mine, 1))
            check(f"gathered {name}", whole, torch.cat([pattern * (each + 1) for each in range(ranks)]))
            check(f"scattered sum of {name}", part, ranks * (rank + 1) * pattern)
        average = (ranks * pattern * (rank + 1)).float()
        dist.all_reduce(average, dist.ReduceOp.AVG)
        check(f"average of {count}", average, total * pattern)
    pieces = [torch.full((count,), 1.0, device=device) for count in COUNTS]
    with dist._coalescing_manager():
        for piece in pieces:
            dist.all_reduce(piece)
    check("coalesced sums", torch.cat(pieces), torch.full((sum(COUNTS),), float(ranks)))
    dist.barrier()
    assert dist.group.WORLD.error() is None


def train(rank, device):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).to(device)
    model = DistributedDataParallel(model, device_ids=[0] if device.type == "cuda" else None, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = torch.Generator().manual_seed(100 + rank)
    teacher = torch.randn(256, 10, generator=torch.Generator().manual_seed(7))
    losses = []
    for _ in range(STEPS):
        x = torch.randn(64, 256, generator=data)
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), (x @ teacher).argmax(1).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def join(backend, arguments, store, rank, host, attempt=""):
    os.environ["SLUICE_HOST_ID"] = host
    dist.init_process_group(backend, init_method=f"file://{store}-{backend}{attempt}", rank=rank, world_size=arguments.ranks)


def rank_main(rank, arguments, store):
    device = torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_HOSTID=f"node{rank}", SLUICE_HOSTS="auto", SLUICE_REDUCERS=arguments.reducers)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    own = "ab"[2 * rank // arguments.ranks]
    losses = {}
    join("gloo", arguments, store, rank, own)
    losses["plain"] = train(rank, device)
    dist.destroy_process_group()
    STREAMED[device.type] = HostDevice if device.type == "cpu" else CudaDevice if arguments.group == "nccl" else GlooInside
    for host in own, "all":
        join("sluice", arguments, store, rank, host, "on-one-host" if host == "all" else "")
        check_collectives(rank, arguments.ranks, device)
        streams = dist.group.WORLD._streams
        assert isinstance(streams.session, RailedSession), "the hosts do not reduce first"
        if host == own:
            losses[arguments.group] = train(rank, device)
            rail = dist.group.WORLD.session(device)
            assert rail.ranks == 2, rail
            print(f"rank {rank}: rail {rail.stream_stats()}, {rail.stats().payload_bytes_out} bytes sent", flush=True)
        else:
            assert streams.counted is None, "one host needs no session"
        dist.destroy_process_group()
    if rank == 0:
        for name, values in losses.items():
            (arguments.losses / name).write_text("".join(f"{value:.9f}\n" for value in values), encoding="utf-8")
            print(f"{name}: {STEPS} steps, loss {values[0]:.4f} to {values[-1]:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4, help="an even number")
    parser.add_argument("--reducers", required=True)
    parser.add_argument("--losses", type=Path, required=True)
    parser.add_argument("--group", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    arguments.losses.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(arguments, os.path.join(folder, "store")), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
