"""usage: torch_conformance_rank.py BACKEND MODE: a rank of two that use what torch promises of every backend. Prints JSON with the results.

results: hooks whose futures wait for futures, names of arguments, split_group, torch.compile. once: one all_reduce. pool: one
all_reduce, prints "joined", and when stdin has the number of reducers that the session gets, or 0, uses sessions that are opened then.
keyed: an all_reduce in groups of the default one, whose options have the key $KEY. few: sessions of the library, until one more
descriptor lets rank 1 open it. silent: rank 1 waits for a line instead of taking part. restarted: rank 1 of torchrun's first attempt
fails. addresses PORT: where a rank would let the others meet by the variables that choose it."""

import faulthandler
import itertools
import json
import os
import resource
import signal
import sys
import time
from datetime import timedelta

import sluice
import sluice.torch  # noqa: F401
import torch
import torch.distributed as dist
from package_test_bed import join_torch
from sluice.torch import meeting
from torch._C import _distributed_c10d as c10d
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks import quantization_pertensor_hook
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def trained(hook, state):
    """Returns the loss of a training whose only bucket the hook reduces."""
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64)))
    model.register_comm_hook(state, hook)
    random = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        loss = model(torch.randn(8, 64, generator=random)).square().mean()
        loss.backward()
    whole = loss.detach().double()
    dist.all_reduce(whole)
    return whole.item()


def hooks():
    return {"quantization": trained(quantization_pertensor_hook, None),
            "power": trained(powerSGD_hook, PowerSGDState(None, start_powerSGD_iter=2)),
            "power in f16": trained(fp16_compress_wrapper(powerSGD_hook), PowerSGDState(None, start_powerSGD_iter=2))}


def nested(depth):
    """Returns a future of the depth to which callbacks wait for the futures of further operations. gloo has two threads, and hangs at depth 2."""
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    return future.then(lambda _: 1 + nested(depth - 1).wait() if depth else 0)


def named():
    """The names of torch's ProcessGroup."""
    group, rank = dist.group.WORLD, dist.get_rank()
    x, y, part, whole = torch.full((2,), rank + 1.0), torch.full((2,), rank + 5.0), torch.zeros(1), torch.zeros(4)
    listed, again, scattered = [torch.zeros(2), torch.zeros(2)], [torch.zeros(2), torch.zeros(2)], torch.zeros(1)
    halves = [x[:1].clone(), x[1:].clone()]
    received = x.clone()  # an operation may still read x when a later one writes: none of them was waited for
    options = c10d.BarrierOptions()
    works = [group.allgather(output_tensors=listed, input_tensor=x), group.allgather(output_tensors=[again], input_tensors=[x]),
             group._allgather_base(output=whole, input=x), group.reduce_scatter(output=part, input=halves, op=dist.ReduceOp.MAX),
             group._reduce_scatter_base(outputTensor=scattered, inputTensor=x), group.broadcast(tensor=received, root=1), group.reduce(tensor=y, root=1),
             group.barrier(opts=options)]
    for work in works:
        work.wait()
    exchanged = torch.zeros(2)  # in gloo
    group.alltoall_base(output=exchanged, input=received, output_split_sizes=[], input_split_sizes=[]).wait()
    assert rank == 0 or y.tolist() == [11.0, 11.0]
    return [t.tolist() for t in (*listed, *again, whole, part, scattered, received, exchanged)]


def split():
    if not hasattr(dist.ProcessGroup, "split_group"):
        return None
    alone, turned = dist.split_group(None, [[0], [1]]), dist.split_group(None, [[1, 0]])
    x, y = torch.full((3,), dist.get_rank() + 1.0), torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(x, group=alone)
    dist.all_reduce(y, group=turned)
    other = dist.split_group(turned, [[0]])
    return [x.tolist(), y.tolist(), dist.get_rank(turned), dist.get_process_group_ranks(turned), other is dist.GroupMember.NON_GROUP_MEMBER,
            type(turned) is type(dist.group.WORLD)]


def compiled():
    torch.manual_seed(1)
    model = torch.compile(DistributedDataParallel(torch.nn.Linear(4, 4)), backend="eager")
    model(torch.full((2, 4), dist.get_rank() + 1.0)).sum().backward()

    @torch.compile(backend="eager")
    def doubled(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        dist.all_reduce(y)
        parts = [torch.empty_like(y) for _ in range(2)]
        dist.all_gather(parts, y)
        dist.barrier()
        return y + parts[0]

    return [p.grad.sum().item() for p in model.parameters()] + doubled(torch.ones(3)).tolist()


def polled():
    """What the tensors hold when is_completed() first returns True, which nothing waits for."""
    rank = dist.get_rank()
    listed, gathered = [[torch.zeros(1000) for _ in range(2)] for _ in range(2)]
    reduced, sent, scattered = [torch.zeros(300)[::3] for _ in range(3)]
    reduced.fill_(rank + 1)
    sent.fill_(rank + 5)
    mine = torch.full((1000,), rank + 1.0)
    found = []
    for work, tensors in ((dist.all_gather(listed, mine, async_op=True), listed), (dist.all_reduce(reduced, async_op=True), [reduced]),
                          (dist.broadcast(sent, 1, async_op=True), [sent]),
                          (dist.reduce_scatter(scattered, [torch.full((100,), rank + 1.0), torch.full((100,), rank + 3.0)], async_op=True), [scattered]),
                          (dist.gather(mine, None if rank else gathered, async_op=True), [] if rank else gathered)):
        while not work.is_completed():
            time.sleep(0.001)
        found.append([t[-1].item() for t in tensors])
    return found


def multiplied():
    x = torch.arange(6.0).reshape(2, 3).t()
    dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
    return x.tolist()


def refused():
    """The errors for tensors as the root that the list of one does not have."""
    errors = []
    for (name, kind), root in itertools.product((("broadcast", c10d.BroadcastOptions), ("reduce", c10d.ReduceOptions)), (5, -1)):
        options = kind()
        options.rootTensor = root
        try:
            getattr(dist.group.WORLD, name)([torch.ones(1)], options).wait()
            errors.append("no error")
        except RuntimeError as error:
            errors.append(str(error))
    return errors


def results(backend):
    common = {"hooks": hooks(), "named": named(), "split": split(), "compiled": compiled(), "refused": refused()}
    return common if backend == "gloo" else {**common, "nested": nested(5).wait(), "polled": polled(), "multiplied": multiplied()}


def later_sessions():
    """What the first large gather and a new group return, the reducers of that group, and the number of those that gathered."""
    x = torch.ones(1)
    dist.all_reduce(x)
    print("joined", flush=True)
    reducers = int(sys.stdin.readline())
    least = torch.tensor(0)
    while least.item() != reducers:  # an operation lets the ranks enter a new view
        least.fill_(len(dist.group.WORLD.session().reducers().split(",")) if reducers else 0)
        dist.all_reduce(least, dist.ReduceOp.MIN)
    group = dist.new_group([0, 1])
    wholes = [torch.zeros(1 << 19), torch.zeros(1 << 19)]
    for whole, where in zip(wholes, (dist.group.WORLD, group)):
        dist.all_gather_into_tensor(whole, torch.full((1 << 18,), dist.get_rank() + 1.0), group=where)
    dist.all_reduce(x, group=group)
    return {"sum": x.item(), "gathered": [whole[:: 1 << 18].tolist() for whole in wholes], "reducers": group.session().reducers(),
            "gathered by": [where._gathers._session.stats().reducers for where in (dist.group.WORLD, group)]}


def keyed():
    groups = [dist.group.WORLD, dist.new_group([0, 1]), dist.new_group([0, 1], pg_options=sluice.torch.Options(tenant="acme"))]
    if hasattr(dist.ProcessGroup, "split_group"):
        groups.append(dist.split_group(None, [[0, 1]], pg_options=sluice.torch.Options(tenant="split")))
    x = torch.ones(1)
    for group in groups:
        dist.all_reduce(x, group=group)
    return [x.item(), len(groups)]


def few_descriptors():
    """For each limit of descriptors, whether this rank's session opens. Rank 1 has few, until its session opens."""
    rank, pool, opened = dist.get_rank(), os.environ["SLUICE_REDUCERS"], []
    unlimited = resource.getrlimit(resource.RLIMIT_NOFILE)
    for attempt in range(1, 60):
        dist.barrier()
        if rank == 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + attempt, unlimited[1]))
        try:
            session = sluice.Session(pool, session_id=bytes(15) + bytes([attempt]), rank=rank, ranks=2, join_timeout_ms=5000)
            opened.append("opened")
        except sluice.Error as error:
            session = None
            opened.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, unlimited)
        if session is not None:
            session.allreduce(torch.ones(1))
            session.close()
            break
    return opened


def silent():
    """The error of rank 0 about a rank that does not take part, and the seconds until then."""
    if dist.get_rank() == 1:
        sys.stdin.readline()
        return None
    begun = time.monotonic()
    try:
        dist.all_reduce(torch.ones(1), async_op=True).wait(timedelta(milliseconds=500))
    except dist.DistBackendError as error:
        return [str(error), time.monotonic() - begun]
    return ["no error", 0]


def restarted():
    """The sum in the second attempt, and the number of restarts."""
    x = torch.ones(1)
    dist.all_reduce(x)
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if restarts == 0 and dist.get_rank() == 1:
        os._exit(1)  # without a goodbye to the other
    if restarts == 0:
        signal.pause()  # until torchrun ends the attempt
    return [x.item(), restarts]


def addresses(port):
    found = {}
    for variable, value in (("SLUICE_IFNAME", "l"), ("SLUICE_IFNAME", "=l"), ("GLOO_SOCKET_IFNAME", "lo"), ("SLUICE_RENDEZVOUS", f"localhost:{port}"),
                            ("SLUICE_RENDEZVOUS", "192.0.2.1:7470"), ("MASTER_ADDR", "127.0.0.2")):
        for name in ("SLUICE_IFNAME", "GLOO_SOCKET_IFNAME", "SLUICE_RENDEZVOUS", "MASTER_ADDR"):
            os.environ.pop(name, None)
        os.environ[variable] = value
        try:
            found[f"{variable}={value}"] = meeting.meeting_point(meeting.own_addresses(None)[0])
        except dist.DistBackendError as error:
            found[f"{variable}={value}"] = str(error)
    return found


def main():
    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where, before the test's deadline
    torch.set_num_threads(1)
    backend, mode, *rest = sys.argv[1:]
    if mode == "addresses":
        print(json.dumps(addresses(*rest)))
        return
    join_torch(backend, **({"pg_options": sluice.torch.Options(job="train-7", key_file=os.environ["KEY"])} if mode == "keyed" else {}))
    modes = {"results": lambda: results(backend), "once": lambda: nested(0).wait(), "pool": later_sessions, "keyed": keyed, "few": few_descriptors, "silent": silent, "restarted": restarted}
    print(json.dumps(modes[mode]()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
