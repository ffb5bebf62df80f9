"""usage: ddp_rank.py losses|lost|last: a rank that trains a small network under DistributedDataParallel on numbers drawn from a seed.

losses: prints, as JSON, those of each step over all ranks, with the hook and with gloo's own allreduce, and whether gradients that are not averaged are
the sums of those that are. lost: trains until backward raises, and prints what it raised. last: ends while the hook's thread holds the last request, and
so the session."""

import json
import os
import sys
import threading

import sluice
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 50
IMAGES = 16


def network():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(32, 200), torch.nn.Tanh(), torch.nn.Linear(200, 200), torch.nn.Tanh(), torch.nn.Linear(200, 200),
                              torch.nn.Tanh(), torch.nn.Linear(200, 5))
    return DistributedDataParallel(net, bucket_cap_mb=0.1)  # several buckets a step


class Data:
    """Of this rank, of the same seed in each run."""

    def __init__(self):
        self._random = torch.Generator().manual_seed(100 + dist.get_rank())
        self._teacher = torch.randn(32, 5, generator=torch.Generator().manual_seed(7))

    def loss(self, model):
        x = torch.randn(IMAGES, 32, generator=self._random)
        return torch.nn.functional.cross_entropy(model(x), (x @ self._teacher).argmax(1))


def train(model, steps):
    data, optimizer, losses = Data(), torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9), []
    for _ in range(steps):
        loss = data.loss(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def gradients(hook):
    model = network()
    model.register_comm_hook(None, hook)
    Data().loss(model).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def until_lost(session):
    """What backward raises when the session fails in the midst of it, and what the step after it does."""
    model = network()
    model.register_comm_hook(None, sluice.ddp_hook(session))
    data = Data()
    data.loss(model).backward()
    print("begun", flush=True)
    try:
        while True:
            data.loss(model).backward()
    except RuntimeError as error:
        print(f"{type(session.error()).__name__} is told: {str(session.error()) in str(error)}")
    model = network()  # DDP has nothing to say of a model whose backward has failed
    model.register_comm_hook(None, sluice.ddp_hook(session))
    try:
        data.loss(model).backward()
    except sluice.Lost as error:
        print(f"again {error.status}")


class Bucket:
    def __init__(self):
        self._gradients = torch.ones(100)

    def buffer(self):
        return self._gradients


def leave_the_session_to_the_hooks_thread(session):
    """When the event that it returns is set, that thread lets the session go, and takes its time to close it while the interpreter ends."""
    let_go, late = threading.Event(), threading.Event()
    wait, reason = sluice.Request.wait, sluice.Session._reason

    def wait_for_main(request):
        if threading.current_thread().name == "sluice-ddp":
            let_go.wait(20)
        return wait(request)

    def reason_late(session, *arguments):  # what close asks first
        if threading.current_thread().name == "sluice-ddp":
            print("closed by the hook's thread", flush=True)
            late.wait(1)  # nobody sets it
        return reason(session, *arguments)

    sluice.Request.wait, sluice.Session._reason = wait_for_main, reason_late
    sluice.ddp_hook(session)(None, Bucket())
    return let_go


def main():
    what = sys.argv[1]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    session = sluice.session_from_torch(os.environ["REDUCERS"], resume_timeout_ms=200)
    if what == "losses":  # the session is left open: the interpreter's end closes it, and the hooks' threads end before
        model = network()
        model.register_comm_hook(None, sluice.ddp_hook(session))
        losses = {"hook": train(model, STEPS), "gloo": train(network(), STEPS)}
        assert session.stats().operations > 2 * STEPS, "one bucket a step proves nothing of their order"
        mean, total = gradients(sluice.ddp_hook(session)), gradients(sluice.ddp_hook(session, average=False))
        print(json.dumps({**losses, "sums": torch.equal(mean * session.ranks, total) and mean.any().item()}))
    elif what == "last":
        let_go = leave_the_session_to_the_hooks_thread(session)
        del session
        let_go.set()
    else:
        until_lost(session)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
