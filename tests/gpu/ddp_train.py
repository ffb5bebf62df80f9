"""Trains a small network with PyTorch DDP over NCCL and writes the losses of rank 0. All ranks share one GPU; the data depends on a seed only.

usage: ddp_train.py --ranks N --steps N --losses FILE [--groups]. --groups: eager initialization (device_id) and a subgroup by ncclCommSplit."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def rank_main(rank, arguments, store):
    os.environ["NCCL_HOSTID"] = f"node{rank}"
    torch.cuda.set_device(0)
    torch.manual_seed(1)
    options = {"device_id": torch.device("cuda:0")} if arguments.groups else {}
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks, **options)
    if arguments.groups:
        group = dist.new_group(list(range(arguments.ranks)))
        x = torch.full((1 << 20,), float(rank + 1), device="cuda")
        dist.all_reduce(x, group=group)
        assert x.eq(arguments.ranks * (arguments.ranks + 1) / 2).all().item(), "the sum in the subgroup is wrong"
    model = torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024), torch.nn.ReLU(),
                                torch.nn.Linear(1024, 10)).cuda()
    model = DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = torch.Generator(device="cuda").manual_seed(100 + rank)
    teacher = torch.randn(256, 10, device="cuda", generator=torch.Generator(device="cuda").manual_seed(7))
    losses = []
    for _ in range(arguments.steps):
        x = torch.randn(64, 256, device="cuda", generator=data)
        loss = torch.nn.functional.cross_entropy(model(x), (x @ teacher).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / arguments.ranks)
    if rank == 0:
        with open(arguments.losses, "w", encoding="utf-8") as out:
            out.writelines(f"{loss:.9f}\n" for loss in losses)
        print(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}: {arguments.steps} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--losses", required=True)
    parser.add_argument("--groups", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(arguments, os.path.join(folder, "store")), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
