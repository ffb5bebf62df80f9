"""Trains a small network on handwritten digits with DeepSpeed, whose ZeRO divides optimizer, gradients and parameters among the ranks.

    deepspeed --num_accelerators 2 examples/deepspeed/train_zero.py --backend sluice --zero 3

It prints "step 0 loss 2.3066" to "step 9 loss 1.5018", with more digits. A second run with the same --checkpoint goes on from there."""

import argparse
import gzip
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH = 32  # images of a rank in a step


def load():
    """Returns the images, with pixels in 0..1, and their digits."""
    with gzip.open(DIGITS, "rt", encoding="ascii") as lines:
        rows = torch.tensor([[int(value) for value in line.split(",")] for line in lines])
    return rows[:, :-1] / 16, rows[:, -1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--zero", type=int, default=1, help="stage of ZeRO, 0 to 3")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, help="folder to load from and save to")
    parser.add_argument("--local_rank", help="DeepSpeed's launcher sets it")
    arguments = parser.parse_args()
    deepspeed.init_distributed(dist_backend=arguments.backend)

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01), config={
        "train_micro_batch_size_per_gpu": BATCH, "zero_optimization": {"stage": arguments.zero}})
    first = 0
    if arguments.checkpoint and arguments.checkpoint.exists():
        first = engine.load_checkpoint(arguments.checkpoint)[1]["step"]
    images, digits = load()
    for step in range(first, first + arguments.steps):
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(step))
        mine = order[dist.get_rank() * BATCH:][:BATCH]  # other images on each rank
        loss = torch.nn.functional.cross_entropy(engine(images[mine]), digits[mine])
        engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item()}", flush=True)
    if arguments.checkpoint:
        engine.save_checkpoint(arguments.checkpoint, client_state={"step": first + arguments.steps})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
