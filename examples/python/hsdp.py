"""Trains with HSDP: parameters are sharded over the GPUs of a node and replicated over the nodes. NCCL adds the gradients of the replicas through the
reducers of the NCCL plugin; the traffic of the shards stays within the nodes.

    export SLUICE_REDUCERS=10.0.0.7:7470,10.0.0.8:7470 NCCL_NET_PLUGIN=sluice
    unset NCCL_COLLNET_ENABLE    # nor set in /etc/nccl.conf: a child of a communicator with CollNet loses it
    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 examples/python/hsdp.py

With --backend gloo it runs on CPUs, without the plugin."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 64
BATCH = 32


def replicas_options():
    """Returns the options of the replicas' groups: NCCL 2.27 and newer enables CollNet, and with it the reducers, for these communicators only."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.collnet_enable = 1
    return options


def make_mesh(backend, shards):
    """Returns the mesh of nodes x GPUs. Ranks with the same place in their node are replicas of one shard."""
    device = "cuda" if backend == "nccl" else "cpu"
    override = {"replicate": replicas_options()} if backend == "nccl" else None
    return init_device_mesh(device, (dist.get_world_size() // shards, shards), mesh_dim_names=("replicate", "shard"), backend_override=override)


def train(model, device, steps):
    """Yields the loss of each step over all ranks. The network learns to reverse vectors."""
    data = torch.Generator().manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        inputs = torch.randn(BATCH, WIDTH, generator=data).to(device)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        yield mean.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--shards", type=int, default=int(os.environ.get("LOCAL_WORLD_SIZE", "1")), help="ranks that share one replica; default: those of a node")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()

    torch.manual_seed(1)  # the same parameters on all ranks
    if arguments.backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        # With device_id, PyTorch splits the communicator of all ranks into those of the mesh.
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    mesh = make_mesh(arguments.backend, arguments.shards)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), torch.nn.ReLU(), torch.nn.Linear(256, WIDTH)).to(device)
    fully_shard(model, mesh=mesh)
    losses = list(train(model, device, arguments.steps))
    if dist.get_rank() == 0:
        replicas = dist.get_process_group_ranks(mesh.get_group("replicate"))
        print(f"replicas {replicas}, {len(losses)} steps: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
