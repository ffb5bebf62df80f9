r"""Trains a small network on handwritten digits in a custom loop with two workers, whose gradients a reducer averages.

    sluice reducer --listen 127.0.0.1:7470 &
    export SLUICE_REDUCERS=127.0.0.1:7470 SLUICE_HOSTS=off     # off: these workers stand for hosts
    workers=; for i in 0 1; do
      TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2220", "127.0.0.1:2221"]}, "task": {"type": "worker", "index": '$i'}}' \
        python examples/tensorflow/train_loop.py & workers="$workers $!"
    done; wait $workers

Worker 0 prints "step 0 loss 2.36689973" to "step 139 loss 0.0450503081"."""

from pathlib import Path

import keras
import numpy
import sluice.tensorflow
import tensorflow

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH, EPOCHS = 64, 5  # images of all workers


def load():
    """Returns pixels in 0..1 and digits, in complete batches."""
    rows = numpy.loadtxt(DIGITS, delimiter=",", dtype="float32")
    rows = rows[numpy.random.default_rng(1).permutation(len(rows))[:len(rows) // BATCH * BATCH]]
    return rows[:, :-1] / 16, rows[:, -1].astype("int64")


def network():
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])


def main():
    session = sluice.tensorflow.init()
    (pixels, digits), model = load(), network()
    sluice.tensorflow.broadcast_variables(model.variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = sluice.tensorflow.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    optimizer.build(model.trainable_variables)

    @tensorflow.function
    def step(images, labels):
        with tensorflow.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return sluice.tensorflow.allreduce(loss)

    for number in range(EPOCHS * len(digits) // BATCH):
        mine = numpy.arange(session.rank, BATCH, session.ranks) + number * BATCH % len(digits)
        loss = step(pixels[mine], digits[mine])
        if session.rank == 0:
            print(f"step {number} loss {loss.numpy():.9g}", flush=True)
    print(f"rank {session.rank} sent {session.stats().payload_bytes_out} bytes to reducers")
    sluice.tensorflow.shutdown()


if __name__ == "__main__":
    main()
