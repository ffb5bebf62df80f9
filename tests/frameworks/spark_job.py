"""usage: spark_job.py torch|tensorflow SIGNAL | mirrored: jobs on the executors of Spark that are no example.

torch, tensorflow: worker 1 sends itself the signal after its third reduction. mirrored: prints the losses of MultiWorkerMirroredStrategy, as JSON."""

import json
import signal
import sys


def torch_job(number):
    """Runs in each executor."""
    import os

    import torch
    import torch.distributed as dist

    dist.init_process_group("sluice")
    for step in range(1_000_000):
        if step == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        dist.all_reduce(torch.ones(1000))


def tensorflow_job(number):
    """Runs in each executor."""
    import os

    import sluice.tensorflow
    import tensorflow

    session = sluice.tensorflow.init()
    for step in range(1_000_000):
        if step == 3 and session.rank == 1:
            os.kill(os.getpid(), number)
        sluice.tensorflow.allreduce(tensorflow.ones(1000))


def mirrored():
    """Runs in each executor."""
    import os

    os.environ["MIRRORED_CONFIG"] = os.environ["TF_CONFIG"]
    from tensorflow_rank import mirrored_losses

    return mirrored_losses()


def main():
    job = {"torch": torch_job, "tensorflow": tensorflow_job, "mirrored": mirrored}[sys.argv[1]]
    number = [int(signal.Signals[name]) for name in sys.argv[2:]]
    if job is torch_job:
        from pyspark.ml.torch.distributor import TorchDistributor
        from pyspark.sql import SparkSession

        SparkSession.builder.getOrCreate()
        TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(job, *number)
    else:
        from spark_tensorflow_distributor import MirroredStrategyRunner

        print(json.dumps(MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(job, **({"number": number[0]} if number else {}))))


if __name__ == "__main__":
    main()
