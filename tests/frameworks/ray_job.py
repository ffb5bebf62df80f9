"""usage: ray_job.py SIGNAL ATTEMPTS [ARGUMENT...]: the example of Ray, whose last worker sends itself the signal after its third step in each of the first
ATTEMPTS attempts. Each attempt adds a line to the file of the variable ATTEMPTS_FILE."""

import os
import signal
import sys
from pathlib import Path

import ray.train

from end_of_worker import end_with
from train_torch_trainer import main, train

SIGNAL = signal.Signals[sys.argv.pop(1)]
LOST_ATTEMPTS = int(sys.argv.pop(1))


def train_or_die(job):
    report, calls = ray.train.report, 0

    def counted(*arguments, **options):
        nonlocal calls
        report(*arguments, **options)
        calls += 1
        if calls == 3:
            end_with(SIGNAL)

    context = ray.train.get_context()
    if context.get_world_rank() == context.get_world_size() - 1:
        attempts = Path(os.environ["ATTEMPTS_FILE"])
        with attempts.open("a") as file:
            print(os.getpid(), file=file)
        if len(attempts.read_text().splitlines()) <= LOST_ATTEMPTS:
            ray.train.report = counted
    train(job)


if __name__ == "__main__":
    main(train_or_die)
