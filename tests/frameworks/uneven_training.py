"""A training whose ranks have unequally many batches, or none: torch's Join answers the collectives of DDP for the ranks that have finished."""

import hashlib

import torch
from torch.distributed.algorithms.join import Join

BATCHES = ((6, 3), (2, 0))  # of each epoch and rank


def train(model, rank):
    """Trains a DistributedDataParallel, and returns the losses of this rank and a hash of the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batches in BATCHES:
        with Join([model]):
            for step in range(batches[rank]):
                inputs = torch.randn(8 + rank + step, 20, generator=torch.Generator().manual_seed(10 * rank + step))  # also the sizes differ
                loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return losses, hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]


def network():
    """Returns a network that has the same weights on all ranks."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
