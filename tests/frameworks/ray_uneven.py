"""usage: ray_uneven.py BACKEND: Ray's workers train with unequally many batches. Each prints its losses and the hash of its weights."""

import os
import sys

import ray.train
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

from uneven_training import network, train


def work():
    rank = ray.train.get_context().get_world_rank()
    losses, weights = train(prepare_model(network()), rank)
    print(f"rank {rank} losses {losses} weights {weights}", flush=True)
    ray.train.report({})  # waits for all workers, so it is called equally often by all


def main():
    ray.init(runtime_env={"env_vars": {"SLUICE_REDUCERS": os.environ["SLUICE_REDUCERS"]}})
    TorchTrainer(work, torch_config=TorchConfig(backend=sys.argv[1]), scaling_config=ray.train.ScalingConfig(num_workers=2)).fit()


if __name__ == "__main__":
    main()
