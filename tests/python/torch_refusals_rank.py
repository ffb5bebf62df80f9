"""usage: torch_refusals_rank.py alone|devices|many|options|probe|results|timeouts: a rank that makes calls which the backend must refuse. Prints JSON with the errors.

alone: what a group of one rank returns, or its errors, and the errors of a group of two. devices: tensors of several devices in one call, in every order, for every collective. many: the ranks of a host that has too many of them to share
memory, as threads; prints their sums. options: groups whose options or variables are bad on rank 1, or on rank 0.
probe: why the rank cannot use its device, wherever its groups would meet.
results: tensors that cannot hold a result, for every collective; with HOSTS on host streams, and it has the letter of each rank's host.
timeouts: those that are no timedelta, or negative, everywhere in the package."""

import faulthandler
import json
import os
import sys
import threading
from datetime import timedelta

import sluice.torch  # noqa: F401
import torch
import torch.distributed as dist
from package_test_bed import join_torch
from sluice.torch import group_session
from sluice.torch.device import STREAMED, HostDevice
from sluice.torch.devices.composed_group import JoinedWork
from torch._C import _distributed_c10d as c10d


def error_of(call):
    try:
        call()
    except Exception as error:  # the type is the result
        return f"{type(error).__name__}: {error}"
    return "accepted"


def mixed(group):
    """Yields the name of each collective of several tensors, the sizes of the tensors, and the call with them as arguments."""
    coalesced = ("reduce_scatter_tensor_coalesced", "allgather_into_tensor_coalesced", "reduce_scatter_single_coalesced", "all_gather_single_coalesced")
    bases = {"_reduce_scatter_base": (2, 4), "reduce_scatter_single": (2, 4), "_allgather_base": (4, 2), "all_gather_single": (4, 2)}
    yield "allreduce_coalesced", (4, 4), lambda a, b: group.allreduce_coalesced([a, b])
    yield "reduce_scatter", (2, 2, 2), lambda a, b, c: group.reduce_scatter([a], [[b, c]])
    yield "allgather", (2, 2, 2), lambda a, b, c: group.allgather([[a, b]], [c])
    yield "allgather_coalesced", (2, 2, 2, 2, 2, 2), lambda a, b, c, d, e, f: group.allgather_coalesced([[a, b], [c, d]], [e, f])
    yield "gather", (2, 2, 2), lambda a, b, c: dist.gather(c, [a, b] if dist.get_rank() == 0 else None)
    yield "scatter", (2, 2, 2), lambda a, b, c: dist.scatter(a, [b, c] if dist.get_rank() == 0 else None)
    yield "alltoall", (2, 2, 2, 2), lambda a, b, c, d: group.alltoall([a, b], [c, d])
    yield "alltoall_base", (4, 4), lambda a, b: group.alltoall_base(a, b, [], [])
    for name, counts in bases.items():
        if hasattr(group, name):
            yield name, counts, getattr(group, name)
    for name in coalesced:
        if hasattr(group, name):
            counts = (2, 2, 4, 4) if "scatter" in name else (4, 4, 2, 2)
            yield name, counts, lambda a, b, c, d, name=name: getattr(group, name)([a, b], [c, d])


def devices():
    """{name: the errors of all calls with tensors of both devices}"""
    found = {}
    for name, counts, call in mixed(dist.group.WORLD):
        for chosen in range(1, (1 << len(counts)) - 1):
            tensors = [torch.ones(count, device="meta" if chosen >> place & 1 else "cpu") for place, count in enumerate(counts)]
            if name in ("gather", "scatter") and dist.get_rank() != 0:
                continue  # this rank passes one tensor
            found.setdefault(name, []).append(error_of(lambda call=call, tensors=tensors: call(*tensors).wait()))
    x = torch.ones(4)
    dist.all_reduce(x)  # none of them has begun
    return {"errors": found, "sum": x[0].item()}


def many(ranks=65):
    """{a rank's sum, or its error: the number of such ranks}"""
    own, found = group_session.announcement(None), [None] * ranks
    agreed = group_session.decide([own] * ranks)

    def join(rank):
        try:
            with group_session.sessions_of(agreed, own, rank, ranks, sluice.torch.Options()).open(0, timedelta(seconds=60)) as session:
                found[rank] = str(session.allreduce(torch.ones(1000))[0].item())
        except Exception as error:
            found[rank] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {each: found.count(each) for each in found}


def options():
    """{case: the error}"""
    rank, found = dist.get_rank(), {}
    cases = {"key file": ({"key_file": "/nonexistent/key"}, {}), "variable": ({}, {"SLUICE_KEY_FILE": "/nonexistent/key"}), "type": ({"job": 5}, {}),
             "wire type": ({"wire_dtype": "fp4"}, {}), "finding": ({"on_finding": "shout"}, {}), "interface": ({}, {"SLUICE_IFNAME": "nothing"})}
    for bad in 1, 0:
        for name, (fields, variables) in cases.items():
            own = rank == bad
            os.environ.update(variables if own else {})
            found[f"{name} of {bad}"] = error_of(lambda own=own, fields=fields: dist.new_group([0, 1], pg_options=sluice.torch.Options(**fields if own else {})))
            for variable in variables if own else {}:
                del os.environ[variable]
    x = torch.ones(4)
    dist.all_reduce(x, group=dist.new_group([0, 1]))
    return {"errors": found, "sum": x[0].item()}


def probe():
    """{variables: the error, or None}"""
    found = {}
    for hosts in "auto", "off":
        for colocated in "auto", "off":
            for address in "", "192.0.2.7":  # of another host
                os.environ.update(SLUICE_HOSTS=hosts, SLUICE_COLOCATED=colocated, MASTER_ADDR=address, SLUICE_RENDEZVOUS=address)
                failure = group_session.failure_of(HostDevice(torch.device("cpu")))
                found[f"{hosts} {colocated} {address}"] = None if failure is None else str(failure)
    os.environ["SLUICE_HOSTS"] = "auto"
    device = HostDevice(torch.device("cpu"))
    device.session_options = {"device": "cuda:999"}
    found["no device"] = str(group_session.failure_of(device))
    return found


def results():
    """{call: its error, and what the next call of ones returns}"""
    group, ranks, found = dist.group.WORLD, dist.get_world_size(), {}
    count = 50_000  # elements in one place

    def shared(parts=1):
        return torch.ones(1).expand(parts * count)

    x, whole = torch.ones(count), torch.ones(ranks * count)
    calls = {"all_reduce": lambda: dist.all_reduce(shared()), "max": lambda: dist.all_reduce(torch.ones(1, 2).expand(count, 2), dist.ReduceOp.MAX),
             "factor": lambda: dist.all_reduce(shared(), dist._make_nccl_premul_sum(2.0)), "coalesced": lambda: group.allreduce_coalesced([x.clone(), shared()]).wait(),
             "reduce": lambda: dist.reduce(shared(), 0), "broadcast": lambda: dist.broadcast(shared(), ranks - 1),
             "scatter": lambda: dist.reduce_scatter_tensor(shared(), whole), "scatter list": lambda: dist.reduce_scatter(shared(), [x] * ranks),
             "gather": lambda: dist.all_gather_into_tensor(shared(ranks), x), "gather list": lambda: dist.all_gather([shared() for _ in range(ranks)], x),
             "complex factor": lambda: dist.all_reduce(x.clone(), dist._make_nccl_premul_sum(torch.ones(1, dtype=torch.complex64)))}
    if "HOSTS" in os.environ:
        calls["recv"] = lambda: dist.recv(shared(), 1 - dist.get_rank())
    for name, call in calls.items():
        error, y = error_of(call), torch.ones(count)
        after = error_of(lambda y=y: dist.all_reduce(y))
        found[name] = [error, y.unique().tolist() if after == "accepted" else after]
    parts, everything = torch.zeros(count), torch.zeros(ranks * count)
    dist.reduce_scatter_tensor(parts, shared(ranks))  # only read
    dist.all_gather_into_tensor(everything, shared())
    with torch.inference_mode():  # what is made there can be written only there
        strided = torch.ones(2 * count)[::2]
        dist.all_reduce(strided)
    return {"errors": found, "read": [parts.unique().tolist(), everything.unique().tolist(), strided.unique().tolist()]}


def accepted(group, ranks):
    """Yields the name of a call, the call, its result and the value in it."""
    def ones(*shape):
        return torch.ones(shape)

    for kind in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32):
        for name, shape in ("stacked", (ranks, 8, 66)), ("joined", (ranks * 8, 66)), ("flat", (ranks * 8 * 66,)):
            part, whole = ones(8, 66).to(kind), ones(*shape).to(kind)
            out, everything = torch.zeros(8, 66).to(kind), torch.zeros(shape).to(kind)
            yield f"scatter {kind} {name}", lambda out=out, whole=whole: dist.reduce_scatter_tensor(out, whole, group=group), out, ranks
            yield f"gather {kind} {name}", lambda out=everything, part=part: dist.all_gather_into_tensor(out, part, group=group), everything, 1
        x, listed = ones(66, 8).t().to(kind), [torch.zeros(66, 8).to(kind).t() for _ in range(ranks)]
        yield f"list {kind}", lambda listed=listed: dist.all_gather(listed, ones(8, 66).to(kind), group=group), listed[-1], 1
        yield f"reduced {kind}", lambda x=x: dist.all_reduce(x, group=group), x, ranks
    flags = torch.ones(7, dtype=torch.int16)
    yield "broadcast", lambda: dist.broadcast(flags, dist.get_process_group_ranks(group)[0], group=group), flags, 1
    average, scaled, strided, scattered = ones(7), ones(7), torch.ones(14)[::2], torch.zeros(14)[::2]
    yield "average", lambda: dist.all_reduce(average, dist.ReduceOp.AVG, group=group), average, 1
    yield "factor", lambda: dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0), group=group), scaled, 2 * ranks
    yield "strided", lambda: dist.reduce(strided, dist.get_process_group_ranks(group)[0], group=group), strided, ranks if dist.get_rank(group) == 0 else 1
    yield "scattered", lambda: dist.reduce_scatter_tensor(scattered, ones(ranks, 7), group=group), scattered, ranks
    outs = [torch.zeros(3), torch.zeros(4)]
    yield "lists", lambda: group.reduce_scatter(outs, [[ones(3)] * ranks, [ones(4)] * ranks]).wait(), outs[1], ranks
    late = ones(5)
    yield "future", lambda: dist.all_reduce(late, group=group, async_op=True).get_future().wait()[0].sub_(1), late, ranks - 1
    yield "root", lambda: group.broadcast([ones(3)], 7).wait(), late, None
    yield "size", lambda: dist.reduce_scatter_tensor(torch.zeros(5), torch.zeros(7 * ranks), group=group), late, None


def alone():
    """{ranks of the group: {call: its error, or whether the result is right}}"""
    own = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
    found = {}
    for group, ranks in (own, 1), (dist.group.WORLD, 2):
        found[ranks] = {}
        for name, call, result, value in accepted(group, ranks):
            error = error_of(call)
            found[ranks][name] = bool(result.float().eq(value).all()) if error == "accepted" else error
    return found


def timeouts():
    """{call: the errors with a number, and with a negative timedelta}"""
    group, x, negative = dist.group.WORLD, torch.ones(4), timedelta(seconds=-5)
    work = dist.all_reduce(x, async_op=True)

    def with_options(kind, call):
        def with_timeout(timeout):
            opts = kind()
            opts.timeout = timeout
            return call(opts)

        return with_timeout

    calls = {"set_timeout": group.set_timeout, "wait": work.wait, "joined": JoinedWork([work]).wait, "barrier": lambda timeout: group.barrier(timeout=timeout),
             "barrier's options": group.barrier, "allreduce": lambda timeout: group.allreduce(x, timeout=timeout),
             "allreduce's options": with_options(c10d.AllreduceOptions, lambda opts: group.allreduce([x], opts)),
             "allreduce_coalesced": lambda timeout: group.allreduce_coalesced([x], timeout), "allgather": lambda timeout: group.allgather([[x, x]], [x], timeout),
             "reduce_scatter": lambda timeout: group.reduce_scatter(x, [x, x], timeout=timeout), "_allgather_base": lambda timeout: group._allgather_base(x, x[:2], timeout),
             "broadcast": lambda timeout: group.broadcast(x, 0, timeout=timeout), "reduce": lambda timeout: group.reduce(x, 0, timeout=timeout),
             "new_group": lambda timeout: dist.new_group([0, 1], timeout=timeout)}
    if hasattr(group, "split_group") and hasattr(dist, "split_group"):
        calls["split_group"] = lambda timeout: group.split_group([0, 1], timeout=timeout)
    found = {name: [error_of(lambda call=call, timeout=timeout: call(timeout)) for timeout in (5, negative)] for name, call in calls.items()}
    work.wait()
    return {"errors": found, "sum": x[0].item()}


def main():
    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where, before the test's deadline
    torch.set_num_threads(1)
    if sys.argv[1] in ("many", "probe"):
        return print(json.dumps({"many": many, "probe": probe}[sys.argv[1]]()))
    if hosts := os.environ.get("HOSTS"):
        STREAMED["cpu"], os.environ["SLUICE_HOST_ID"] = HostDevice, hosts[int(os.environ["RANK"])]
    join_torch("sluice")
    print(json.dumps({"alone": alone, "devices": devices, "options": options, "results": results, "timeouts": timeouts}[sys.argv[1]]()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
