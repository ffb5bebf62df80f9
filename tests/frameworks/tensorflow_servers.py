"""The training of train_store.py with TensorFlow's ParameterServerStrategy. TF_CONFIG says whether this process is the chief, a worker or a parameter server.

The chief prints the losses of the first and last step, of all workers, as JSON."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "tensorflow"))

import keras  # noqa: E402
import numpy  # noqa: E402
import tensorflow  # noqa: E402
from train_loop import BATCH, load, network  # noqa: E402
from train_store import EPOCHS  # noqa: E402

LOSS_OF = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def replica_step(model, optimizer):
    """Returns the step of one replica in a strategy: step(images, labels) returns its part of the loss.

    There Keras divides a loss by the number of replicas, and adds their gradients."""
    def step(images, labels):
        with tensorflow.GradientTape() as tape:
            loss = LOSS_OF(labels, model(images, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


def lead(resolver, workers):
    strategy = tensorflow.distribute.ParameterServerStrategy(resolver)
    coordinator = tensorflow.distribute.coordinator.ClusterCoordinator(strategy)
    pixels, digits = load()
    with strategy.scope():
        model, optimizer = network(), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)

    of_replica = replica_step(model, optimizer)

    @tensorflow.function
    def step(images, labels):
        return strategy.run(of_replica, args=(images, labels))

    losses = []
    for number in range(EPOCHS * len(digits) // BATCH * workers):
        mine = numpy.arange(number % workers, BATCH, workers) + number // workers * BATCH % len(digits)
        losses.append(coordinator.schedule(step, args=(tensorflow.constant(pixels[mine]), tensorflow.constant(digits[mine]))))
    coordinator.join()
    print(json.dumps([float(losses[0].fetch()), float(losses[-1].fetch())]), flush=True)


def main():
    resolver = tensorflow.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        lead(resolver, resolver.cluster_spec().num_tasks("worker"))
    else:
        tensorflow.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc").join()


if __name__ == "__main__":
    main()
