"""usage: horovod_rank.py MODE...: a rank that uses sluice.horovod, started by a launcher or with its variables. Writes RESULTS/MODE-RANK.json, because
launchers mix the outputs of ranks.

collectives: the results of each collective. training: how far the weights of each kind of training are from those of a loop that averages the
gradients of all shards in this process. lost: rank 1 ends during the training. refusals: what one process without a launcher is refused."""

import gzip
import json
import os
import signal
import sys
from pathlib import Path

import sluice.horovod as hvd
import torch

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
STEPS = 12
BATCH = 32  # of a rank


def network(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


class Digits:
    """Batches of real images: of each rank, step and pass."""

    def __init__(self):
        with gzip.open(DIGITS, "rt", encoding="ascii") as lines:
            rows = torch.tensor([[int(value) for value in line.split(",")] for line in lines])
        self.pixels, self.digits = rows[:, :-1].float() / 16, rows[:, -1]

    def loss(self, model, rank, number, images=BATCH):
        begin = (number * hvd.size() + rank) * BATCH
        chosen = torch.arange(begin, begin + images) % len(self.digits)
        return torch.nn.functional.cross_entropy(model(self.pixels[chosen]), self.digits[chosen])


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def reference(data, passes, images, op):
    """Returns the weights after training on the shards of all ranks in this process, without the module."""
    model = network()
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for rank in range(hvd.size()):
            optimizer.zero_grad()
            for number in range(passes):
                if images(rank):
                    data.loss(model, rank, step * passes + number, images(rank)).backward()
            for total, parameter in zip(sums, model.parameters()):
                if parameter.grad is not None:
                    total += parameter.grad
        for total, parameter in zip(sums, model.parameters()):
            parameter.grad = total / hvd.size() if op is hvd.Average else total
        optimizer.step()
    return weights(model)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained(data, passes, images, op, compression):
    model = network(seed=hvd.rank())  # rank 0 has another seed than the reference, so that a broadcast that does nothing is seen
    if hvd.rank() == 0:
        model.load_state_dict(network().state_dict())
    optimizer = optimizer_of(model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=passes, op=op, compression=compression)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)  # replaces step() of the object
    for step in range(STEPS):
        optimizer.zero_grad()
        for number in range(passes):
            if images(hvd.rank()):
                data.loss(model, hvd.rank(), step * passes + number, images(hvd.rank())).backward()
        optimizer.step()
        scheduler.step()
    return weights(model), optimizer


def training():
    data = Digits()
    cases = {"average": (1, lambda rank: BATCH, hvd.Average, hvd.Compression.none), "sum": (1, lambda rank: BATCH, hvd.Sum, hvd.Compression.none),
             "passes": (3, lambda rank: BATCH, hvd.Average, hvd.Compression.none), "fp16": (1, lambda rank: BATCH, hvd.Average, hvd.Compression.fp16),
             "uneven": (1, lambda rank: BATCH - 9 * rank, hvd.Average, hvd.Compression.none),
             "no data on rank 1": (1, lambda rank: 0 if rank else BATCH, hvd.Average, hvd.Compression.none)}
    found = {}
    for name, (passes, images, op, compression) in cases.items():
        ours, _ = trained(data, passes, images, op, compression)
        expected = reference(data, passes, images, op)
        found[name] = {"error": ((ours - expected).norm() / expected.norm()).item(), "equal on ranks": is_equal_on_ranks(ours),
                       "moved": ((ours - weights(network())).norm() / expected.norm()).item()}
    full, half = (next(session for session in hvd.sessions() if session.wire_dtype == wire) for wire in ("f32", "f16"))
    return {"cases": found, "bytes of f32": full.stats().wire_bytes_out, "bytes of f16": half.stats().wire_bytes_out,
            "buckets": len(trained(data, 1, lambda rank: BATCH, hvd.Average, hvd.Compression.none)[1]._reducer._buckets)}


def is_equal_on_ranks(values):
    return torch.equal(hvd.allgather(values), values.repeat(hvd.size()))


def collectives():
    rank, size = hvd.rank(), hvd.size()
    own = torch.arange(6.0).reshape(2, 3) + rank
    in_place = own.clone().t()  # not contiguous
    hvd.allreduce_(in_place, op=hvd.Max)
    pending = hvd.allreduce_async(own.clone(), op=hvd.Sum, name="pending")
    model, state = network(), torch.optim.Adam(network().parameters())
    for parameter in state.param_groups[0]["params"]:
        parameter.grad = torch.full_like(parameter, rank + 1.0)
    state.param_groups[0]["lr"] = 0.5 + rank
    state.step()
    hvd.broadcast_optimizer_state(state, root_rank=1)
    first = state.state_dict()["state"][0]["exp_avg"].flatten()[0].item()
    clipped = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters())
    (sum(parameter.sum() for parameter in model.parameters()) * (rank + 1)).backward()
    clipped.synchronize()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    before = weights(model)
    with clipped.skip_synchronize():
        clipped.step()
    elastic = hvd.elastic.TorchState(model, clipped, epoch=rank + 4)
    elastic.sync()
    elastic.epoch = 9
    elastic.restore()
    sparse = torch.nn.Embedding(4, 2, sparse=True)
    torch.nn.init.zeros_(sparse.weight)
    dense = hvd.DistributedOptimizer(torch.optim.SGD(sparse.parameters(), lr=1.0), sparse_as_dense=True)
    sparse(torch.tensor([rank])).sum().backward()
    dense.step()
    hvd.barrier()
    return {
        "rank": rank, "size": size, "local": [hvd.local_rank(), hvd.local_size()], "cross": [hvd.cross_rank(), hvd.cross_size()],
        "homogeneous": hvd.is_homogeneous(), "max in place": in_place.t().tolist(), "sum": hvd.synchronize(pending).tolist(), "done": hvd.poll(pending),
        "average": hvd.allreduce(own).tolist(), "integers": hvd.allreduce(torch.tensor([3 * rank, 5])).tolist(),
        "scaled": hvd.allreduce(torch.ones(2), op=hvd.Sum, prescale_factor=0.5, postscale_factor=10.0).tolist(),
        "grouped": [tensor.tolist() for tensor in hvd.grouped_allreduce([own[0], torch.tensor(float(rank))], op=hvd.Sum)],
        "gathered": hvd.allgather(torch.full((2 - rank, 2), rank, dtype=torch.int16)).tolist(),
        "gathered nothing of rank 0": hvd.allgather(torch.ones(3 * rank, dtype=torch.bool)).tolist(),
        "broadcast": hvd.broadcast(own[0], root_rank=1).tolist(), "scattered": hvd.reducescatter(torch.arange(3.0), op=hvd.Sum).tolist(),
        "objects": hvd.allgather_object({"rank": rank}), "object": hvd.broadcast_object({"text": "of rank 1", "tensor": own} if rank else None, 1)["text"],
        "optimizer": [state.param_groups[0]["lr"], round(first, 6)], "norm": round(norm / weights(model).numel() ** 0.5, 5),
        "step": round((weights(model) - before).norm().item(), 3), "elastic": elastic.epoch, "sparse": sparse.weight.tolist(),
    }


def lost():
    model, data = network(), Digits()
    optimizer = hvd.DistributedOptimizer(optimizer_of(model), named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state):
        for step in range(1000):
            if step == 5 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            data.loss(model, hvd.rank(), step).backward()
            optimizer.step()
            state.step = step
            if step == 2:
                state.commit()

    state = hvd.elastic.TorchState(model, optimizer, step=0)
    try:
        train(state)
    except hvd.HorovodInternalError as error:
        return {"error": f"{type(error).__name__}: {error}", "restored": state.step}


def refusals():
    found = {}

    def refused(name, call):
        try:
            call()
            found[name] = None
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"

    model = network()
    hvd.shutdown()
    refused("rank before init", hvd.rank)
    hvd.init()
    for name in ("join", "alltoall", "add_process_set", "Adasum", "SyncBatchNorm", "nothing"):
        refused(name, lambda: getattr(hvd, name))
    refused("average and op", lambda: hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum))
    refused("root", lambda: hvd.broadcast(torch.ones(1), root_rank=1))
    refused("names", lambda: hvd.DistributedOptimizer(optimizer_of(model), named_parameters=list(model.named_parameters())[1:]))
    refused("names twice", lambda: hvd.DistributedOptimizer(optimizer_of(model), named_parameters=[*model.named_parameters()] * 2))
    refused("passes", lambda: hvd.DistributedOptimizer(optimizer_of(model), backward_passes_per_step=0))
    return {"refused": found, "size": hvd.size(), "mean": hvd.allreduce(torch.tensor([3.0])).tolist(), "gathered": hvd.allgather(torch.ones(2)).tolist(),
            "scattered": hvd.reducescatter(torch.ones(2)).tolist(), "nccl": hvd.nccl_built()}


def main():
    torch.set_num_threads(1)
    hvd.init()
    for mode in sys.argv[1:]:
        rank, found = hvd.rank(), globals()[mode]()
        Path(os.environ["RESULTS"], f"{mode}-{rank}.json").write_text(json.dumps(found))
    if "lost" not in sys.argv:
        hvd.shutdown()


if __name__ == "__main__":
    main()
