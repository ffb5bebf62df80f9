"""usage: training_rank.py RUNS-JSON: one rank of wire_types.py. Trains once for each run and prints a line of JSON for it.

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


def train(task, run):
    torch.manual_seed(run["seed"])
    network = task.network()
    model = DistributedDataParallel(network)
    optimizer, schedule = task.optimizer(model)
    losses = [evaluate(task, network)]
    with sluice.session_from_torch(os.environ["REDUCERS"], wire_dtype=run["wire"], measure_error=True) as session:
        model.register_comm_hook(None, sluice.ddp_hook(session, error_feedback=run["feedback"]))
        for step, samples in enumerate(itertools.islice(task.batches(run["order"]), task.steps), 1):
            optimizer.zero_grad()
            task.loss(model, samples[RANK::RANKS]).backward()
            optimizer.step()
            schedule.step()
            if step % task.interval == 0:
                losses.append(evaluate(task, network))
        sent, error = session.stats().payload_bytes_out, session.stream_stats().relative_error
    parameters = torch.cat([p.detach().flatten() for p in network.parameters()])
    return {**run, "losses": [round(loss, 8) for loss, _ in losses], "correct": round(losses[-1][1], 6),
            "bytes_per_step": sent // task.steps, "relative_error": None if error is None else round(error, 6),
            "values": parameters.numel(), "parameters": hashlib.sha256(parameters.numpy().tobytes()).hexdigest()}


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
        print(json.dumps(train(tasks[run["task"]], run)), flush=True)
    gc.collect()  # cycles of DDP hold the group, whose threads must not run when the interpreter ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
