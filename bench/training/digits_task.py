"""Class DigitsTask: the network, data and optimizer of examples/python/ddp.py, trained on handwritten digits."""

import ddp
import torch

HIDDEN = 128


class DigitsTask:
    """One training task. `batches` yields the indexes of the samples of a step, which the ranks share out."""

    name = "digits"
    description = "a perceptron on handwritten digits, SGD with momentum"

    def __init__(self, brief):
        self.steps, self.interval = (44, 22) if brief else (440, 22)
        (self._pixels, self._digits), self._held_out = ddp.load(ddp.DIGITS)

    def network(self):
        return torch.nn.Sequential(torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10))

    def optimizer(self, model):
        """Returns the optimizer and the schedule of its rate."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)

    def batches(self, order):
        random = torch.Generator().manual_seed(order)
        whole_batches = len(self._digits) // ddp.BATCH
        while True:
            yield from torch.randperm(len(self._digits), generator=random).split(ddp.BATCH)[:whole_batches]

    def loss(self, model, samples):
        return torch.nn.functional.cross_entropy(model(self._pixels[samples]), self._digits[samples])

    def evaluate(self, model, rank, ranks):
        """Returns the sum of the losses, the correct answers and the samples of this rank's share of the held-out data."""
        pixels, digits = (values[rank::ranks] for values in self._held_out)
        answers = model(pixels)
        return torch.nn.functional.cross_entropy(answers, digits, reduction="sum").item(), (answers.argmax(1) == digits).sum().item(), len(digits)
