"""usage: spark_job.py torch|tensorflow SIGNAL | mirrored | uneven BACKEND: jobs on the executors of Spark that are no example.

torch, tensorflow: worker 1 sends itself the signal after its third reduction. mirrored: prints the losses of MultiWorkerMirroredStrategy, as JSON.
uneven: two ranks train with unequally many batches; prints the losses of rank 0 and the hashes of all weights, as JSON."""

import json
import signal
import sys


def torch_job(number):
    """Runs in each executor."""
    import torch
    import torch.distributed as dist
    from end_of_worker import end_with

    dist.init_process_group("sluice")
    for step in range(1_000_000):
        if step == 3 and dist.get_rank() == 1:
            end_with(number)
        dist.all_reduce(torch.ones(1000))


def tensorflow_job(number):
    """Runs in each executor."""
    import sluice.tensorflow
    import tensorflow
    from end_of_worker import end_with

    session = sluice.tensorflow.init()
    for step in range(1_000_000):
        if step == 3 and session.rank == 1:
            end_with(number)
        sluice.tensorflow.allreduce(tensorflow.ones(1000))


def mirrored():
    """Runs in each executor."""
    import os

    os.environ["MIRRORED_CONFIG"] = os.environ["TF_CONFIG"]
    from tensorflow_rank import mirrored_losses

    return mirrored_losses()


def uneven_job(backend):
    """Runs in each executor."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from uneven_training import network, train

    dist.init_process_group(backend)
    losses, weights = train(DistributedDataParallel(network()), dist.get_rank())
    hashes = [None] * dist.get_world_size()
    dist.all_gather_object(hashes, weights)
    dist.destroy_process_group()
    return losses, hashes


def main():
    mode, *arguments = sys.argv[1:]
    number = [int(signal.Signals[name]) for name in arguments if mode != "uneven"]
    if mode in ("torch", "uneven"):
        from pyspark.ml.torch.distributor import TorchDistributor
        from pyspark.sql import SparkSession

        SparkSession.builder.getOrCreate()
        job, values = (uneven_job, arguments) if mode == "uneven" else (torch_job, number)
        print(json.dumps(TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(job, *values)))
    else:
        from spark_tensorflow_distributor import MirroredStrategyRunner

        runner = MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True)
        print(json.dumps(runner.run(tensorflow_job, number=number[0]) if number else runner.run(mirrored)))


if __name__ == "__main__":
    main()
