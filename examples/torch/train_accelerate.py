"""Trains a small network with Accelerate, which uses the process group that the program has made.

    torchrun --nproc-per-node 2 examples/torch/train_accelerate.py --backend sluice

It prints "step 0 loss 20.5427188873291" to "step 4 loss 4.613879203796387"."""

import argparse

import torch
import torch.distributed as dist
from accelerate import Accelerator


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    dist.init_process_group(parser.parse_args().backend)  # by itself, Accelerate takes gloo on CPUs

    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.utils.data.DataLoader(torch.randn(320, 20), batch_size=32)  # Accelerate divides the batches among the ranks
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for step, inputs in enumerate(data):
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.print(f"step {step} loss {loss.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
