"""usage: training_rank.py RUNS-JSON: one rank of wire_types.py or hsdp.py. Trains once for each run and prints a line of JSON for it.

With "shards" in RUNS-JSON the ranks train with HSDP, a copy of the model on each group of so many ranks: f32 as torch does it over gloo, other
wire types with fsdp.offload(). Else with DistributedDataParallel and the hook.

Losses are over all ranks. `parameters` is a digest of the trained parameters, which must be equal on all ranks."""

import gc
import hashlib
import itertools
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/python"))

import sluice  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from character_task import CharacterTask  # noqa: E402
from digits_task import DigitsTask  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from unequal_data_task import UnequalDataTask  # noqa: E402

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def evaluate(task, network):
    """Returns the mean loss and the share of correct answers over all ranks."""
    with torch.no_grad():
        sums = torch.tensor(task.evaluate(network, RANK, RANKS), dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[:2] / sums[2]).tolist()


def train_steps(task, run, model, network):
    """Returns the loss and the share of correct answers before the first step and after each interval."""
    optimizer, schedule = task.optimizer(model)
    losses = [evaluate(task, network)]
    for step, samples in enumerate(itertools.islice(task.batches(run["order"]), task.steps), 1):
        optimizer.zero_grad()
        task.loss(model, samples[RANK::RANKS]).backward()
        optimizer.step()
        schedule.step()
        if step % task.interval == 0:
            losses.append(evaluate(task, network))
    return losses


def results(run, losses, parameters):
    parameters = torch.cat([p.detach().flatten() for p in parameters])
    return {**run, "losses": [round(loss, 8) for loss, _ in losses], "correct": round(losses[-1][1], 6),
            "values": parameters.numel(), "parameters": hashlib.sha256(parameters.numpy().tobytes()).hexdigest()}


def train(task, run):
    torch.manual_seed(run["seed"])
    network = task.network()
    model = DistributedDataParallel(network)
    with sluice.session_from_torch(os.environ["REDUCERS"], wire_dtype=run["wire"], measure_error=True) as session:
        model.register_comm_hook(None, sluice.ddp_hook(session, error_feedback=run["feedback"]))
        losses = train_steps(task, run, model, network)
        sent, error = session.stats().payload_bytes_out, session.stream_stats().relative_error
    return {**results(run, losses, network.parameters()), "bytes_per_step": sent // task.steps, "relative_error": None if error is None else round(error, 6)}


def train_hybrid(task, run, shards):
    import sluice.torch.fsdp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(run["seed"])
    network = task.network()
    mesh = init_device_mesh("cpu", (RANKS // shards, shards), mesh_dim_names=("replicate", "shard"))
    with_gloo = run["wire"] == "f32"
    fully_shard(network, mesh=mesh if with_gloo else mesh["shard"])
    if not with_gloo:
        sluice.torch.fsdp.offload(network, run["wire"], replicas=mesh["replicate"])
    losses = train_steps(task, run, network, network)
    network.unshard()
    return results(run, losses, network.parameters())


def main():
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=os.environ["STORE"], rank=RANK, world_size=RANKS)
    tasks = {kind.name: kind(settings["brief"]) for kind in (DigitsTask, CharacterTask, UnequalDataTask)}
    described = {name: {"description": task.description, "steps": task.steps, "interval": task.interval} for name, task in tasks.items()}
    print(json.dumps(described), flush=True)
    for number, run in enumerate(settings["runs"], 1):
        if RANK == 0:
            print(f"run {number} of {len(settings['runs'])}: {run}", file=sys.stderr, flush=True)
        task, shards = tasks[run["task"]], settings.get("shards")
        print(json.dumps(train_hybrid(task, run, shards) if shards else train(task, run)), flush=True)
    gc.collect()  # cycles of DDP hold the group, whose threads must not run when the interpreter ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
