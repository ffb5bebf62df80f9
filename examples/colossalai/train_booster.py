"""Trains a small network on handwritten digits with the Booster of Colossal-AI.

    torchrun --nproc-per-node 2 examples/colossalai/train_booster.py --backend sluice

launch_from_torch() ignores its argument `backend`: the accelerator names the backend. It prints "step 0 loss 2.3" to "step 9 loss 1.5"."""

import argparse
import gzip
from pathlib import Path

import colossalai
import sluice.torch  # noqa: F401, registers the backend
import torch
import torch.distributed as dist
from colossalai.accelerator import CpuAccelerator, set_accelerator
from colossalai.booster import Booster
from colossalai.booster.plugin import TorchDDPPlugin

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH = 32  # images of a rank in a step


class Accelerator(CpuAccelerator):
    communication_backend = "sluice"  # instead of the property; launch() asks here


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    accelerator = Accelerator()
    accelerator.communication_backend = arguments.backend
    set_accelerator(accelerator)
    colossalai.launch_from_torch(verbose=False)

    with gzip.open(DIGITS, "rt", encoding="ascii") as lines:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in lines])
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    booster = Booster(plugin=TorchDDPPlugin())
    model, optimizer, *_ = booster.boost(net, torch.optim.AdamW(net.parameters(), lr=0.01))
    for step in range(arguments.steps):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(step))
        mine = rows[order[dist.get_rank() * BATCH:][:BATCH]]  # other images on each rank
        loss = torch.nn.functional.cross_entropy(model(mine[:, :-1] / 16), mine[:, -1].long())
        booster.backward(loss, optimizer)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
