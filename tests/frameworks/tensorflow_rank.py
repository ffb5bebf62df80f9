"""usage: tensorflow_rank.py compare|lost: a worker of tensorflow_test.py. TF_CONFIG is its place in the job, MIRRORED_CONFIG that in the one of
MultiWorkerMirroredStrategy.

compare: trains by the strategy, then by the examples, with the variable EAGER also eagerly and from a checkpoint, in one process because the import of
tensorflow takes seconds; prints JSON. lost: trains by
model.fit until another worker is lost, which is VICTIM, and prints the errors. In the third epoch the victim kills itself, or it LEAVES."""

import contextlib
import io
import json
import os
import re
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "tensorflow"))

import keras  # noqa: E402
import numpy  # noqa: E402
import sluice  # noqa: E402
import sluice.tensorflow  # noqa: E402
import tensorflow  # noqa: E402
import train_fit  # noqa: E402
import train_loop  # noqa: E402
from tensorflow_servers import LOSS_OF, replica_step  # noqa: E402
from train_loop import BATCH, EPOCHS, load, network  # noqa: E402


def mirrored_losses():
    """Returns the losses of the steps of train_loop.py with MultiWorkerMirroredStrategy, which must be created before any tensor."""
    job_config, os.environ["TF_CONFIG"] = os.environ["TF_CONFIG"], os.environ["MIRRORED_CONFIG"]
    ring = tensorflow.distribute.experimental.CommunicationImplementation.RING
    strategy = tensorflow.distribute.MultiWorkerMirroredStrategy(
        communication_options=tensorflow.distribute.experimental.CommunicationOptions(implementation=ring))
    os.environ["TF_CONFIG"] = job_config
    rank, ranks = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    pixels, digits = load()
    with strategy.scope():
        model, optimizer = network(), keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)

    step = replica_step(model, optimizer)

    @tensorflow.function
    def all_steps(images, labels):
        return strategy.reduce(tensorflow.distribute.ReduceOp.SUM, strategy.run(step, args=(images, labels)), axis=None)

    losses = []
    for number in range(EPOCHS * len(digits) // BATCH):
        mine = numpy.arange(rank, BATCH, ranks) + number * BATCH % len(digits)
        losses.append(float(all_steps(tensorflow.constant(pixels[mine]), tensorflow.constant(digits[mine]))))
    return losses


def printed_losses(main, *arguments):
    """Runs an example and returns the losses that rank 0 prints, and the bytes that it sent."""
    sys.argv[1:] = arguments
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        main()
    losses = [float(loss) for loss in re.findall(r"^\w+ \d+ loss (\S+)$", output.getvalue(), re.MULTILINE)]
    return losses, int(re.search(r"sent (\d+) bytes", output.getvalue())[1])


def reductions():
    """Returns what allreduce and broadcast_variables make of tensors of all kinds."""
    session = sluice.tensorflow.init()
    rank = session.rank
    kinds = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8")

    @tensorflow.function
    def reduce_all():
        rows = tensorflow.IndexedSlices(tensorflow.fill([1, 2], float(rank + 1)), tensorflow.constant([rank % 2]), tensorflow.constant([3, 2]))
        reduced = sluice.tensorflow.allreduce([tensorflow.cast(tensorflow.fill([2, 3], rank + 1), kind) for kind in kinds] + [None, rows], "sum")
        assert reduced[len(kinds)] is None and reduced[0].shape == (2, 3)
        return [tensorflow.cast(each, "float64") for each in reduced if each is not None], sluice.tensorflow.allreduce(tensorflow.constant(float(rank)))

    each, mean = reduce_all()
    variables = [tensorflow.Variable(rank == 0), tensorflow.Variable(tensorflow.fill([3], rank)), keras.Variable([[1.5 - rank]]),
                 tensorflow.Variable(tensorflow.complex(float(rank), 1.0))]
    sluice.tensorflow.broadcast_variables(variables)
    # 5 samples, of which the second worker has none: each worker's part of the mean is a sum divided by the samples of all.
    weight = tensorflow.Variable([2.0])
    optimizer = sluice.tensorflow.DistributedOptimizer(keras.optimizers.SGD(1.0), "sum")
    samples = tensorflow.range(1.0, 6.0) if rank == 0 else tensorflow.zeros([0])
    with tensorflow.GradientTape() as tape:
        loss = tensorflow.reduce_sum(weight * samples) / 5
    optimizer.apply(tape.gradient(loss, [weight]), [weight])
    sluice.tensorflow.shutdown()
    return {"sums": [tensor.numpy().tolist() for tensor in each], "mean": float(mean), "uneven": float(weight[0]),
            "broadcast": [str(numpy.array(variable).tolist()) for variable in variables]}


def compare():
    result = {"mirrored": mirrored_losses()}
    result["loop"], result["loop_bytes"] = printed_losses(train_loop.main)
    result["fit"], result["fit_bytes"] = printed_losses(train_fit.main, "--checkpoint", os.environ["CHECKPOINT"])
    if "EAGER" in os.environ:
        result["resumed"], _ = printed_losses(train_fit.main, "--checkpoint", os.environ["CHECKPOINT"])
        tensorflow.config.run_functions_eagerly(True)
        result["eager"], _ = printed_losses(train_loop.main)
        tensorflow.config.run_functions_eagerly(False)
    result["reductions"] = reductions()
    print(json.dumps(result))


class Ends(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and "LEAVES" not in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = epoch == 2


def lost():
    session = sluice.tensorflow.init(resume_timeout_ms=200)
    pixels, digits = load()
    model = network()
    model.compile(sluice.tensorflow.DistributedOptimizer(keras.optimizers.SGD(0.1)), LOSS_OF, jit_compile=False)
    errors, is_victim = [], session.rank == int(os.environ["VICTIM"])
    try:
        model.fit(pixels[session.rank::session.ranks], digits[session.rank::session.ranks], batch_size=32, epochs=1000, shuffle=False, verbose=0,
                  callbacks=[Ends()] if is_victim else [])
    except tensorflow.errors.OpError as error:
        errors.append([type(error).__name__, str(error)])
    if not is_victim:
        try:
            sluice.tensorflow.allreduce(tensorflow.constant(1.0))
        except sluice.Error as error:
            errors.append([type(error).__name__, str(error)])
    sluice.tensorflow.shutdown()
    print(json.dumps(errors))


if __name__ == "__main__":
    {"compare": compare, "lost": lost}[sys.argv[1]]()
