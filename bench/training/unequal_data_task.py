"""Class UnequalDataTask: a linear classifier of digits, of which each rank has others, with all of its images in each step."""

import ddp
import torch
from torch.nn import functional

DECAY = 1e-3


class UnequalDataTask:
    """One training task, with the functions of DigitsTask. Steps have no noise of batches, and the gradient of a rank alone does not become 0, so
    rounding limits how low the loss becomes. `evaluate` computes what is minimized, the loss on the training data with decay, because its least value
    is the same from every start. For two ranks."""

    name = "unequal data"
    description = "a linear classifier of digits, of which one rank has 0 to 4 and the other 5 to 9, all images in each step"

    def __init__(self, brief):
        self.steps, self.interval = (20, 10) if brief else (600, 50)
        (pixels, digits), _ = ddp.load(ddp.DIGITS)
        self._of_ranks = [(pixels[chosen], digits[chosen]) for chosen in (digits < 5, digits >= 5)]

    def network(self):
        return torch.nn.Linear(64, 10)

    def optimizer(self, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=DECAY)
        return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)

    def batches(self, _order):
        while True:
            yield torch.arange(2)  # a rank's sample is its own number

    def loss(self, model, samples):
        pixels, digits = self._of_ranks[samples.item()]
        return functional.cross_entropy(model(pixels), digits)

    def evaluate(self, model, rank, _ranks):
        # DDP averages the ranks' mean losses, so both halves weigh the same, though one has a few images more.
        pixels, digits = self._of_ranks[rank]
        answers = model(pixels)
        decay = DECAY / 2 * sum((parameter ** 2).sum() for parameter in model.parameters())
        return (functional.cross_entropy(answers, digits) + decay).item(), (answers.argmax(1) == digits).double().mean().item(), 1
