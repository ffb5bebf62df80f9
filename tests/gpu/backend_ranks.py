"""Ranks that share one GPU and use the torch.distributed backend "sluice": collectives of GPU tensors, then training with DDP and with HSDP.

usage: backend_ranks.py --ranks N --reducers LIST --losses FOLDER. FOLDER/NAME has the losses of rank 0 for gloo, ddp and hsdp."""

import os

import sluice.torch
import torch
import torch.distributed as dist
from python_ranks import STEPS, run_ranks, train, write_losses
from torch.distributed.device_mesh import init_device_mesh

COUNTS = (1, 1000, 3_000_001)


def busy():
    """Later work of the current stream runs when this thread has gone on: a result that nothing waited for is wrong."""
    torch.cuda._sleep(100_000_000)  # cycles, about 50 ms


def check(name, found, expected):
    assert torch.equal(found.cpu().double(), expected.cpu().double()), f"wrong {name}"


def check_collectives(rank, ranks):
    group, total = dist.group.WORLD, ranks * (ranks + 1) // 2
    dist.all_reduce(torch.ones(1, device="cuda"))  # opens the session, which takes time
    for count in COUNTS:
        pattern = torch.arange(count, device="cuda") % 5
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
            x, y = (pattern * (rank + 1)).to(dtype), torch.full((count,), rank, device="cuda", dtype=dtype)
            busy()
            work, other = dist.all_reduce(x, async_op=True), dist.broadcast(y, ranks - 1, async_op=True)
            assert not work.is_completed(), "the call has waited"
            work.wait()
            doubled = x + x
            other.wait()
            check(f"sum of {count} {dtype}", doubled, 2 * total * pattern)
            check(f"broadcast of {count} {dtype}", y, torch.full_like(y, ranks - 1))
            assert work.is_completed() and work.is_success()
        wholes, listed = torch.zeros(ranks * count, device="cuda"), [torch.zeros(count, device="cuda") for _ in range(ranks)]
        mine, part, strided = (pattern * (rank + 1)).float(), torch.zeros(count, device="cuda"), torch.zeros(3 * count, device="cuda")[::3]
        busy()
        strided.copy_(mine)
        dist.all_reduce(strided)
        dist.all_gather_into_tensor(wholes, mine)
        dist.all_gather(listed, mine)
        dist.reduce_scatter_tensor(part, wholes)
        with dist._coalescing_manager():
            pieces = [mine.clone(), mine.clone()]
            for piece in pieces:
                dist.all_reduce(piece)
        check("strided sum", strided, total * pattern)
        check("gathered list", torch.cat(listed), wholes)
        check("gathered tensor", wholes, torch.cat([pattern * (each + 1) for each in range(ranks)]))
        check("scattered sum", part, ranks * (rank + 1) * pattern)
        check("coalesced sums", torch.cat(pieces), torch.cat([total * pattern] * 2))
    value = dist.all_reduce(torch.ones(1000, device="cuda"), async_op=True).get_future().then(lambda future: future.value()[0] * 2).wait()
    check("future", value, torch.full((1000,), 2.0 * ranks))
    received = torch.zeros(5, device="cuda")
    messages = [dist.P2POp(dist.isend, torch.full((5,), float(rank), device="cuda"), (rank + 1) % ranks), dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    check("message", received, torch.full((5,), float((rank - 1) % ranks)))
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            dist.all_reduce(torch.ones(10, device="cuda"))
        raise AssertionError("a graph has captured a collective")
    except dist.DistBackendError as error:
        assert "cannot be captured into a graph" in str(error), error
    assert group.error() is None and group.session().stats().payload_bytes_out < 1 << 20, "GPU tensors went through host memory"
    print(f"rank {rank}: collectives, {group.session(torch.device('cuda')).stream_stats()}")


def train_hsdp(rank, ranks):
    """Each rank is a replica: torch averages over the replicate dimension in the backend."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (ranks, 1), mesh_dim_names=("replicate", "shard"), backend_override={"replicate": ("sluice", sluice.torch.Options(wire_dtype="bf16"))})
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).cuda()
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = torch.Generator(device="cuda").manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(64, 256, device="cuda", generator=data)
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    group = mesh.get_group("replicate")
    assert group.session(torch.device("cuda")).stream_stats().elements_cast > 0, "no gradient went through the backend"
    assert losses[-1] < 0.9 * losses[0], losses
    return losses


def rank_main(rank, arguments, store):
    torch.cuda.set_device(0)
    os.environ.update(GLOO_SOCKET_IFNAME="lo", SLUICE_REDUCERS=arguments.reducers)
    losses = {}
    for name in ("gloo", "sluice"):
        dist.init_process_group(name, init_method=f"file://{store}-{name}", rank=rank, world_size=arguments.ranks)
        if name == "sluice":
            check_collectives(rank, arguments.ranks)
            losses["hsdp"] = train_hsdp(rank, arguments.ranks)
        losses["ddp" if name == "sluice" else name] = train(rank)
        dist.destroy_process_group()
    if rank == 0:
        write_losses(arguments.losses, losses)


if __name__ == "__main__":
    run_ranks(rank_main)
