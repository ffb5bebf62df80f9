r"""Trains a small network on handwritten digits by model.fit with two workers, whose gradients a reducer averages.

    sluice reducer --listen 127.0.0.1:7470 &
    export SLUICE_REDUCERS=127.0.0.1:7470 SLUICE_HOSTS=off     # off: these workers stand for hosts
    workers=; for i in 0 1; do
      TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2220", "127.0.0.1:2221"]}, "task": {"type": "worker", "index": '$i'}}' \
        python examples/tensorflow/train_fit.py --checkpoint /tmp/digits.keras & workers="$workers $!"
    done; wait $workers

Worker 0 writes the checkpoint of the best epoch, and prints Keras's progress and "epoch 0 loss 1.22109705" to "epoch 4 loss 0.0958333649"."""

import argparse
import os

import keras
import sluice.tensorflow
from train_loop import BATCH, EPOCHS, load, network


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", help="file of the model: training begins with it if it exists")
    path = parser.parse_args().checkpoint

    session = sluice.tensorflow.init()
    pixels, digits = load()
    model = network()
    if path and session.rank == 0 and os.path.exists(path):
        model = keras.models.load_model(path)
    sluice.tensorflow.broadcast_variables(model.variables)
    optimizer = sluice.tensorflow.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    # XLA cannot compile the reductions, so jit_compile=False.
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], jit_compile=False)
    callbacks = [sluice.tensorflow.AverageMetrics()]  # before those that decide by metrics
    if path and session.rank == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(path, monitor="loss", save_best_only=True))
    history = model.fit(pixels[session.rank::session.ranks], digits[session.rank::session.ranks], batch_size=BATCH // session.ranks, epochs=EPOCHS,
                        shuffle=False, callbacks=callbacks, verbose=2 if session.rank == 0 else 0)
    if session.rank == 0:
        for number, loss in enumerate(history.history["loss"]):
            print(f"epoch {number} loss {loss:.9g}", flush=True)
    print(f"rank {session.rank} sent {session.stats().payload_bytes_out} bytes to reducers")
    sluice.tensorflow.shutdown()


if __name__ == "__main__":
    main()
