"""usage: models_rank.py SETTINGS-JSON: one rank of models.py. Prints "barrier" and waits for a line where all ranks must wait for each other, and at
the end a line of JSON with the seconds of its repetitions. Checks what it has received."""

import itertools
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SETTINGS = json.loads(sys.argv[1])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIMEOUT_S = 120


def barrier():
    print("barrier", flush=True)
    sys.stdin.readline()


class SluiceModels:
    """Models that together have SETTINGS["bytes"] of parameters."""

    def __init__(self):
        import numpy
        import sluice.store

        self._store = sluice.store.Store(os.environ["SLUICE_REDUCERS"], worker=RANK + 1, timeout_ms=1000 * TIMEOUT_S)
        elements = SETTINGS["bytes"] // 4 // SETTINGS["models"]
        rule = sluice.store.add() if SETTINGS["rule"] == "add" else sluice.store.nesterov(0.7, 0.9)
        mode = sluice.store.asynchronous() if SETTINGS["case"] == "read" else sluice.store.sync(RANKS)
        first = {"x": numpy.ones(elements, "float32")}
        self._models = [self._store.create(f"m{i}", first, mode=mode, rule=rule) for i in range(SETTINGS["models"])]
        self._versions = [model.wait() for model in self._models]
        self._values = [{"x": numpy.zeros(elements, "float32")} for _ in self._models]
        self._delta = {"x": numpy.full(elements, RANK + 1, "float32")}
        self._steps = [0] * len(self._models)
        self.phases = []  # seconds of push and pull

    def step(self, index):
        model, began = self._models[index], time.monotonic()
        if SETTINGS["case"] == "step":
            pushed = model.push(self._delta, self._versions[index], wire_dtype=SETTINGS["wire"])
            middle = time.monotonic()
            self._versions[index] = model.pull(self._values[index], min_version=pushed.version).version
            self.phases.append((middle - began, time.monotonic() - middle))
        else:
            self._versions[index] = model.push_pull(self._delta, self._versions[index], into=self._values[index], wire_dtype=SETTINGS["wire"]).version
        self._steps[index] += 1
        if SETTINGS["rule"] == "add":
            self.check(index, 1 + self._steps[index] * (RANKS + 1) / 2)

    def read(self):
        self._models[0].pull(self._values[0], wire_dtype=SETTINGS["wire"])

    def check(self, index, expected):
        x = self._values[index]["x"]
        if not (x[0] == x[-1] == x[len(x) // 2] == expected):
            raise ValueError(f"model {index} has {x[0]}, {x[-1]}; expected {expected}")

    def value(self):
        return [float(values["x"][-1]) for values in self._values]


def make_exchange():
    if SETTINGS["with"] == "redis":
        from models_redis import RedisModels

        return RedisModels(SETTINGS, RANK, RANKS)
    if SETTINGS["with"].startswith("torchft"):
        from models_torchft import OuterSync

        return OuterSync(SETTINGS, RANK, RANKS, TIMEOUT_S)
    return SluiceModels()


def repeated(call):
    """Returns the seconds of each repetition, from a barrier to the end on this rank."""
    times = []
    for repetition in range(1 + SETTINGS["repetitions"]):
        barrier()
        began = time.monotonic()
        call()
        if repetition > 0:
            times.append(time.monotonic() - began)
    barrier()  # what the program counts between two barriers is of one repetition
    return times


def overlapped(exchange):
    """Returns the seconds in which all models make one step while steps of others are in progress: the mean from the end of the first repetition
    to the end of the last but one. Steps end in groups, so that few repetitions would say little."""
    count, repetitions = SETTINGS["models"], 2 * SETTINGS["repetitions"]
    ends, busy = [], {}

    def one(index, before):
        if before:
            before.result()  # the same model's last step
        exchange.step(index)
        ends.append(time.monotonic())

    barrier()
    with ThreadPoolExecutor(SETTINGS["threads"]) as threads:
        tasks = []
        for index in itertools.chain.from_iterable(range(count) for _ in range(repetitions + 2)):
            busy[index] = threads.submit(one, index, busy.get(index))
            tasks.append(busy[index])
        for task in tasks:
            task.result(TIMEOUT_S)
    ends.sort()
    return [(ends[-count - 1] - ends[count - 1]) / repetitions]


def main():
    exchange = make_exchange()
    if SETTINGS["case"] == "overlapped":
        times = overlapped(exchange)
    elif SETTINGS["case"] == "read":
        times = repeated(exchange.read)
        exchange.check(0, 1)
    else:
        with ThreadPoolExecutor(SETTINGS["threads"]) as threads:
            times = repeated(lambda: list(threads.map(exchange.step, range(SETTINGS["models"]))))
    phases = getattr(exchange, "phases", [])[1:]
    result = {"times": times, "value": exchange.value(), "phases": [statistics.median(phase) for phase in zip(*phases)]}
    barrier()  # all have what they need of this rank
    print(json.dumps(result), flush=True)
    os._exit(0)  # torchft's threads may wait for replicas that have ended


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
