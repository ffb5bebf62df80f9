"""usage: ddp_rank.py losses|lost|last: a rank that trains a small network under DistributedDataParallel on random numbers.

losses: prints JSON with the losses of each step over all ranks, with the hook and with gloo's allreduce, and whether the gradients of average=False are
sums. lost: trains until the backward pass raises, and prints the exception. last: exits while the hook's thread holds the last reference to a request
and so to the session."""

import json
import os
import sys
import threading

import sluice
import torch
import torch.distributed as dist
from package_test_bed import join_torch
from torch.nn.parallel import DistributedDataParallel

STEPS = 50
IMAGES = 16


def network():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(32, 200), torch.nn.Tanh(), torch.nn.Linear(200, 200), torch.nn.Tanh(), torch.nn.Linear(200, 200),
                              torch.nn.Tanh(), torch.nn.Linear(200, 5))
    return DistributedDataParallel(net, bucket_cap_mb=0.1)  # several buckets a step


class Data:
    """Random data of this rank; the same in each run."""

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
    """Prints the exceptions of the backward pass during which the session fails, and of the next one."""
    model = network()
    model.register_comm_hook(None, sluice.ddp_hook(session))
    data = Data()
    data.loss(model).backward()
    print("begun", flush=True)
    try:
        while True:
            data.loss(model).backward()
    except RuntimeError as error:
        print(f"{type(session.error()).__name__} in the text: {str(session.error()) in str(error)}")
    model = network()  # after a failed backward pass a DDP model cannot be used again
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

    def index(self):
        return 0

    def is_last(self):
        return True


def leave_session_to_hook_thread(session):
    """Makes the hook's thread drop the last reference to the session once the first returned event is set, and makes the
    session close slowly while the interpreter exits. Sets the second event when that begins."""
    release, delay, closing = threading.Event(), threading.Event(), threading.Event()
    wait, failure = sluice.Request.wait, sluice.Session._failure

    def wait_for_main(request):
        if threading.current_thread().name == "sluice-ddp":
            release.wait(20)
        return wait(request)

    def slow_failure(session, *arguments):  # the first function that close calls
        if threading.current_thread() is not threading.main_thread() and not closing.is_set():
            closing.set()
            print("closed by another thread", flush=True)
            delay.wait(1)  # never set
        return failure(session, *arguments)

    sluice.Request.wait, sluice.Session._failure = wait_for_main, slow_failure
    sluice.Request.done = lambda request: False  # otherwise an operation that has ended does not need the thread
    sluice.ddp_hook(session)(None, Bucket())
    return release, closing


def main():
    mode = sys.argv[1]
    torch.set_num_threads(1)
    join_torch("gloo")
    session = sluice.session_from_torch(os.environ["REDUCERS"], resume_timeout_ms=200)
    if mode == "losses":  # leaves the session open; the interpreter closes it at exit, after the threads of the hooks
        model = network()
        model.register_comm_hook(None, sluice.ddp_hook(session))
        losses = {"hook": train(model, STEPS), "gloo": train(network(), STEPS)}
        assert session.stats().operations > 2 * STEPS, "a single bucket per step does not test their order"
        mean, total = gradients(sluice.ddp_hook(session)), gradients(sluice.ddp_hook(session, average=False))
        print(json.dumps({**losses, "sums": torch.equal(mean * session.ranks, total) and mean.any().item()}))
    elif mode == "last":
        release, closing = leave_session_to_hook_thread(session)
        del session
        release.set()
        closing.wait(20)  # otherwise this thread may find the session still open at exit, and close it
    else:
        until_lost(session)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
