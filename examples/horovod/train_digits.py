"""Trains a small network on handwritten digits with a script for horovod.torch, through reducers or with Horovod itself.

    sluice reducer --listen 127.0.0.1:7470 &
    export SLUICE_REDUCERS=127.0.0.1:7470 SLUICE_HOSTS=off     # off: these ranks stand for hosts
    mpirun -n 2 -x SLUICE_REDUCERS -x SLUICE_HOSTS python examples/horovod/train_digits.py
    horovodrun -np 2 python examples/horovod/train_digits.py --module horovod.torch

A program needs one line changed: import sluice.horovod as hvd."""

import argparse
import gzip
import importlib
from pathlib import Path

import torch

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH = 64  # images per step of all ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", default="sluice.horovod", help="sluice.horovod (default) or horovod.torch")
    parser.add_argument("--fp16", action="store_true", help="gradients travel in 16 bits")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    hvd = importlib.import_module(arguments.module)
    hvd.init()

    with gzip.open(DIGITS, "rt", encoding="ascii") as lines:
        rows = torch.tensor([[int(value) for value in line.split(",")] for line in lines])
    pixels, digits = rows[:, :-1].float() / 16, rows[:, -1]
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())  # the parameters of rank 0 replace the others
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
                                         compression=hvd.Compression.fp16 if arguments.fp16 else hvd.Compression.none)

    order = torch.Generator().manual_seed(1)
    for epoch in range(arguments.epochs):
        total, steps = 0.0, len(digits) // BATCH
        for batch in torch.randperm(len(digits), generator=order).split(BATCH)[:steps]:
            mine = batch[hvd.rank()::hvd.size()]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(pixels[mine]), digits[mine])
            loss.backward()
            optimizer.step()
            total += loss.item() / steps
        mean = hvd.allreduce(torch.tensor(total), name="mean loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch} loss {mean:.6f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
