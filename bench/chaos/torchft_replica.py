"""A replica of the job of torchft_chaos.py: trains a small network with torchft and reports its steps."""

import hashlib
import math
import time
from datetime import timedelta

import torch
import torch._dynamo  # noqa: F401  DistributedDataParallel imports it, which takes seconds in each replica
import torch.distributed as dist
import torchft
from torchft.process_group import ProcessGroupGloo

from sluice.torchft import ProcessGroupSluice

BACKENDS = {"sluice": ProcessGroupSluice, "gloo": ProcessGroupGloo}
TIMEOUT = timedelta(seconds=20)


def run(number, backend, lighthouse, last_step, events):
    """Trains until the step `last_step`. Sends ("configured", begin, end, ranks), ("step", time, step, ranks, whether it was committed, loss) and
    ("weights", hash) to `events`; times are those of the monotonic clock."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)

    class Group(BACKENDS[backend]):
        def configure(self, store_addr, replica_id, rank, world_size, *more):
            begin = time.monotonic()
            super().configure(store_addr, replica_id, rank, world_size, *more)
            events.send(("configured", begin, time.monotonic(), world_size))

    def save():
        return {"layers": layers.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state):
        layers.load_state_dict(state["layers"])
        optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = Group(timeout=TIMEOUT)
    manager = torchft.Manager(pg=group, load_state_dict=load, state_dict=save, min_replica_size=1, replica_id=f"replica_{number}",
                              rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse, hostname="127.0.0.1",
                              timeout=TIMEOUT, quorum_timeout=TIMEOUT)
    model = torchft.DistributedDataParallel(manager, layers)
    optimizer = torchft.Optimizer(manager, optimizer)
    data = torch.Generator().manual_seed(number)
    while (step := manager.current_step()) < last_step.value:
        inputs = torch.randn(32, 20, generator=data)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        if not math.isfinite(loss.item()):
            raise ValueError(f"the loss of step {step} is {loss.item()}")
        events.send(("step", time.monotonic(), step, manager.num_participants(), manager.current_step() > step, loss.item()))
    group.shutdown()  # waits until no other replica needs the results of this one's co-located reducer
    weights = torch.cat([parameter.detach().flatten() for parameter in layers.parameters()])
    events.send(("weights", hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]))
    manager.shutdown()
