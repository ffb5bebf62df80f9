"""Trains a small network with HSDP: shards within the ranks of a node, replicas over the nodes.

    torchrun --nproc-per-node 4 examples/torch/train_hsdp.py --shards 2 --backend sluice

It prints "step 0 loss 17.672510147094727" to "step 4 loss 5.3723955154418945"."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--shards", type=int, default=1, help="ranks that share one replica")
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)

    torch.manual_seed(1)  # the same parameters on all ranks
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    mesh = init_device_mesh("cpu", (dist.get_world_size() // arguments.shards, arguments.shards), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(dist.get_rank())  # other data on each rank
    for step in range(5):
        inputs = torch.randn(32, 20, generator=data)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
