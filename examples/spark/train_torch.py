"""Trains a small network on handwritten digits with PyTorch on the executors of a Spark cluster.

    spark-submit --conf spark.executorEnv.SLUICE_REDUCERS=10.0.0.2:7470 examples/spark/train_torch.py --executors 2 --backend sluice

TorchDistributor sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in a process of each executor, and prints there "step 0 loss 2.3" to
"step 9 loss 1.9"; the program prints the last loss again."""

import argparse
import gzip
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH = 32  # images of an executor in a step


def train(backend, rows, steps):
    """Runs in each executor. Returns the last loss of rank 0, or None."""
    dist.init_process_group(backend)
    torch.manual_seed(1)  # the same parameters on all ranks
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    rank = dist.get_rank()
    for step in range(steps):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(step))
        mine = rows[order[rank * BATCH:][:BATCH]]  # other images on each rank
        loss = torch.nn.functional.cross_entropy(model(mine[:, :-1] / 16), mine[:, -1].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item()}", flush=True)
    dist.destroy_process_group()
    return loss.item() if rank == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    from pyspark.ml.torch.distributor import TorchDistributor  # here, because executors do not need it
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    with gzip.open(DIGITS, "rt", encoding="ascii") as lines:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in lines])
    distributor = TorchDistributor(num_processes=arguments.executors, local_mode=False, use_gpu=False)
    print(f"loss {distributor.run(train, arguments.backend, rows, arguments.steps)}")
    spark.stop()


if __name__ == "__main__":
    main()
