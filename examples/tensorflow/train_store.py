"""Trains a small network on handwritten digits with two workers that need not keep step: reducers keep the parameters, as parameter servers do.

    sluice reducer --listen 127.0.0.1:7470 --state /tmp/sluice-state &
    export SLUICE_REDUCERS=127.0.0.1:7470
    workers=; for i in 0 1; do python examples/tensorflow/train_store.py --worker $i --workers 2 & workers="$workers $!"; done; wait $workers

Each worker pulls the parameters, pushes gradients, and prints "worker 0: loss 2.351 to 0.1489, 3 of 280 pushes too old" or so."""

import argparse

import keras
import numpy
import sluice.store
import tensorflow
from train_loop import BATCH, load, network

EPOCHS = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=int, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--name", default="digits", help="of the model; one that exists is trained further")
    parser.add_argument("--staleness", type=int, default=4, help="a push based on an older version than this many steps before does not count")
    arguments = parser.parse_args()

    (pixels, digits), model = load(), network()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    variables = {variable.path: variable for variable in model.trainable_variables}

    @tensorflow.function
    def gradients(images, labels):
        with tensorflow.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    losses, stale = [], 0
    with sluice.store.Store(worker=arguments.worker) as store:
        # All workers may call create(); the values of the first become version 0.
        values = {path: variable.numpy() for path, variable in variables.items()}
        shared = store.create(arguments.name, values, mode=sluice.store.bounded(arguments.staleness), rule=sluice.store.sgd(0.1))
        for number in range(EPOCHS * len(digits) // BATCH):
            version, values = shared.pull()
            for path, variable in variables.items():
                variable.assign(values[path])
            mine = numpy.arange(arguments.worker, BATCH, arguments.workers) + number * BATCH % len(digits)
            loss, computed = gradients(pixels[mine], digits[mine])
            losses.append(float(loss))
            pushed = shared.push({path: gradient.numpy() for path, gradient in zip(variables, computed)}, version)
            stale += pushed.outcome == "stale"
    print(f"worker {arguments.worker}: loss {losses[0]:.4g} to {losses[-1]:.4g}, {stale} of {len(losses)} pushes too old")


if __name__ == "__main__":
    main()
