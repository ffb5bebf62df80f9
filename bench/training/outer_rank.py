"""usage: outer_rank.py RUNS-JSON: one worker of outer_steps.py. Trains once for each run; rank 0 prints a line of JSON for it."""

import itertools
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/python"))

import sluice  # noqa: E402
import sluice.torch.outer  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from character_task import RATE, CharacterTask  # noqa: E402
from digits_task import DigitsTask  # noqa: E402
from sluice.torch.outer import AsyncSGD, DiLoCo  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SLOW_RANK, SLOWNESS = RANKS - 1, 4
# The step's duration on a fast worker, longer than its computation, so that the processors of this machine do not decide the times.
PACE_S = {"digits": 0.02, "characters": 0.12}
BYTES = {"f32": 4, "mxfp8": 264 / 256, "int8": 264 / 256}  # of a value
# A push has a quarter of a synchronous step's images, so its rate is a quarter, too.
ASYNC_RULES = {"digits": sluice.store.nesterov(0.1 / RANKS, 0.9), "characters": sluice.store.adamw(RATE / RANKS)}


class Pace:
    """Makes each step of a worker take the same time."""

    def __init__(self, task, run):
        self._seconds = 0 if run["brief"] else PACE_S[task.name] * (SLOWNESS if run["slow"] and RANK == SLOW_RANK else 1)
        self._next = time.monotonic()

    def wait(self):
        self._next = max(time.monotonic(), self._next + self._seconds)
        time.sleep(max(0.0, self._next - time.monotonic()))


def gradient_of(task, network, samples):
    network.zero_grad()
    task.loss(network, samples[RANK::RANKS]).backward()


def train_synchronously(task, run, network, batches):
    model = DistributedDataParallel(network)
    optimizer, schedule = task.optimizer(model)
    with sluice.session_from_torch(os.environ["REDUCERS"]) as session:
        model.register_comm_hook(None, sluice.ddp_hook(session))
        start, pace = time.monotonic(), Pace(task, run)
        for samples in itertools.islice(batches, task.steps):
            gradient_of(task, model, samples)
            pace.wait()
            optimizer.step()
            schedule.step()
        dist.barrier()
        return {"seconds": time.monotonic() - start, "sent": session.stats().payload_bytes_out}


def train_by_outer_steps(task, run, network, batches, store):
    optimizer, schedule = task.optimizer(network)
    worker = DiLoCo(network, store, every=run["every"], name=run["model"], quorum=RANKS, wire_dtype=run["wire"])
    dist.barrier()
    start, pace = time.monotonic(), Pace(task, run)
    for samples in itertools.islice(batches, task.steps):
        gradient_of(task, network, samples)
        optimizer.step()
        schedule.step()
        pace.wait()
        worker.step()
    if worker.steps:
        worker.sync()
    return ended(worker, run, start)


def train_asynchronously(task, run, network, batches, store):
    worker = AsyncSGD(network, store, name=run["model"], rule=ASYNC_RULES[task.name], staleness=run["staleness"], stale=run["stale"],
                      wire_dtype=run["wire"])
    dist.barrier()
    start, pace, last = time.monotonic(), Pace(task, run), worker.version + RANKS * task.steps
    while worker.version < last:
        gradient_of(task, network, next(batches))
        pace.wait()
        worker.step()
    return ended(worker, run, start)


def ended(worker, run, start):
    dist.barrier()
    seconds = time.monotonic() - start
    worker.load()
    elements = sum(torch.Size(tensor["shape"]).numel() for tensor in worker.model.specification["tensors"])
    sent = elements * BYTES[run["wire"]] * sum(worker.outcomes.values())
    return {"seconds": seconds, "sent": round(sent), "outcomes": worker.outcomes}


def train(task, run, store):
    torch.manual_seed(run["seed"])
    network = task.network()
    # Asynchronous workers do not share out batches, so each has an order of its own.
    batches = task.batches(run["seed"] if run["kind"] != "async" else 1000 * run["seed"] + RANK)
    how = {"synchronous": train_synchronously, "DiLoCo": train_by_outer_steps, "async": train_asynchronously}[run["kind"]]
    of_rank = how(task, run, network, batches, *([store] if run["kind"] != "synchronous" else []))
    of_ranks = [None] * RANKS
    dist.all_gather_object(of_ranks, of_rank)
    with torch.no_grad():
        loss, correct, count = task.evaluate(network, 0, 1)
    return {**run, "loss": round(loss / count, 8), "correct": round(correct / count, 6), "seconds": round(max(each["seconds"] for each in of_ranks), 3),
            "sent": sum(each["sent"] for each in of_ranks), "outcomes": [each.get("outcomes") for each in of_ranks]}


def main():
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=os.environ["STORE"], rank=RANK, world_size=RANKS)
    tasks = {kind.name: kind(settings["brief"]) for kind in (DigitsTask, CharacterTask)}
    if RANK == 0:
        print(json.dumps({name: {"description": task.description, "steps": task.steps} for name, task in tasks.items()}), flush=True)
    with sluice.store.Store(os.environ["REDUCERS"]) as store:
        for number, run in enumerate(settings["runs"], 1):
            result = train(tasks[run["task"]], {**run, "brief": settings["brief"], "model": f"run-{number}"}, store)
            dist.barrier()
            if RANK == 0:
                store.delete(f"run-{number}")
                print(f"run {number} of {len(settings['runs'])}: {result}", file=sys.stderr, flush=True)
                print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
