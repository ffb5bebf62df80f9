"""usage: fsdp_rank.py layouts | lost: a rank that trains with FSDP2 over gloo, and with fsdp.offload() through the reducers of SLUICE_REDUCERS. Prints JSON."""

import hashlib
import json
import os
import sys
import threading
import warnings
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from package_test_bed import join_torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import sluice.torch
from sluice.torch import meeting
from sluice.torch.device import HostDevice
from sluice.torch.fsdp import offload
from sluice.torch.fsdp.comms import GradientScatter, ParameterGather
from sluice.torch.rails.host_stage import RailOrder
from sluice.torch.fsdp.sessions import open_channels

BF16 = torch.bfloat16
STEPS = 2
LONG = 6  # steps of a training whose losses are compared with those of f32
WIDTH = 129  # no multiple of the ranks


class Net(nn.Module):
    def __init__(self, width=WIDTH, seed=1):
        super().__init__()
        self.register_buffer("seeds", torch.tensor(seed))
        self.register_buffer("flags", torch.tensor([seed == 1, seed == 2]))
        self.first, self.second, self.last = nn.Linear(7, width), nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def build(mesh, seed=1, frozen=False, width=WIDTH, **options):
    """A module with a group of its own, and the root with the rest."""
    torch.manual_seed(seed)
    model = Net(width, seed)
    if frozen:
        model.second.weight.requires_grad_(False)
        model.last.bias.requires_grad_(False)
    for module in (model.second, model):
        fully_shard(module, mesh=mesh, **options)
    return model


def train(model, steps=STEPS, microbatches=1, prefetch=False):
    """Returns the losses of this rank, and a digest of all parameters."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        for batch in range(microbatches):
            is_last = batch == microbatches - 1
            model.set_requires_gradient_sync(is_last)
            model.set_is_last_backward(is_last)
            if prefetch:
                model.second.unshard(async_op=True)
            x = torch.randn(16, 7, generator=data)
            loss = (model(x).float() - x[:, :3].sin()).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, digest(model)


def digest(model):
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.full_tensor().detach().float().numpy().tobytes())
    return found.hexdigest()


CASES = {  # options of the model and of train()
    "plain": ({}, {}),
    "accumulated and kept": ({"reshard_after_forward": False}, {"microbatches": 2}),
    "frozen and prefetched": ({"frozen": True}, {"prefetch": True}),
    "bf16 reduced in f32": ({"mp_policy": MixedPrecisionPolicy(param_dtype=BF16)}, {}),  # by reduce_dtype=None
    "reduced in bf16": ({"mp_policy": MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=BF16)}, {}),
}


def compare_cases(mesh):
    """Pairs of ranks: {case: [torch's own, through reducers]}."""
    found = {}
    for name, (options, how) in CASES.items():
        own = train(build(mesh, **options), **how)
        with offload(model := build(mesh, **options), "f32", replicas="none"):
            found[name] = [own, train(model, **how)]
    return found


def with_wires(mesh):
    """All ranks: {wire: [losses, bytes that this rank sent as gradients, operations, digest]}."""
    found = {"gloo": [train(build(mesh), LONG)[0]]}
    for name, wire, feedback in (("f32", "f32", None), ("bf16", "bf16", None), ("again", "bf16", None), ("mxfp8", "mxfp8", None), ("fed back", "int8", True)):
        with offload(model := build(mesh), wire, options=sluice.torch.Options(wire_min_count=0, error_feedback=feedback)) as handle:
            losses, bits = train(model, LONG)
            gradients, _ = handle.sessions
            residuals = model._get_fsdp_state()._fsdp_param_groups[0]._reduce_scatter_comm._residuals
            assert (residuals is not None and residuals.memory() > 0) == bool(feedback)
            found[name] = [losses, gradients.stats().payload_bytes_out, gradients.stats().operations, bits]
            assert handle.error() is None
        assert residuals is None or residuals.memory() == 0
    return found


def with_a_factor(mesh):
    """[losses with torch's own sum and division, losses where a factor is part of the operator]"""
    own, ours = build(mesh), build(mesh)
    for model in own, ours:
        for module in model.second, model:
            module.set_gradient_divide_factor(3.0)
            if model is own:
                module.set_force_sum_reduction_for_comms(True)
    with offload(ours, "f32"):
        return [train(own)[0], train(ours)[0]]


def with_copies(mesh):
    """[torch's HSDP, a copy on each host with reducers, its gradients' bytes and those with bf16, HSDP whose replicas have the backend]"""
    native = train(build(mesh))
    copies, sent = [], []
    for wire in ("f32", "bf16"):
        # Other parameters on the second host: those of the first replace them.
        with offload(model := build(mesh["shard"], seed=1 + mesh["replicate"].get_local_rank()), wire, replicas=mesh["replicate"],
                     options=sluice.torch.Options(wire_min_count=0)) as handle:
            assert model.seeds == 1 and model.flags.tolist() == [True, False]
            before = handle.sessions[0].stats().payload_bytes_out
            copies.append(train(model))
            sent.append(handle.sessions[0].stats().payload_bytes_out - before)
    with_backend = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"),
                                    backend_override={"replicate": ("sluice", sluice.torch.Options(wire_dtype="f32"))})
    handle = offload(model := build(with_backend), "f32")
    through_backend = train(model)
    assert handle.sessions[0].stats().operations > 0
    eight_bits = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"),
                                  backend_override={"replicate": ("sluice", sluice.torch.Options(wire_dtype="int8"))})
    offload(build(eight_bits), "int8")
    values, results = torch.arange(10_000.0) % 77, []
    memory = torch.empty_like(values)
    for _ in range(2):  # the second has no residual of the first
        dist.all_reduce(memory.copy_(values), group=eight_bits.get_group("replicate"))
        results.append(memory.clone())
    assert torch.equal(*results) and not torch.equal(results[0], 2 * values)
    return {"native": native, "copies": copies[0], "narrow": copies[1], "sent": sent, "backend": through_backend,
            "refused": refusal(lambda: offload(build(with_backend), "bf16"))}


def with_fewer_gathered(mesh):
    """[torch's own, offloaded]: the backward pass gathers over pairs of ranks."""
    own = train(build(mesh, reshard_after_forward=2))
    with offload(model := build(mesh, reshard_after_forward=2), "f32"):
        return [own, train(model)]


def refusal(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def refusals(world, pairs):
    model = build(world)
    closed = offload(model, "f32")
    twice = refusal(lambda: offload(model, "f32"))
    closed.close()
    after = refusal(lambda: train(model))
    custom = build(world)
    custom.set_custom_all_gather(lambda *arguments, **options: None)
    rank = dist.get_rank()
    found = {
        "twice": twice,
        "closed": after,
        "custom": refusal(lambda: offload(custom, "f32")),
        "no fsdp": refusal(lambda: offload(Net())),
        "no module": refusal(lambda: offload(7)),
        "wire": refusal(lambda: offload(model, "fp4")),
        "options": refusal(lambda: offload(model, "f32", options={"job": "x"})),
        "two wires": refusal(lambda: offload(model, "f32", options=sluice.torch.Options(wire_dtype="bf16"))),
        "number": refusal(lambda: offload(model, "f32", timeout=60)),
        "negative": refusal(lambda: offload(model, "f32", timeout=timedelta(seconds=-1))),
        "some ranks": refusal(lambda: offload(build(pairs["shard"]))),
        "replicas": refusal(lambda: offload(model, replicas="all")),
        "two dimensions": refusal(lambda: offload(model, replicas=pairs)),
        "torch reduces": refusal(lambda: offload(build(pairs))),
        "replicate": refusal(lambda: offload(replicate(Net(), mesh=world))),
        "torch reduces, replicas": refusal(lambda: offload(build(pairs), replicas=pairs["replicate"])),
        "meta": refusal(lambda: offload(on_meta(pairs["shard"]), replicas=pairs["replicate"])),
        "wires differ": refusal(lambda: offload(build(world), "f32" if rank else "bf16")),
        "models differ": refusal(lambda: offload(build(world, width=8 if rank == 2 else 12), "f32")),
    }
    with offload(model, "f32"):  # after close()
        found["again"] = len(train(model)[0])
    return found


def on_meta(mesh):
    with torch.device("meta"):
        return fully_shard(Net(), mesh=mesh)


@contextmanager
def as_hosts(names):
    """Each rank has a host of that name, not one of its own."""
    off = os.environ.pop("SLUICE_HOSTS")
    os.environ["SLUICE_HOST_ID"] = names[dist.get_rank()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    del os.environ["SLUICE_HOST_ID"]
    os.environ["SLUICE_HOSTS"] = off


def with_hosts(mesh):
    """{names of the ranks' hosts: [losses and digest, bytes that this rank sent as gradients, warnings of the package]}"""
    found = {}
    for names in ("aabb", "abab", "aaaa", "aaab"):
        how = {"options": sluice.torch.Options(reduce_in_host=True)} if names == "aabb" else {"reduce_in_host": True}
        with as_hosts(names) as caught, offload(model := build(mesh), "f32", **how) as handle:
            found[names] = [train(model), [each.stats().payload_bytes_out for each in handle.sessions[:1]],
                            [str(each.message) for each in caught if "fsdp.offload" in str(each.message)]]
    return found


def with_a_name_twice(mesh):
    """The error of hosts of two machines with one name."""
    machine = meeting.machine_id
    meeting.machine_id = lambda: f"machine {dist.get_rank() // 2}"
    with as_hosts("abca"):
        found = refusal(lambda: offload(build(mesh), "f32", reduce_in_host=True))
    meeting.machine_id = machine
    return found


def left():
    """Groups of torch, threads of the process, those of libraries included, and descriptors."""
    return {"groups": len(dist.distributed_c10d._world.pg_map), "threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd"))}


def in_cycles(mesh, cycles=5):
    """[what is left after the first time that a model is offloaded and no longer, and after more times; the errors of sessions that could not be opened]"""
    found, model, errors = [], build(mesh), []

    def use_once(fails):
        with as_hosts("aabb"):
            if fails:
                errors.append(refusal(lambda: offload(model, "f32", reduce_in_host=True, options=sluice.torch.Options(tls="require"))))
            else:
                with offload(model, "f32", reduce_in_host=True):
                    train(model, 1)
        dist.barrier()

    for count in 1, cycles:
        for _ in range(count):
            use_once(False)
            use_once(True)
        found.append(left())
    return [*found, errors]


def in_rails():
    """Six parts of two elements, whose ranks run on two hosts, in the order of rails and back."""
    order = RailOrder([[0, 1, 2], [3, 4, 5]], torch.device("cpu"))
    whole, back = torch.arange(12), torch.zeros(12, dtype=torch.int64)
    by_rails = order.to_rails(whole)
    order.to_ranks(by_rails, back)
    return [by_rails.tolist(), back.tolist()]


def in_stream_order(names):
    """The collectives as on a GPU, on host streams: [whether the calls returned before their input was there, what the streams have in the end]"""
    cpu = torch.device("cpu")
    device = HostDevice(cpu)
    with as_hosts(names):
        scatters, gathers = open_channels(dist.group.WORLD, {}, ["bf16", "f32"], sluice.torch.Options(wire_min_count=0), device,
                                          timedelta(seconds=60), cpu)
    stream, gate, seen = device.new_stream(), threading.Event(), []
    whole, part = torch.zeros(4 * 1000), torch.zeros(1000)
    own, gathered = torch.zeros(1000), torch.zeros(4 * 1000)
    device.run(stream, gate.wait)
    device.run(stream, lambda: (whole.copy_((torch.arange(4) * (1 + dist.get_rank())).repeat_interleave(1000)), own.fill_(dist.get_rank())))
    scatter, gather = GradientScatter(scatters, "net", None), ParameterGather(gathers, "net")
    with device.use(stream):
        work = gather(gathered, own, dist.group.WORLD, async_op=True)
        scatter(part, whole, dist.group.WORLD, dist.ReduceOp.AVG)
        early = not work.is_completed() and part.sum().item() == 0
        device.run(stream, lambda: part.mul_(2))
        work.wait()  # of the stream
        device.run(stream, lambda: seen.append([part.unique().tolist(), gathered.unique_consecutive().tolist()]))
    gate.set()
    stream.synchronize()
    for channel in scatters, gathers:
        channel.close()
    return [early, *seen]


def layouts():
    world, pairs = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    print(json.dumps({"cases": compare_cases(pairs["shard"]), "wires": with_wires(world), "factor": with_a_factor(world), "copies": with_copies(pairs),
                      "fewer": with_fewer_gathered(world), "hosts": with_hosts(world), "named": with_a_name_twice(world), "cycles": in_cycles(world), "rails": in_rails(), "streams": [in_stream_order("abcd"), in_stream_order("abab")],
                      "refusals": refusals(world, pairs)}), flush=True)


def lost():
    """Prints "begun" after a step, and trains on until a rank is killed; then the errors of this step and the next."""
    offload(model := build(init_device_mesh("cpu", (dist.get_world_size(),))), "bf16")
    train(model, 1)
    print("begun", flush=True)
    errors = [refusal(lambda: train(model, 10_000))]
    model.reset_iter_state()
    print(json.dumps([*errors, refusal(lambda: train(model, 1))]), flush=True)
    os._exit(0)  # gloo would wait for the lost rank


def main():
    torch.set_num_threads(1)
    join_torch("gloo")
    {"layouts": layouts, "lost": lost}[sys.argv[1]]()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
