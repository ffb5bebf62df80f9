"""usage: torch_backend_rank.py results|groups|disagree|lost|lost_in_group|hosts POOL... [no-import]: a rank of a torch.distributed job with each pool, one after the other.

POOL: reducers or "none" for the backend "sluice", or "gloo" for that backend. One process for all, because the import of torch takes seconds.
results: prints JSON with what collectives return, the hash of each, and the losses of trainings. groups: makes, uses and destroys groups,
SLUICE_TEST_GROUPS of them (default: 20), and prints what is left of them. hosts: prints the losses of trainings in which the ranks are on hosts
of 1, 2, 4 and 8. disagree: makes calls that differ between the ranks, and prints the exceptions. lost, lost_in_group: reduces until another rank
is lost, and prints the exceptions, those of ranks 1 and 2 in a group of their own."""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

IS_OLD = not hasattr(dist.ProcessGroup, "shutdown")  # torch 2.4 and 2.6, where gloo has fewer types and no reduce_scatter, and FSDP2 needs a GPU

OPS = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
DTYPES = (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16)


def digest(*tensors):
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def numbers(count, dtype=torch.float32):
    """The same in each run, others on each rank."""
    random = torch.Generator().manual_seed(count * 100 + dist.get_rank())
    least = 0 if dtype == torch.uint8 else -5
    return torch.randint(least, 6, (count,), generator=random).to(dtype)


def kind_of_error(call):
    try:
        call()
    except Exception as error:  # the type is the result
        return type(error).__name__
    return "no error"


def unless_refused(call):
    """Returns the result, or None if gloo in an old release cannot execute the call."""
    try:
        return call()
    except RuntimeError:
        if not IS_OLD or offloaded():
            raise
        return None


def allreduce_results():
    for dtype in DTYPES:
        for name, op in OPS.items():
            x = numbers(1000, dtype)
            dist.all_reduce(x, op)
            yield f"{dtype} {name}", digest(x)
    for name, x in (("empty", numbers(0)), ("one", numbers(1)), ("scalar", numbers(1)[0].clone()), ("large", numbers(1 << 20)),
                    ("not contiguous", numbers(600).reshape(20, 30).t()), ("part", numbers(1001)[1:]),
                    ("requires grad", numbers(100).requires_grad_()), ("complex", torch.complex(numbers(50), numbers(50)))):
        with torch.no_grad():
            dist.all_reduce(x)
        yield name, digest(torch.view_as_real(x) if x.is_complex() else x)
    x, strided = numbers(200), torch.zeros(600)[::3]  # gloo reduces the memory between the elements instead
    strided.copy_(x)
    dist.all_reduce(x)
    if offloaded():
        dist.all_reduce(strided)
        assert torch.equal(strided, x)
    x, y = numbers(5000), numbers(300)
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, op=dist.ReduceOp.MAX, async_op=True)]
    for work in works:
        work.wait()
    assert all(work.is_completed() for work in works)
    yield "async", digest(x, y)
    z = numbers(70)
    value = dist.all_reduce(z, async_op=True).get_future().wait()
    yield "future", digest(*value)
    pieces = [numbers(10), numbers(2000), numbers(0)]
    dist.all_reduce_coalesced(pieces)
    yield "coalesced", digest(*pieces)
    for dtype in (torch.bool, torch.int16):
        yield f"{dtype}", kind_of_error(lambda x=torch.ones(3, dtype=dtype): dist.all_reduce(x))
    yield "sparse", digest(reduced_sparse())


def reduced_sparse():
    x = torch.eye(5).to_sparse() * (dist.get_rank() + 1)
    dist.all_reduce(x)
    return x.to_dense()


def gathered(dtype):
    ranks = dist.get_world_size()

    def some(count):
        return numbers(count, torch.int8).to(dtype)

    whole = torch.zeros(ranks * 40, dtype=dtype)
    dist.all_gather_into_tensor(whole, some(40))
    listed = [torch.zeros(7, 3, dtype=dtype) for _ in range(ranks)]
    dist.all_gather(listed, some(21).reshape(3, 7).t())
    sent = some(5_000).reshape(50, 100).t()
    dist.broadcast(sent, ranks - 1)
    return digest(*[torch.view_as_real(t) if t.is_complex() else t for t in (whole, *listed, sent)])


def gathered_results():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for dtype in (*DTYPES, torch.complex64, *((torch.bool, torch.int16) if offloaded() else ())):  # gloo cannot gather the last two
        yield f"gathered {dtype}", unless_refused(lambda dtype=dtype: gathered(dtype))
    large = torch.zeros(ranks << 18)
    work = dist.all_gather_into_tensor(large, numbers(1 << 18), async_op=True)
    yield "gathered future", digest(torch.cat(work.get_future().wait()))
    yield "wrong size", kind_of_error(lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(3)))
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * 100 * rank})
    yield "objects", objects


def scattered(op):
    ranks = dist.get_world_size()
    part = torch.zeros(30)
    dist.reduce_scatter_tensor(part, numbers(30 * ranks), op)
    listed = torch.zeros(11)
    dist.reduce_scatter(listed, [numbers(11) * (r + 1) for r in range(ranks)], op)
    reduced = numbers(10_001)
    dist.reduce(reduced, ranks - 1, op)
    return digest(part, listed, *([reduced] if dist.get_rank() == ranks - 1 else []))


def scattered_results():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for name, op in OPS.items():
        yield f"scattered {name}", unless_refused(lambda op=op: scattered(op))
    kept = numbers(500)
    dist.reduce(kept, 0)
    assert rank == 0 or torch.equal(kept, numbers(500)) or not offloaded()  # gloo overwrites it
    yield "scattered large", unless_refused(scattered_large)


def scattered_large():
    large = torch.zeros(1 << 18)
    dist.reduce_scatter_tensor(large, numbers(dist.get_world_size() << 18), async_op=True).wait()
    return digest(large)


def other_results():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    exchanged = torch.empty(ranks * 3)
    dist.all_to_all_single(exchanged, numbers(ranks * 3))
    received = torch.empty(5)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, numbers(5), (rank + 1) % ranks), dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]):
        work.wait()
    dist.barrier()
    yield "others", digest(exchanged, received)


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(32, 100), torch.nn.Tanh(), torch.nn.Linear(100, 100), torch.nn.Tanh(), torch.nn.Linear(100, 5))


def train(model, optimizer, steps):
    random = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 32, generator=random)).square().mean()
        loss.backward()
        optimizer.step()
    whole = loss.detach().double()
    dist.all_reduce(whole)
    return whole.item()


def train_by_local_steps(steps):
    """LocalSGD after 10 steps: the ranks average their models every 4 steps."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    model.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=dist.new_group([dist.get_rank()], use_local_synchronization=True),
                                               start_localSGD_iter=10), post_localSGD_hook)
    averager = PeriodicModelAverager(period=4, warmup_steps=10)
    return train(model, PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), averager), steps)


def training_results(steps=50):
    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    ddp = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    yield "ddp", train(ddp, adam(ddp), steps)
    zero = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    yield "zero", train(zero, ZeroRedundancyOptimizer(zero.parameters(), torch.optim.Adam, lr=0.01), steps)
    yield "local sgd", train_by_local_steps(steps)
    if not IS_OLD:
        from torch.distributed.fsdp import fully_shard

        fsdp = network()
        fully_shard(fsdp)
        yield "fsdp2", train(fsdp, adam(fsdp), steps)


def offloaded():
    """The operations that the reducers have summed; 0 for gloo."""
    group = dist.group.WORLD
    return group.session().stats().operations if hasattr(group, "session") else 0


def sent_bytes():
    """The bytes of payload that this rank has sent to reducers; 0 for gloo."""
    group = dist.group.WORLD
    return group.session().stats().payload_bytes_out if hasattr(group, "session") else 0


def print_results():
    kinds = (allreduce_results, gathered_results, scattered_results, other_results)
    results = {name: value for kind in kinds for name, value in kind() if value is not None}
    print(json.dumps({"results": results, "losses": dict(training_results()), "offloaded": offloaded(), "sent": sent_bytes()}))


def print_groups():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicas", "shards"))
    sums = []
    for dimension in ("replicas", "shards"):
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=mesh.get_group(dimension))
        sums.append(x.item())
    # Ranks use their two groups in different orders, which asynchronous operations may do.
    x, y = torch.ones(1000), torch.ones(1000)
    pairs = [(x, "replicas"), (y, "shards")]
    for work in [dist.all_reduce(t, group=mesh.get_group(name), async_op=True) for t, name in (pairs if rank % 2 else reversed(pairs))]:
        work.wait()
    alone = dist.new_group([rank], use_local_synchronization=True)
    z = torch.full((3,), 7.0)
    dist.all_reduce(z, group=alone)
    use_groups(1)
    before = left()
    use_groups(int(os.environ.get("SLUICE_TEST_GROUPS", "20")))
    print(json.dumps({"sums": sums, "crossed": [x[0].item(), y[0].item()], "alone": z.tolist(), "before": before, "after": left()}))


def use_groups(count):
    for _ in range(count):
        group = dist.new_group(list(range(dist.get_world_size())))
        w = torch.ones(10)
        dist.all_reduce(w, group=group, async_op=True).get_future().wait()
        dist.destroy_process_group(group)


def left():
    """Threads of the process, those of libraries included, descriptors, and memory in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd")), "memory": pages * os.sysconf("SC_PAGESIZE")}


def gather_large(group, factor=1, future=False):
    """Gathers some MiB: with a reducer, in the second session of the group."""
    part = torch.ones(factor << 18)
    work = dist.all_gather_into_tensor(torch.empty(2 * len(part)), part, group=group, async_op=True)
    if future:
        try:
            work.get_future().wait()
        except Exception as error:
            raise dist.DistBackendError(str(error)) from error
    work.wait()


def print_disagreements():
    """Calls that differ between ranks 0 and 1, each in a group of its own."""
    x, first = torch.ones(100), dist.get_rank() == 0
    cases = {"shape": lambda group: dist.all_reduce(x if first else x[:50], group=group),
             "dtype": lambda group: dist.broadcast(x if first else x.int(), 0, group=group),
             "op": lambda group: dist.all_reduce(x, dist.ReduceOp.SUM if first else dist.ReduceOp.MAX, group=group),
             "root": lambda group: dist.broadcast(x, 0 if first else 1, group=group),
             "order": lambda group: dist.all_reduce(x, group=group) if first else dist.all_gather_into_tensor(torch.empty(200), x, group=group),
             "large order": lambda group: dist.all_reduce(x, group=group) if first else gather_large(group),
             "large shape": lambda group: gather_large(group) if first else gather_large(group, 2),
             "large future": lambda group: dist.all_reduce(x, group=group) if first else gather_large(group, future=True),
             "barrier": lambda group: dist.all_reduce(x, group=group) if first else dist.barrier(group=group)}
    found = {}
    for name, call in cases.items():
        group = dist.new_group([0, 1])
        try:
            call(group)
        except dist.DistBackendError as error:
            found[name] = str(error)
        dist.destroy_process_group(group)
    print(json.dumps(found))


def print_hosts():
    """Trains with 1, 2, 4 and 8 ranks for each host, with the default group of each job."""
    rank, found = dist.get_rank(), {}
    dist.destroy_process_group()
    os.environ["SLUICE_HOSTS"] = "auto"
    for per_host in (1, 2, 4, 8):
        os.environ["SLUICE_HOST_ID"] = f"host {rank // per_host}"
        join(f"hosts-{per_host}")
        found[per_host] = {"losses": dict(training_results(14)), "sent": sent_bytes()}
        if per_host < 8:
            dist.destroy_process_group()
    print(json.dumps(found))


def until_lost(group=None):
    x = torch.ones(100_000)
    dist.all_reduce(x, group=group)
    print("begun", flush=True)
    try:
        while True:
            dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    except dist.DistBackendError as error:
        print(json.dumps(str(error)), flush=True)
    print(json.dumps([kind_of_error(lambda: dist.all_reduce(x, group=group, async_op=is_async)) for is_async in (False, True)]), flush=True)


def until_lost_in_group():
    group = dist.new_group([1, 2])
    if dist.get_rank() > 0:
        until_lost(group)


def join(job, backend="sluice"):
    dist.init_process_group(backend, init_method=f"file://{os.environ['STORE']}-{job}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


def main():
    mode, pools = sys.argv[1], sys.argv[2:]
    torch.set_num_threads(1)
    if pools[-1] == "no-import":
        pools.pop()
    else:
        import sluice.torch  # noqa: F401
    for job, pool in enumerate(pools):
        in_memory = pool == "memory"  # without reducers, and the ranks share their host's memory
        os.environ.update(SLUICE_REDUCERS="none" if in_memory else pool, SLUICE_HOSTS="auto" if in_memory else "off")
        join(job, "gloo" if pool == "gloo" else "sluice")
        {"results": print_results, "groups": print_groups, "disagree": print_disagreements, "lost": until_lost, "lost_in_group": until_lost_in_group,
         "hosts": print_hosts}[mode]()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
