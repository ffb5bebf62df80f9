"""Trains a small network on handwritten digits with DistributedDataParallel and gradients reduced by a pool of reducers.

    sluice reducer --listen 127.0.0.1:7470 &
    torchrun --nproc-per-node 2 examples/python/ddp.py --reducers 127.0.0.1:7470 --wire-dtype bf16

torch needs the process group (gloo) for start-up and for the printed loss; gradients do not pass through it."""

import argparse
import gzip
import json
from pathlib import Path

import sluice
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
HELD_OUT_EVERY = 5
BATCH = 64  # images per step of all ranks


def load(path):
    """Returns ((pixels, digits) to train on, (pixels, digits) held out). Pixels are in 0..1; every fifth image is held out."""
    with gzip.open(path, "rt", encoding="ascii") as lines:
        rows = torch.tensor([[int(value) for value in line.split(",")] for line in lines])
    pixels, digits = rows[:, :-1].float() / 16, rows[:, -1]
    held_out = torch.arange(len(rows)) % HELD_OUT_EVERY == 0
    return (pixels[~held_out], digits[~held_out]), (pixels[held_out], digits[held_out])


def train(model, data, epochs, rank, ranks):
    """Trains and returns the loss of each step over all ranks."""
    pixels, digits = data
    order = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(epochs):
        # Complete batches only: the average over ranks equals the average over images only if all ranks have equally many.
        for batch in torch.randperm(len(digits), generator=order).split(BATCH)[:len(digits) // BATCH]:
            mine = batch[rank::ranks]
            loss = torch.nn.functional.cross_entropy(model(pixels[mine]), digits[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach() / ranks
            dist.all_reduce(mean)
            losses.append(mean.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reducers", help="host:port,...; default: gloo reduces the gradients")
    parser.add_argument("--wire-dtype", choices=("bf16", "f16"), help="type in which gradients travel; default: float32")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=DIGITS)
    parser.add_argument("--json", type=Path, help="file for losses and accuracy, written by rank 0")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    to_train, held_out = load(arguments.data)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    model = DistributedDataParallel(net)
    result = {"ranks": ranks}
    if arguments.reducers:
        with sluice.session_from_torch(arguments.reducers, wire_dtype=arguments.wire_dtype, measure_error=True) as session:
            model.register_comm_hook(None, sluice.ddp_hook(session))
            result["losses"] = train(model, to_train, arguments.epochs, rank, ranks)
            result["payload_bytes_out"] = session.stats().payload_bytes_out
            result["relative_error"] = session.stream_stats().relative_error
    else:
        result["losses"] = train(model, to_train, arguments.epochs, rank, ranks)
    with torch.no_grad():
        result["accuracy"] = (net(held_out[0]).argmax(1) == held_out[1]).float().mean().item()
    if rank == 0:
        print(f"{ranks} ranks, {len(result['losses'])} steps: loss {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}, "
              f"{100 * result['accuracy']:.2f} % of {len(held_out[1])} held-out images")
        if arguments.json:
            arguments.json.write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
