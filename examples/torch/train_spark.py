"""Trains a small network on the executors of a Spark cluster.

    spark-submit examples/torch/train_spark.py --backend sluice --executors 2

TorchDistributor sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in each executor. Reducers are named by SLUICE_REDUCERS in the environment of
the executors: --conf spark.executorEnv.SLUICE_REDUCERS=host:7470. An executor prints "step 0 loss 17.672510147094727"; the program prints the last loss,
6.341531753540039."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(backend):
    """Runs in each executor. Returns the last loss of rank 0, or None."""
    dist.init_process_group(backend)

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
    rank = dist.get_rank()
    dist.destroy_process_group()
    return loss.item() if rank == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--executors", type=int, default=2)
    arguments = parser.parse_args()
    from pyspark.ml.torch.distributor import TorchDistributor  # here, because executors do not need it

    distributor = TorchDistributor(num_processes=arguments.executors, local_mode=False, use_gpu=False)
    print(f"loss {distributor.run(train, arguments.backend)}")


if __name__ == "__main__":
    main()
