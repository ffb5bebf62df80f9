"""usage: torch_streams_rank.py device|collectives|lost|steps: collectives of the backend "sluice" in stream order, on host streams instead of those of a GPU.

device: checks HostDevice. collectives: checks what Work promises, and prints what collectives and trainings return, in gloo and on streams. lost:
rank 1 ends when stdin has a line, and rank 0 prints what it is told. steps: what both are told when a part of a collective fails on rank 1."""

import faulthandler
import gc
import json
import os
import sys
import threading
import time
import weakref

import sluice
import torch
import torch.distributed as dist
from package_test_bed import join_torch, until
from sluice.torch import offload
from sluice.torch.device import STREAMED, CallingThread, HostDevice
from sluice.torch.devices.streamed import StreamedWork
from sluice.torch.rails import railed_session
from sluice.torch.rails.monitor import Monitor
from sluice.torch.rails.railed_session import RailedSession
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel


def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def check_device():
    device = HostDevice(torch.device("cpu"))
    assert set(STREAMED) == {"cuda"}
    first, second = device.new_stream(), device.new_stream()
    gate, order = threading.Event(), []
    device.run(first, gate.wait)
    device.run(first, lambda: order.append("first"))
    device.follow(second, first)
    device.run(second, lambda: order.append("second"))
    event = device.record(second)
    kept = torch.ones(3)
    alive = weakref.ref(kept)
    device.keep(kept, second)
    del kept
    # Nothing above has waited.
    assert not event.query() and not order and alive() is not None
    assert isinstance(device.current_stream(), CallingThread)
    with device.use(second):
        assert device.current_stream() is second
    gate.set()
    device.wait(device.current_stream(), event)  # of this thread: blocks
    assert event.query() and order == ["first", "second"]
    second.synchronize()
    gc.collect()
    assert alive() is None
    assert device.future(first, 1) is None and not device.is_capturing()
    # The work of a stream may have its last reference.
    third, gate = device.new_stream(), threading.Event()
    device.run(third, lambda held=third: gate.wait())
    alive = weakref.ref(third)
    del third
    gate.set()
    until("the stream has gone", lambda: alive() is None)
    # What a stream cannot do is told to who uses it next, and does not stop it.
    device.run(first, lambda: 1 // 0)
    event = device.record(first)
    event.synchronize()
    for call in (first.synchronize, lambda: device.run(first, gate.wait)):
        told = raised(call)
        assert told.startswith("ZeroDivisionError"), told
        first.synchronize()  # once
        device.run(first, lambda: 1 // 0)
        device.record(first).synchronize()
    # A session stages host memory on such a stream, and the stream's later work finds the result.
    with sluice.Session("none", session_id=bytes(15) + b"s", rank=0, ranks=1, **device.session_options) as session:
        x = torch.zeros(100_000)
        device.run(second, lambda: x.fill_(3.0))
        session.allreduce_async(x, stream=device.handle(second))
        found = []
        device.run(second, lambda: found.append(x.sum().item()))
        second.synchronize()
        assert found == [300_000.0], found
        assert session.stream_stats().bytes_staged_out == 400_000
    handle = first.handle
    del first, session
    gc.collect()
    library = sluice._library.load()
    assert library.sluice_host_stream_synchronize(handle) == sluice._library.INVALID_ARGUMENT  # it has ended


class Recording(HostDevice):
    """Records which memory was kept until the end of the collectives that use it."""

    kept = set()
    captures = False

    def keep(self, tensor, stream):
        self.kept.add(tensor.data_ptr())
        super().keep(tensor, stream)

    def is_capturing(self):
        return self.captures


def on_streams():
    """Lets collectives of host memory run in stream order in groups that are made from now on, and all by rails if HOSTS has a letter for each rank's host."""
    STREAMED["cpu"] = Recording
    if "HOSTS" in os.environ:
        os.environ["SLUICE_HOST_ID"] = os.environ["HOSTS"][int(os.environ["RANK"])]
        railed_session.LEAST_BYTES = 1


def mine(count=1000):
    return torch.arange(count, dtype=torch.float32) % 7 + dist.get_rank() + 1


def calls():
    """Yields pairs: a collective that returns its Work, and the tensors that have the result."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    is_gloo = dist.get_backend() == "gloo"  # which reduces the wrong elements of tensors with strides
    x, strided = mine(), torch.zeros(100) if is_gloo else torch.zeros(300)[::3]
    strided.copy_(mine(100))
    yield lambda: dist.all_reduce(x, async_op=True), [x]
    yield lambda: dist.all_reduce(strided, dist.ReduceOp.MAX, async_op=True), [strided]
    average, scaled = mine(), mine()
    yield lambda: dist.all_reduce(average, dist.ReduceOp.SUM if is_gloo else dist.ReduceOp.AVG, async_op=True), []
    yield lambda: dist.all_reduce(scaled.t(), dist._make_nccl_premul_sum(2.0), async_op=True) if not is_gloo else None, []
    listed = [torch.zeros(20, 30).t() for _ in range(ranks)]
    yield lambda: dist.all_gather(listed, mine(600).reshape(30, 20), async_op=True), listed
    whole = torch.zeros(1000 * ranks)
    yield lambda: dist.all_gather_into_tensor(whole, mine(), async_op=True), [whole]
    part, turned = torch.zeros(500), torch.zeros(50) if is_gloo else torch.zeros(100)[::2]
    yield lambda: dist.reduce_scatter_tensor(part, mine(500 * ranks), async_op=True), [part]
    yield lambda: dist.reduce_scatter(turned, [mine(50) * (each + 1) for each in range(ranks)], async_op=True), [turned]
    sent, reduced = mine().reshape(10, 100).t(), mine(2000)
    yield lambda: dist.broadcast(sent, ranks - 1, async_op=True), [sent]
    yield lambda: dist.reduce(reduced, 0, async_op=True), [reduced] if rank == 0 else []
    flags = torch.tensor([True, rank == 0])
    yield lambda: dist.broadcast(flags, 1, async_op=True), [flags]
    exchanged = torch.zeros(ranks * 3)
    yield lambda: dist.all_to_all_single(exchanged, mine(ranks * 3), async_op=True), [exchanged]
    gathered = [torch.zeros(3) for _ in range(ranks)]
    yield lambda: dist.gather(mine(3), gathered if rank == 0 else None, async_op=True), gathered if rank == 0 else []
    received = torch.zeros(5)
    yield lambda: dist.irecv(received, 1) if rank == 0 else dist.isend(mine(5), 0) if rank == 1 else None, [received] if rank == 0 else []
    pieces = [mine(10), mine(2000), mine(0)]
    yield lambda: coalesced(lambda: [dist.all_reduce(piece) for piece in pieces]), pieces
    parts = [torch.zeros(7), torch.zeros(9)]
    yield lambda: coalesced(lambda: [dist.reduce_scatter_tensor(each, mine(each.numel() * ranks)) for each in parts]), parts
    wholes = [torch.zeros(7 * ranks), torch.zeros(9 * ranks)]
    yield lambda: coalesced(lambda: [dist.all_gather_into_tensor(each, mine(each.numel() // ranks)) for each in wholes]), wholes


def coalesced(body):
    with dist._coalescing_manager(async_ops=True) as collected:
        body()
    return collected.works[0]


def returned():
    """What the tensors have after wait(), and when is_completed() first returns True without wait()."""
    found = []
    for ended in (lambda work: work.wait(), until_completed):
        for call, results in calls():
            if (work := call()) is not None:
                ended(work)
                assert work.is_completed() or not isinstance(work, StreamedWork)
            found.append([each.tolist() for each in results])
    other = dist.get_rank() ^ 1
    batch = torch.zeros(4)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(4), other), dist.P2POp(dist.irecv, batch, other)]):
        work.wait()
    future = dist.all_reduce(batch, async_op=True).get_future().then(lambda value: value.value()[0] * 2).wait()
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    dist.barrier()
    return [*found, batch.tolist(), future.tolist(), objects]


def until_completed(work):
    if not isinstance(work, StreamedWork):
        work.wait()  # gloo's is_completed() may become true only there
    while not work.is_completed() and isinstance(work, StreamedWork):
        time.sleep(0.001)


def trained():
    losses = {}
    for name, wrapped in (("ddp", lambda net: DistributedDataParallel(net, bucket_cap_mb=0.01)), ("fsdp", sharded)):
        torch.manual_seed(1)
        model = wrapped(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        random = torch.Generator().manual_seed(100 + dist.get_rank())
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 32, generator=random)).square().mean()
            loss.backward()
            optimizer.step()
        losses[name] = loss.item()
    return losses


def sharded(net):
    from torch.distributed import fsdp

    if not hasattr(fsdp, "fully_shard"):  # torch 2.4
        return DistributedDataParallel(net)
    fsdp.fully_shard(net[0])
    fsdp.fully_shard(net)
    return net


def check_order():
    """A call returns at once, and wait() does too: the current stream waits, and not this thread."""
    device = HostDevice(torch.device("cpu"))
    stream, gate, found = device.new_stream(), threading.Event(), []
    x, whole, ranks = torch.zeros(1000), [torch.zeros(1000) for _ in range(dist.get_world_size())], dist.get_world_size()
    with device.use(stream):
        device.run(stream, gate.wait)
        device.run(stream, lambda: x.fill_(3.0))
        first = dist.all_reduce(x, async_op=True)
        second = dist.all_gather(whole, x, async_op=True)
        assert first.wait() and second.wait()
        device.run(stream, lambda: found.append([x.sum().item(), whole[1].sum().item()]))
        assert not first.is_completed() and not second.is_completed() and not found
    gate.set()
    stream.synchronize()
    assert found == [[3000.0 * ranks, 3000.0 * ranks]], found
    until_completed(second)
    assert first.is_success() and second.result()[1] is whole[1]


def check_memory():
    """What a collective uses is kept for its stream."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, part, whole, strided = mine(), torch.zeros(500), mine(500 * ranks), torch.zeros(300)[::3]
    listed = [torch.zeros(100) for _ in range(ranks)]
    used = {"all_reduce": (lambda: dist.all_reduce(x), [x]), "reduce": (lambda: dist.reduce(x, 0), [x]), "broadcast": (lambda: dist.broadcast(x, 0), [x]),
            "strided": (lambda: dist.all_reduce(strided), [strided]), "scattered": (lambda: dist.reduce_scatter_tensor(part, whole), [part, whole]),
            "gathered": (lambda: dist.all_gather_into_tensor(whole, part), [part, whole]), "listed": (lambda: dist.all_gather(listed, listed[rank]), listed),
            "scattered lists": (lambda: dist.reduce_scatter(part[:100], listed), [part, *listed])}
    for name, (call, tensors) in used.items():
        Recording.kept.clear()
        call()
        assert {each.data_ptr() for each in tensors} <= Recording.kept, name


def check_refusals():
    """What cannot run names the call and the tensor."""
    Recording.captures = True
    error = raised(lambda: dist.all_reduce(mine()))
    assert error.startswith("DistBackendError: allreduce cannot be captured into a graph"), error
    Recording.captures = False
    with FakeTensorMode():
        gpu, other = torch.empty(3, device="cuda:0"), torch.empty(3)
    error = raised(lambda: dist.all_reduce(gpu))
    assert error.startswith("ValueError: backend sluice: the tensors are on cuda:0, but the group uses cpu"), error
    error = raised(lambda: dist.group.WORLD.allreduce_coalesced([other, gpu]))
    assert "the tensors of allreduce_coalesced are on several devices: tensor 0 on cpu, tensor 1 on cuda:0" in error, error


def collectives():
    gloo, streamed = {}, {}
    for backend, found in (("gloo", gloo), ("sluice", streamed)):
        if backend == "sluice":
            on_streams()
        join_torch(backend, backend)
        found.update(returned=returned(), losses=trained())
        if backend == "sluice":
            check_order()
            check_memory()
            check_refusals()
            group = dist.group.WORLD
            assert group._session.stats().operations < 15, "collectives went past the streams"  # a barrier, and what the ranks agree on
            if (session := group.session()) is not None:  # None: the ranks of the host reduce in a group of torch
                found["operations"] = session.stream_stats().operations
                assert session.stream_stats().bytes_staged_in > 0
        dist.destroy_process_group()
    print(json.dumps([gloo, streamed]))


def lost():
    on_streams()
    join_torch("sluice")
    x = torch.ones(1000)
    dist.all_reduce(x)
    dist.barrier()
    if dist.get_rank() == 1:
        sys.stdin.readline()
        os._exit(0)  # without a goodbye
    work = dist.all_reduce(x, async_op=True)
    print("begun", flush=True)
    until_completed(work)
    print(json.dumps([raised(work.wait), work.is_success(), raised(lambda: dist.all_reduce(x)), raised(lambda: dist.all_reduce(x, async_op=True)),
                      str(dist.group.WORLD.error())]), flush=True)
    os._exit(0)


def steps():
    """Rank 1 fails in a step of torch, before or after the session's operation, or in one of rails. Prints [case, what the Work tells, what the next call
    tells]. What has not failed has the sum."""
    on_streams()
    begin_operation, found = Monitor.operation, []

    def operation(monitor, request):
        monitor._device.record(monitor._stream).synchronize()  # as late as a thread may come to it
        return begin_operation(monitor, request)

    for case in ("before", "after", *(["rails"] if "HOSTS" in os.environ else [])):
        join_torch("sluice", case)
        ranks, fails = dist.get_world_size(), dist.get_rank() == 1
        x, store = torch.ones(50_000), dist.distributed_c10d._get_default_store()
        dist.all_reduce(x)
        x.fill_(1)

        def fail(*arguments, begun=[f"begun by {rank}" for rank in range(ranks) if case != "rails" or rank != 1], store=store):
            store.wait(begun)
            return 1 // 0

        def start(place, x=x, before=fail if fails and case == "before" else int, after=fail if fails and case == "after" else int):
            place.run(before)
            started = offload.all_reduce(place, [x], offload.Operator("sum"))
            place.run(after)
            return started

        if fails and case == "rails":
            Monitor.operation, RailedSession._divide = operation, fail
        work = dist.group.WORLD._streams.start("all_reduce", start, [x])
        store.set(f"begun by {dist.get_rank()}", "")
        until_completed(work)
        is_success, told = work.is_success(), [raised(work.wait), raised(work.get_future().wait)]
        assert is_success == (told == ["nothing"] * 2) and (x.eq(ranks).all() or not is_success), (is_success, told, x)
        until("the group has failed", dist.group.WORLD.error)
        found.append([case, *told, raised(lambda x=x: dist.all_reduce(x))])
        dist.destroy_process_group()
    print(json.dumps(found))


def main():
    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where, before the test's deadline
    torch.set_num_threads(1)
    {"device": check_device, "collectives": collectives, "lost": lost, "steps": steps}[sys.argv[1]]()


if __name__ == "__main__":
    main()
