"""usage: health_rank.py: trains under DistributedDataParallel; the gradient of rank 1 has a NaN in step 3. Prints JSON: the steps before the backward
pass raised, and the exception."""

import json
import os

import sluice
import torch
import torch.distributed as dist
from ddp_rank import Data, network

SICK_RANK, SICK_STEP = 1, 3


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(os.environ["STORE"], ranks), rank=rank, world_size=ranks)
    steps, error = 0, ""
    with sluice.session_from_torch(os.environ["REDUCERS"], on_finding="raise") as session:
        model = network()
        model.register_comm_hook(None, sluice.ddp_hook(session))

        def spoil(gradient):
            if rank == SICK_RANK and steps + 1 == SICK_STEP:
                gradient = gradient.clone()
                gradient.view(-1)[0] = float("nan")
            return gradient

        next(model.parameters()).register_hook(spoil)
        data = Data()
        try:
            for _ in range(10):
                model.zero_grad()
                data.loss(model).backward()
                steps += 1
        except Exception as raised:
            error = str(raised)
    print(json.dumps({"steps": steps, "error": error}))
    dist.destroy_process_group()


main()
