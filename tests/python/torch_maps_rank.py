"""usage: torch_maps_rank.py: a rank of two that makes groups with device maps, and prints for each map what serves which device, beside what torch makes of the
same map with gloo in the place of "sluice". Backend "other" is gloo under another name, "whole" one that makes whole groups."""

import faulthandler
import json
import os
import sys
from datetime import timedelta

import sluice.torch  # noqa: F401
import torch
import torch.distributed as dist
from package_test_bed import join_torch
from sluice.torch.devices import device_map
from sluice.torch.devices.device_backend import DeviceBackend
from torch._C import _distributed_c10d as c10d

IS_OLD = not hasattr(dist.ProcessGroup, "shutdown")
made = []  # the groups for which "other" was created


def other(store, rank, size, timeout):
    made.append(rank)
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)


def whole(store, rank, size, timeout):
    if hasattr(dist.ProcessGroup, "Options"):
        return dist.ProcessGroup(store, rank, size, dist.ProcessGroup.Options("whole", timeout))
    return dist.ProcessGroup(store, rank, size)


def told(call):
    """Returns the result of the call, or its exception without what depends on the process."""
    try:
        return call()
    except (RuntimeError, AssertionError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def reduced(group, device):
    x = torch.full((4,), dist.get_rank() + 1.0, device=device)
    dist.all_reduce(x, group=group)
    return x.tolist() if device == "cpu" else str(x.device)


def scattered(group):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    listed, part = [torch.zeros(2) for _ in range(ranks)], torch.zeros(2)
    dist.all_gather(listed, torch.full((2,), rank + 1.0), group=group)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * ranks), group=group)
    objects = [None] * ranks
    dist.all_gather_object(objects, rank, group=group)
    received = torch.zeros(3)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((3,), float(rank)), rank ^ 1, group), dist.P2POp(dist.irecv, received, rank ^ 1, group)])
    for work in works:
        work.wait()
    return [[t.tolist() for t in (*listed, part, received)], objects]


def seen(group):
    """What a program sees of the group. "cpu" is of the map in all that is used here."""
    return {"config": dist.get_backend_config(group).replace("sluice", "gloo"), "devices": sorted(each.type for each in group._device_types),
            "cpu": told(lambda: reduced(group, "cpu")), "meta": told(lambda: reduced(group, "meta")), "others": told(lambda: scattered(group)),
            "none": told(lambda: str(group._get_backend(torch.device("hpu")))), "barrier": told(lambda: dist.barrier(group=group))}


def of_map(name, use):
    """Makes the default group and a later one with the map, and returns what `use` returns for them."""
    try:
        join_torch(name, f"{name}-{len(os.environ['STORE'])}-{next(attempts)}", timeout=timedelta(seconds=30))
    except (RuntimeError, AssertionError, ValueError) as error:
        dist.distributed_c10d._update_default_pg(None)
        return f"{type(error).__name__}: {error}"
    try:
        return [use(dist.group.WORLD), use(dist.new_group([0, 1], backend=name))]
    finally:
        dist.destroy_process_group()


attempts = iter(range(1000))


def operations(group):
    return group.session().stats().operations


def compare(name):
    """A map with gloo instead of sluice differs from ours only in who runs what."""
    ours, gloo = of_map(name, seen), of_map(name.replace("sluice", "gloo"), seen)
    assert ours == gloo, (name, ours, gloo)
    return ours


def check_maps():
    for name in ("sluice", "cpu:sluice", "cpu:sluice,meta:other", "meta:other,cpu:sluice", "cpu:gloo,cuda:sluice", "cpu:sluice,cuda:sluice", "cpu:other,cuda:sluice"):
        compare(name)
    # Who runs what.
    cpu, cuda = torch.device("cpu"), torch.device("cuda:0")

    def of_ours(group):
        reduced(group, "cpu")
        return [operations(group), group._get_backend(cpu).name(), group._get_backend(cuda).name(), isinstance(group._get_backend(cuda), DeviceBackend)]

    assert of_map("sluice", of_ours) == [[1, "gloo", "sluice", True]] * 2
    assert of_map("cpu:gloo,cuda:sluice", of_ours) == [[0, "gloo", "sluice", True]] * 2
    before = len(made)
    found = of_map("cpu:other,cuda:sluice", of_ours)
    assert found == [[0, "gloo", "sluice", True]] * 2, found
    assert len(made) - before == 2, "the part is made once for each group"
    before = len(made)
    assert of_map("cpu:sluice,cuda:other", of_ours) == [[1, "gloo", "gloo", False]] * 2
    assert len(made) - before == 2
    alone = of_map("cuda:sluice", lambda group: [told(lambda: reduced(group, "cpu")), group._get_backend(cuda).name()])
    assert alone == [["RuntimeError: No backend type associated with device type cpu", "sluice"]] * 2, alone


def check_backend():
    """What torch asks of a device's backend, for device_id=, DeviceMesh, coalescing, messages in batches and FSDP2's allocation."""
    def ask(group):
        cuda = torch.device("cuda:0")
        backend = group._get_backend(cuda)
        assert not backend.supports_coalescing and not backend.supports_tensor_alloc(cuda) and backend.name() == "sluice"
        assert backend.rank() == dist.get_rank() and backend.size() == 2 if isinstance(backend, c10d.Backend) else IS_OLD or not backend.supports_splitting
        backend.perform_nocolor_split(cuda)
        x = torch.ones(3)
        backend.allreduce([x]).wait()
        group._start_coalescing(cuda)
        assert group.session() is not None and group.session(cuda) is None
        y = torch.ones(3)
        works = [dist.all_reduce(x, group=group, async_op=True), dist.all_reduce(y, group=group, async_op=True)]
        joined = group._end_coalescing(cuda)
        joined.wait()
        assert all(work.is_completed() for work in (*works, joined)) and len(joined.result()) == 2
        return [x.tolist(), told(lambda: backend.eager_connect_single_device(cuda)), told(lambda: backend.eager_connect_single_device(cuda))]

    for found in of_map("sluice", ask):
        assert found[0] == [4.0] * 3, found
        if not torch.cuda.is_available():  # all ranks are told, at once and again
            assert found[1] == found[2] and found[1].startswith("DistBackendError: backend sluice: cannot run collectives of tensors on cuda:0: "), found


def check_split():
    def split(group):
        parts = dist.split_group(group, [[0, 1]])
        found = seen(parts)
        return [found["config"], found["devices"], found["cpu"], found["meta"], type(parts) is type(dist.group.WORLD), operations(parts) > 0]

    if hasattr(dist, "split_group") and hasattr(dist.ProcessGroup, "split_group"):
        found = of_map("cpu:sluice,meta:other", split)
        assert found == [["cpu:gloo,meta:other", ["cpu", "meta"], [3.0] * 4, "meta", True, True]] * 2, found


def check_refusals():
    errors = {name: of_map(name, reduced) for name in ("cpu:sluice,xpu:sluice", "cpu:sluice,meta:whole", "cpu:sluice,meta:unknown")}
    assert "cannot serve device type 'xpu'; it serves cpu and cuda" in errors["cpu:sluice,xpu:sluice"], errors
    assert "cannot share a group with backend 'whole' for meta, which makes whole groups only" in errors["cpu:sluice,meta:whole"], errors
    assert "has no backend 'unknown' that can share a group" in errors["cpu:sluice,meta:unknown"], errors
    if not torch.cuda.is_available():
        # NCCL's own error. Beside gloo a rank may first see that the other one is gone.
        ours, alone = of_map("cpu:sluice,cuda:nccl", seen), of_map("cuda:nccl", seen)
        assert ours == alone, (ours, alone)
    # A torch from which the map cannot be read: no call runs in another backend than the user's.
    maker, device_map._MAKER = device_map._MAKER, ("torch", "renamed")
    unread = of_map("cpu:sluice,meta:other", lambda group: told(lambda: reduced(group, "cpu")))
    device_map._MAKER = maker
    assert unread[0].startswith("DistBackendError: backend sluice: the group was made as 'cpu:sluice,cuda:sluice', but torch"), unread
    assert "wants 'cpu:sluice,meta:other'" in unread[1], unread


def main():
    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where, before the test's deadline
    torch.set_num_threads(1)
    dist.Backend.register_backend("other", other, devices=["meta"])
    dist.Backend.register_backend("whole", whole, devices=["meta"])
    for check in (check_maps, check_backend, check_split, check_refusals):
        check()
    print(json.dumps("done"))


if __name__ == "__main__":
    sys.exit(main())
