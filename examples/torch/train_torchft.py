"""Trains a small network in replicas that may be killed and started again while the others go on.

    torchft_lighthouse --bind 127.0.0.1:29510 --min_replicas 1 &
    export TORCHFT_LIGHTHOUSE=http://127.0.0.1:29510
    for replica in 0 1 2; do python examples/torch/train_torchft.py --replica $replica --backend sluice & done

Each prints lines such as "step 4 replicas 3 loss 8.104596138000488", and at the end a hash of its weights, which is equal on all."""

import argparse
import hashlib
from datetime import timedelta

import torch
import torch.distributed as dist
import torchft
from torchft.process_group import ProcessGroupGloo

from sluice.torchft import ProcessGroupSluice

BACKENDS = {"sluice": ProcessGroupSluice, "gloo": ProcessGroupGloo}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default="sluice")
    parser.add_argument("--replica", type=int, default=0, help="number of this replica")
    parser.add_argument("--replicas", type=int, default=1, help="fewest replicas that make a step")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()

    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.05)

    def save():
        return {"layers": layers.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state):
        layers.load_state_dict(state["layers"])
        optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = BACKENDS[arguments.backend](timeout=timedelta(seconds=10))
    manager = torchft.Manager(pg=group, load_state_dict=load, state_dict=save,
                              min_replica_size=arguments.replicas, replica_id=f"replica_{arguments.replica}", rank=0, world_size=1,
                              store_addr="127.0.0.1", store_port=store.port, timeout=timedelta(seconds=10))
    model = torchft.DistributedDataParallel(manager, layers)
    optimizer = torchft.Optimizer(manager, optimizer)
    data = torch.Generator().manual_seed(arguments.replica)
    while (step := manager.current_step()) < arguments.steps:
        inputs = torch.randn(32, 20, generator=data)
        optimizer.zero_grad()  # asks which replicas take part in this step
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()  # without effect if the step has failed
        done = manager.current_step() > step
        print(f"step {step} replicas {manager.num_participants()} loss {loss.item()}{'' if done else ' failed'}", flush=True)
    group.shutdown()  # waits until no other replica needs this one
    weights = torch.cat([parameter.detach().flatten() for parameter in layers.parameters()])
    print(f"weights {hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]}", flush=True)
    manager.shutdown()


if __name__ == "__main__":
    main()
