"""Trains a small network on handwritten digits with TensorFlow on the executors of a Spark cluster.

    spark-submit --conf spark.executorEnv.SLUICE_REDUCERS=10.0.0.2:7470 examples/spark/train_tensorflow.py --executors 2

MirroredStrategyRunner of spark-tensorflow-distributor sets TF_CONFIG in each executor. With use_custom_strategy it makes no strategy of its own, and
../tensorflow/train_loop.py averages the gradients through reducers. The program prints what worker 0 does: "step 0 loss 2.36689973" to
"step 139 loss 0.0450503081"."""

import argparse
from pathlib import Path

from spark_tensorflow_distributor import MirroredStrategyRunner

FOLDER = Path(__file__).resolve().parents[1] / "tensorflow"  # on all hosts


def train(folder):
    """Runs in each executor. Returns what the loop prints; Spark returns that of worker 0."""
    import contextlib
    import io
    import sys

    sys.path.insert(0, folder)
    import train_loop

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        train_loop.main()
    return printed.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executors", type=int, default=2)
    arguments = parser.parse_args()
    runner = MirroredStrategyRunner(num_slots=arguments.executors, use_gpu=False, use_custom_strategy=True)
    print(runner.run(train, folder=str(FOLDER)))
    runner.sc.stop()


if __name__ == "__main__":
    main()
