"""Ranks that share one GPU train with FSDP2 and HSDP over NCCL, and with sluice.torch.fsdp.offload(). NCCL and Sluice see each as a host.

usage: fsdp_ranks.py --ranks N --losses FOLDER [--device cpu], with the reducers in SLUICE_REDUCERS. FOLDER/NAME has the losses of rank 0 for each
training; those of torch's own are fsdp and hsdp. --device cpu runs it over gloo, without a GPU. N is even."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import sluice.torch
from sluice.torch.fsdp import offload

STEPS = 20
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
NAMES = ("replicate", "shard")


def build(mesh, device, width, policy):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)]
    model = torch.nn.Sequential(*layers).to(device)
    for layer in (*layers[::2], model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return model


def train(model, device, prefetch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    teacher = torch.randn(256, 10, generator=torch.Generator().manual_seed(7))
    losses = []
    for _ in range(STEPS):
        x = torch.randn(64, 256, generator=data)
        target = (x @ teacher).argmax(1).to(device)
        if prefetch:
            model[2].unshard(async_op=True)
        loss = torch.nn.functional.cross_entropy(model(x.to(device)).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def trainings(device):
    """Returns {name: (mesh, what offload() gets after the model, or None, MixedPrecisionPolicy, whether a layer is gathered early)}."""
    ranks = dist.get_world_size()
    flat, pairs = init_device_mesh(device.type, (ranks,)), init_device_mesh(device.type, (2, ranks // 2), mesh_dim_names=NAMES)
    plain = MixedPrecisionPolicy()
    found = {"fsdp": (flat, None, plain, False), "hsdp": (pairs, None, plain, False), "fsdp-mixed": (flat, None, MIXED, False)}
    for wire in ("f32", "bf16", "mxfp8"):
        found[f"fsdp-{wire}"] = (flat, {"wire": wire, "options": sluice.torch.Options(error_feedback=True)}, plain, False)
    for wire in ("f32", "bf16", "int8"):
        found[f"copies-{wire}"] = (pairs["shard"], {"wire": wire, "replicas": pairs["replicate"]}, plain, False)
    found["fsdp-mixed-bf16"] = (flat, {"wire": "bf16"}, MIXED, False)
    found["fsdp-early-f32"] = (flat, {"wire": "f32"}, plain, True)
    options = sluice.torch.Options(wire_dtype="bf16")
    with_backend = init_device_mesh(device.type, (2, ranks // 2), mesh_dim_names=NAMES, backend_override={"replicate": ("sluice", options)})
    found["hsdp-bf16"] = (with_backend, {"wire": "bf16"}, plain, False)
    return found


def rank_main(rank, arguments, store):
    device = torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    os.environ.update(NCCL_HOSTID=f"node{rank}", SLUICE_HOSTS="off")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks)
    for name, (mesh, how, policy, is_early) in trainings(device).items():
        model = build(mesh, device, arguments.width, policy)
        handle = offload(model, **how) if how else None
        losses = train(model, device, is_early)
        sent = 0
        if handle is not None:
            sent = handle.sessions[0].stats().payload_bytes_out
            assert handle.error() is None, handle.error()
            assert sent > 0, f"{name}: no gradients went through reducers"
            handle.close()
        if rank == 0:
            (arguments.losses / name).write_text("".join(f"{value:.9f}\n" for value in losses), encoding="utf-8")
            print(f"{name}: {STEPS} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}, {sent} bytes of gradients", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--losses", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.losses.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(arguments, os.path.join(folder, "store")), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
