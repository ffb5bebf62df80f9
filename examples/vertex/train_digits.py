"""Trains a small network on handwritten digits on Vertex AI: pools 0 and 1 train through the reducers of pool 2, pool 3 evaluates.

    sluice plan --workers 3 --worker-type a2-highgpu-1g --format gcloud --name digits >job.sh
    TRAINING="python, examples/vertex/train_digits.py" bash job.sh           # it names the other variables

Add the evaluator to job.sh, as a fourth pool with the command of a worker. A trial gets --learning-rate from Vertex AI."""

import argparse
import gzip
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH, EPOCHS = 60, 4  # images per step of all workers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    rate = parser.parse_args().learning_rate
    spec, models = json.loads(os.environ["CLUSTER_SPEC"]), Path(os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/"))
    pool, workers = spec["task"]["type"], spec["cluster"]["workerpool0"] + spec["cluster"].get("workerpool1", [])
    with gzip.open(DIGITS, "rt", encoding="ascii") as lines:
        rows = torch.tensor([[int(value) for value in line.split(",")] for line in lines])
    pixels, digits, held_out = rows[:, :-1].float() / 16, rows[:, -1], torch.arange(len(rows)) % 5 == 0
    training = (~held_out).nonzero()[:, 0]
    torch.manual_seed(1)  # the same parameters on all workers
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    if pool == "workerpool3":
        for file in [models / f"epoch-{epoch}.pt" for epoch in range(EPOCHS)]:
            while not file.exists():
                time.sleep(0.1)
            model.load_state_dict(torch.load(file))
            print(f"{file.stem} accuracy {(model(pixels[held_out]).argmax(1) == digits[held_out]).float().mean().item():.4f}", flush=True)
        return
    rank = int(spec["task"]["index"]) + (pool == "workerpool1")
    dist.init_process_group("sluice", f"tcp://{workers[0]}", rank=rank, world_size=len(workers))
    parallel, order = torch.nn.parallel.DistributedDataParallel(model), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for epoch in range(EPOCHS):
        for batch in training[torch.randperm(len(training), generator=order)].split(BATCH)[:-1]:
            mine = batch[rank::len(workers)]
            loss = torch.nn.functional.cross_entropy(parallel(pixels[mine]), digits[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save(model.state_dict(), models / "new")
            (models / "new").rename(models / f"epoch-{epoch}.pt")
            print(f"epoch-{epoch}.pt is saved", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
