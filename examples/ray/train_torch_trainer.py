"""Trains a small network on handwritten digits with Ray's TorchTrainer. A lost worker costs the steps since the last checkpoint.

    SLUICE_REDUCERS=10.0.0.2:7470 python examples/ray/train_torch_trainer.py --workers 2 --backend sluice

Each worker prints its losses: "rank 0 step 0 loss 2.3" to "rank 0 step 9 loss 1.7". runtime_env gives the variable to the workers of all nodes."""

import argparse
import gzip
import os
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH = 32  # images of a worker in a step


def train(job):  # runs in each worker
    with gzip.open(job["data"], "rt", encoding="ascii") as lines:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in lines])
    torch.manual_seed(1)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    rank, first = ray.train.get_context().get_world_rank(), 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            weights, first = torch.load(f"{folder}/state")
        model.load_state_dict(weights)
    for step in range(first, job["steps"]):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(step))
        mine = rows[order[rank * BATCH:][:BATCH]]  # other images on each worker
        loss = torch.nn.functional.cross_entropy(model(mine[:, :-1] / 16), mine[:, -1].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item()}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            torch.save((model.state_dict(), step + 1), f"{folder}/state")
            ray.train.report({"loss": loss.item()}, ray.train.Checkpoint.from_directory(folder) if rank == 0 else None)


def main(loop=train):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=1)
    arguments = parser.parse_args()
    ray.init(runtime_env={"env_vars": {"SLUICE_REDUCERS": os.environ["SLUICE_REDUCERS"]}})
    run = ray.train.RunConfig(failure_config=ray.train.FailureConfig(max_failures=arguments.restarts))
    TorchTrainer(loop, train_loop_config={"data": DIGITS, "steps": arguments.steps}, torch_config=TorchConfig(backend=arguments.backend),
                 scaling_config=ray.train.ScalingConfig(num_workers=arguments.workers), run_config=run).fit()


if __name__ == "__main__":
    main()
