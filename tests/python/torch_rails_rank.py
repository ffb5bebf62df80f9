"""usage: torch_rails_rank.py collectives|wires|decisions|cycles|exits|unable|leaves|lost|in_motion|overdue HOSTS: collectives of the backend "sluice" whose hosts
reduce first, on host streams.

HOSTS has the letter of each rank's host, such as aabb. collectives: checks all against sums in f64, and trains. wires: prints what travels in fewer
bits. decisions: prints where hosts do not reduce first, and why. cycles: prints what groups that are gone leave. exits: ends without a goodbye to
torch. unable, leaves, lost, in_motion, overdue: rank 1 cannot begin a collective, destroys its group, is killed beside a collective or within one, or does
not call, and the others print what they are told."""

import faulthandler
import hashlib
import json
import os
import sys
import time
import warnings
from datetime import timedelta

import sluice
import torch
import torch.distributed as dist
from package_test_bed import join_torch, until
from sluice.torch import Options
from sluice.torch.device import STREAMED, CudaDevice, HostDevice
from sluice.torch.rails import railed_session
from sluice.torch.rails.railed_session import RailedSession
from torch.nn.parallel import DistributedDataParallel

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-14, torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.int32: 0, torch.int64: 0, torch.uint8: 0}
COUNTS = (0, 1, 1000, 16384, 70_001)  # below and from LEAST_BYTES on, and with a length that the ranks do not divide
ReduceOp = dist.ReduceOp
CPU = torch.device("cpu")


def value_of(rank, count, dtype, seed=0):
    random = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point:
        return torch.randn(count, generator=random, dtype=torch.float64).to(dtype)
    return torch.randint(0, 20, (count,), generator=random).to(dtype)


def reduced(op, count, dtype):
    whole = torch.stack([value_of(rank, count, dtype).double() for rank in range(RANKS)])
    if op in (ReduceOp.MIN, ReduceOp.MAX):
        return whole.amin(0) if op == ReduceOp.MIN else whole.amax(0)
    if op == ReduceOp.PRODUCT:
        return whole.prod(0)
    return whole.sum(0) / (RANKS if op == ReduceOp.AVG else 1)


class Results:
    """What the ranks have, which must be near the values in f64, and for some equal on all ranks."""

    def __init__(self):
        self.bits = hashlib.sha256()
        self.cases = 0

    def check(self, name, found, expected, dtype, is_everywhere=True):
        found = found.contiguous()
        if is_everywhere:
            self.bits.update(found.view(-1).view(torch.uint8).numpy().tobytes())
        scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
        error = (found.double() - expected).abs().max().item() if found.numel() else 0.0
        assert found.shape == expected.shape and error <= TOLERANCES[dtype] * scale, (name, error)
        self.cases += 1


def check_reductions(results, dtype, count):
    own = value_of(RANK, count, dtype)
    floats = (ReduceOp.AVG,) if dtype.is_floating_point else ()
    for op in (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT, *floats):
        name, expected = f"{op} of {count} {dtype}", reduced(op, count, dtype)
        if op == ReduceOp.PRODUCT and not dtype.is_floating_point:
            expected = torch.stack([value_of(rank, count, dtype) for rank in range(RANKS)]).prod(0).to(dtype).double()
        x = own.clone()
        dist.all_reduce(x, op)
        results.check(name, x, expected, dtype)
        root = count % RANKS
        x = own.clone()
        dist.reduce(x, root, op)
        results.check(f"reduce: {name}", x, expected if RANK == root else own.double(), dtype, False)
        part = -(-count // RANKS)
        whole = torch.cat([own, own.new_zeros(part * RANKS - count)])
        before, out = whole.clone(), own.new_empty(part)
        dist.reduce_scatter_tensor(out, whole, op)
        everything = torch.cat([expected, torch.zeros(part * RANKS - count, dtype=torch.float64)])
        results.check(f"reduce-scatter: {name}", out, everything[RANK * part:][:part], dtype, False)
        assert torch.equal(whole, before)


def check_moves(results, dtype, count):
    own, everything = value_of(RANK, count, dtype), torch.stack([value_of(rank, count, dtype) for rank in range(RANKS)])
    whole, listed = own.new_zeros(RANKS * count), [own.new_zeros(count) for _ in range(RANKS)]
    dist.all_gather_into_tensor(whole, own)
    results.check(f"gathered {count} {dtype}", whole, everything.view(-1).double(), dtype)
    dist.all_gather(listed, own)
    results.check(f"gathered list of {count} {dtype}", torch.cat(listed), everything.view(-1).double(), dtype)
    for root in range(RANKS):
        x = own.clone()
        dist.broadcast(x, root)
        results.check(f"broadcast of {count} {dtype} from {root}", x, everything[root].double(), dtype)


def check_others(results):
    """Strides, types that only reducers add, factors, coalesced calls."""
    strided = torch.zeros(60_000)[::2]
    strided.copy_(value_of(RANK, 30_000, torch.float32))
    dist.all_reduce(strided)
    results.check("strided", strided, reduced(ReduceOp.SUM, 30_000, torch.float32), torch.float32)
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.full((70_000,), 2.0).to(kind)
        dist.all_reduce(x)
        results.check(str(kind), x.float(), torch.full((70_000,), 2.0 * RANKS).double(), torch.float32)
        whole = torch.empty(RANKS * 70_000, dtype=kind)
        dist.all_gather_into_tensor(whole, torch.full((70_000,), float(RANK)).to(kind))
        results.check(f"gathered {kind}", whole.float(), torch.arange(float(RANKS)).repeat_interleave(70_000).double(), torch.float32)
    large = torch.full((40_000,), 30_000.0, dtype=torch.float16)  # whose sum f16 cannot have
    dist.all_reduce(large, ReduceOp.AVG)
    results.check("average of f16", large, torch.full((40_000,), 30_000.0).double(), torch.float16)
    scaled = value_of(RANK, 30_000, torch.float32)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    results.check("factor", scaled, reduced(ReduceOp.SUM, 30_000, torch.float32) / 2, torch.float32)
    flags = torch.arange(100_000) % 3 == RANK
    dist.broadcast(flags, 1)
    assert torch.equal(flags, torch.arange(100_000) % 3 == 1)
    pieces = [value_of(RANK, count, torch.float32) for count in (10, 30_000, 0, 77, 50_001)]
    with dist._coalescing_manager():
        for piece in pieces:
            dist.all_reduce(piece)
    for piece in pieces:
        results.check("coalesced", piece, reduced(ReduceOp.SUM, piece.numel(), torch.float32), torch.float32)
    pair, apart = (dist.new_group(ranks) for ranks in ([0, 1], [0, RANKS - 1]))
    for group, ranks in (pair, (0, 1)), (apart, (0, RANKS - 1)):  # each has hosts of its own
        if RANK in ranks:
            of_group = torch.full((30_000,), RANK + 1.0)
            dist.all_reduce(of_group, group=group)
            assert of_group.eq(ranks[0] + ranks[1] + 2.0).all(), of_group
            assert isinstance(group._streams.session, RailedSession) == (HOSTS[ranks[0]] == HOSTS[ranks[1]])
        of_all = torch.ones(30_000)
        dist.all_reduce(of_all)
        assert of_all.eq(RANKS).all(), of_all
    device = HostDevice(CPU)
    stream, found = device.new_stream(), []
    x = torch.zeros(50_000)
    with device.use(stream):  # in stream order, from the input to the result
        device.run(stream, lambda: (time.sleep(0.2), x.fill_(1.0)))  # so slow that the test sees who does not wait
        work = dist.all_reduce(x, async_op=True)
        assert work.wait() and not work.is_completed()
        device.run(stream, lambda: found.append(x.sum().item()))
    stream.synchronize()
    assert found == [50_000.0 * RANKS], found


def trained():
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8)), bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    random = torch.Generator().manual_seed(100 + RANK)
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64, generator=random)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def session_of_group():
    return dist.group.WORLD._streams.session


def collectives():
    join_torch("gloo", "gloo")
    losses = [trained()]
    dist.destroy_process_group()
    join()
    results = Results()
    dist.all_reduce(torch.zeros(0))
    first = dist.group.WORLD._session.stats().payload_bytes_out
    for dtype in TOLERANCES:
        for count in COUNTS:
            check_reductions(results, dtype, count)
            check_moves(results, dtype, count)
    check_others(results)
    losses.append(trained())
    assert isinstance(session_of_group(), RailedSession)
    rail = dist.group.WORLD.session(CPU) if HOSTS.count(HOSTS[0]) < RANKS else None
    sent = [0, 0]
    if rail is not None:
        for index, count in enumerate((0, 1 << 20)):
            before = rail.stats().payload_bytes_out
            dist.all_reduce(torch.ones(count))
            dist.barrier()
            sent[index] = rail.stats().payload_bytes_out - before
    everywhere = [None] * RANKS
    dist.all_gather_object(everywhere, results.bits.hexdigest())
    assert len(set(everywhere)) == 1, "the ranks have other bits"
    passed = dist.group.WORLD._session.stats().payload_bytes_out - first
    print(json.dumps({"cases": results.cases, "losses": losses, "sent": sent[1] - sent[0], "through host memory": passed, "ranks": None if rail is None else rail.ranks}))
    dist.destroy_process_group()


def join(attempt="", **options):
    os.environ["SLUICE_HOST_ID"] = HOSTS[RANK]
    join_torch("sluice", attempt, **options)


def wires():
    """What averages of one tensor are, summed up over steps, and what the rail sends."""
    found, exact = {}, torch.stack([value_of(rank, 40_003, torch.float32).double() for rank in range(RANKS)]).mean(0)
    for name, options in (("f32", Options()), ("bf16", Options(wire_dtype="bf16")), ("int8", Options(wire_dtype="int8")),
                          ("no feedback", Options(wire_dtype="int8", error_feedback=False)), ("few", Options(wire_dtype="int8", wire_min_count=50_000))):
        join(name, pg_options=options)
        x, total, steps = torch.empty(40_003), torch.zeros(40_003, dtype=torch.float64), 20
        before = None
        for _ in range(steps):
            x.copy_(value_of(RANK, 40_003, torch.float32))
            dist.all_reduce(x, ReduceOp.AVG)
            if before is None:
                before = dist.group.WORLD.session(CPU).stats().payload_bytes_out
            total += x
        sent = (dist.group.WORLD.session(CPU).stats().payload_bytes_out - before) / (steps - 1)
        residuals = dist.group.WORLD._residuals
        found[name] = [(total / steps - exact).abs().max().item(), sent, 0 if residuals is None else residuals.memory()]
        dist.destroy_process_group()
    scattered = Options(wire_dtype="int8", error_feedback=True)
    join("scattered", pg_options=scattered)
    x, part, total = torch.empty(40_000), torch.empty(40_000 // RANKS), 0.0
    for _ in range(20):
        x.copy_(value_of(RANK, 40_000, torch.float32))
        dist.reduce_scatter_tensor(part, x)
        total = total + part.double()
    mine = torch.stack([value_of(rank, 40_000, torch.float32).double() for rank in range(RANKS)]).sum(0)[RANK * part.numel():][:part.numel()]
    found["scattered"] = [(total / 20 - mine).abs().max().item(), 0, dist.group.WORLD._residuals.memory()]
    dist.destroy_process_group()
    print(json.dumps(found))


class WithoutGroups(HostDevice):
    def has_groups(self):
        return False


class Refusing(HostDevice):
    def new_group(self, *arguments):
        raise RuntimeError("Duplicate GPU detected")


def of_nccl():
    """What stands in the way of a group of NCCL here, where a GPU is missing, or the name of the type that this torch lacks."""
    if not dist.is_nccl_available():
        return "ProcessGroupNCCL"
    device = CudaDevice.__new__(CudaDevice)
    assert device.has_groups()
    before = dict(os.environ)
    try:
        device.new_group(dist.HashStore(), 0, 1, timedelta(seconds=5))
    except Exception as error:
        assert os.environ == before
        return str(error)


def decisions():
    """{case: [error or whether the hosts reduce first, warnings of the package]}"""
    global HOSTS
    found = {}
    cases = {"default": {}, "off": {"options": Options(reduce_in_host=False)}, "variable": {"variable": "0"}, "chosen": {"variable": "0", "options": Options(reduce_in_host=True)},
             "findings": {"options": Options(on_finding=print) if RANK == 3 else None}, "findings, chosen": {"options": Options(on_finding=print, reduce_in_host=True)},
             "uneven": {"hosts": "aaab"}, "one each": {"hosts": "abcd"}, "without": {"device": WithoutGroups if RANK == 2 else HostDevice},
             "refused": {"device": Refusing if RANK < 2 else HostDevice}, "differ": {"options": Options(reduce_in_host=RANK != 2)}}
    hosts = HOSTS
    for name, case in cases.items():
        HOSTS = case.get("hosts", hosts)
        STREAMED["cpu"] = case.get("device", HostDevice)
        os.environ["SLUICE_REDUCE_IN_HOST"] = case.get("variable", "")
        join(name, pg_options=case.get("options"), timeout=timedelta(seconds=20))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                x = torch.full((20_000,), float(RANK))
                dist.all_reduce(x)
                assert x.eq(6.0).all()
                told = isinstance(session_of_group(), RailedSession)
            except dist.DistBackendError as error:
                told = str(error)
        found[name] = [told, [str(each.message) for each in caught if "backend sluice" in str(each.message)]]
        dist.destroy_process_group()
    os.environ["SLUICE_REDUCE_IN_HOST"] = "yes"
    try:
        join("invalid")
    except ValueError as error:
        found["invalid"] = str(error)
    found["nccl"] = of_nccl()
    print(json.dumps(found))


def left():
    return {"threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd"))}


def cycles():
    found = []
    for count in (1, 4):
        for index in range(count):
            join(f"{count} {index}")
            x = torch.ones(2_000_000)
            dist.all_reduce(x, async_op=True)
            dist.destroy_process_group()  # waits for the collective
            assert x.eq(RANKS).all()
        found.append(left())
    print(json.dumps(found))


def exits():
    """The script ends without destroy_process_group(), rank 2 last."""
    join()
    x = torch.ones(1_000_000)
    work = dist.all_reduce(x, async_op=True)
    if RANK == 2:
        sys.stdin.readline()
    work.wait()
    print(json.dumps([x.unique().tolist(), str(dist.group.WORLD.error())]), flush=True)


def unable():
    """Rank 1 cannot begin what the others have begun."""
    join()
    x = torch.ones(1_000_000)
    dist.all_reduce(x)

    def fail(*arguments, **options):
        raise sluice.Again("too many operations")

    if RANK == 1:
        session_of_group()._session.allreduce_async = fail
    error, _ = told_of(lambda: dist.all_reduce(x))
    leave([error, str(error_of_group())])


def leave(told):
    """Prints what this rank was told, and ends without a goodbye when all ranks have been told: a rank that ends is a lost one, too."""
    print(json.dumps(told), flush=True)
    sys.stdin.readline()
    os._exit(0)


def told_of(call):
    begin = time.monotonic()
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - begin
    return "nothing", 0.0


def error_of_group():
    return until("the group has failed", dist.group.WORLD.error)


def leaves():
    """Rank 1 destroys its group. The others call a collective of COUNT elements, those in LATER when stdin has a line."""
    join()
    x = torch.ones(int(os.environ["COUNT"]))
    dist.all_reduce(x)
    dist.barrier()
    if RANK == 1:
        dist.destroy_process_group()
        sys.stdin.readline()
        os._exit(0)
    if str(RANK) in os.environ["LATER"]:
        sys.stdin.readline()
    leave(told_of(lambda: [dist.all_reduce(x) for _ in range(1000)]))


def lost():
    join()
    x = torch.ones(1_000_000)
    dist.all_reduce(x)
    dist.barrier()
    if RANK == 1:
        print("begun", flush=True)
        sys.stdin.readline()  # until it is killed
    work = dist.all_reduce(x, async_op=True)
    print("begun", flush=True)
    until("the collective has ended", work.is_completed)
    error = error_of_group()
    leave([told_of(lambda: dist.all_reduce(x))[0], str(error), [told_of(work.wait)[0], work.is_success()]])


def in_motion():
    """All ranks call collectives, until rank 1 is killed."""
    join()
    x, part, whole = torch.ones(100_000), torch.ones(50_000), torch.ones(50_000 * RANKS)
    dist.all_reduce(x)
    print("begun", flush=True)
    error = "nothing"
    while error == "nothing":
        for call in (lambda: dist.all_reduce(x.fill_(1)), lambda: dist.reduce_scatter_tensor(part, whole), lambda: dist.all_gather_into_tensor(whole, part.fill_(1))):
            if error == "nothing":
                error, seconds = told_of(call)
    leave([error, seconds])


def overdue():
    join(timeout=timedelta(seconds=6))
    x = torch.ones(1_000_000)
    dist.all_reduce(x)
    dist.barrier()
    if RANK == 1:
        sys.stdin.readline()
        os._exit(0)
    work = dist.all_reduce(x, async_op=True)
    begin = time.monotonic()
    until("the collective has ended", work.is_completed)
    error_of_group()
    leave([time.monotonic() - begin, told_of(lambda: dist.all_reduce(x))[0]])


def main():
    faulthandler.dump_traceback_later(150, exit=True)  # a hang shows where, before the test's deadline
    torch.set_num_threads(1)
    STREAMED["cpu"] = HostDevice
    if "LEAST_BYTES" in os.environ:
        railed_session.LEAST_BYTES = int(os.environ["LEAST_BYTES"])
    {"collectives": collectives, "wires": wires, "decisions": decisions, "cycles": cycles, "exits": exits, "unable": unable, "leaves": leaves, "lost": lost, "in_motion": in_motion, "overdue": overdue}[sys.argv[1]]()


HOSTS = sys.argv[2]
if __name__ == "__main__":
    main()
