"""Trains a small network under mpirun of Open MPI, which tells each process its rank by other variables than torchrun.

    mpirun -n 2 -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=29500 python examples/torch/train_mpirun.py --backend sluice

MASTER_ADDR is the host of rank 0, which all others reach. It prints "step 0 loss 17.672510147094727" to "step 4 loss 6.341531753540039"."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    dist.init_process_group(parser.parse_args().backend, rank=rank, world_size=ranks)

    torch.manual_seed(1)  # the same parameters on all ranks
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)))
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
