"""Trains a small network with FSDP2: each rank keeps a shard of the parameters.

    torchrun --nproc-per-node 2 examples/torch/train_fsdp2.py --backend sluice

It prints "step 0 loss 17.672510147094727" to "step 4 loss 6.341531753540039". With --backend gloo --wire bf16, gloo makes the group, and the gradients
travel through reducers in 16 bits (f32: with the same losses)."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import sluice.torch.fsdp


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--wire", choices=("f32", "bf16", "f16", "mxfp8", "int8"), help="sends the gradients through reducers in this type, whatever the backend")
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)

    torch.manual_seed(1)  # the same parameters on all ranks
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    fully_shard(model)
    if arguments.wire:
        sluice.torch.fsdp.offload(model, arguments.wire)
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
