"""Class CharacterTask: a transformer of two layers that predicts the next character of a generated text."""

import generated_text
import torch
from torch.nn import functional

WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 2, 64
BATCH = 16  # sequences per step of all ranks
RATE, WARMUP = 3e-3, 20
TRAINING_CHARACTERS, HELD_OUT_SEQUENCES = 400_000, 128


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.projections, self.output = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.projections(self.before_attention(x)).chunk(3, -1))
        attention = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attention.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.before_mlp(x))


class Transformer(torch.nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.characters, self.places = torch.nn.Embedding(characters, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.layers = torch.nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.last = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, characters)

    def forward(self, x):
        return self.head(self.last(self.layers(self.characters(x) + self.places.weight)))


class CharacterTask:
    """One training task, with the functions of DigitsTask."""

    name = "characters"
    description = "a transformer of two layers on the characters of a generated text, AdamW"

    def __init__(self, brief):
        self.steps, self.interval = (20, 10) if brief else (300, 20)
        text = generated_text.generate(TRAINING_CHARACTERS + HELD_OUT_SEQUENCES * CONTEXT + 1)
        self._alphabet = sorted(set(text))
        codes = torch.tensor([self._alphabet.index(character) for character in text])
        self._training, held_out = codes[:TRAINING_CHARACTERS], codes[TRAINING_CHARACTERS:]
        self._held_out = held_out[:-1].view(-1, CONTEXT), held_out[1:].view(-1, CONTEXT)

    def network(self):
        return Transformer(len(self._alphabet))

    def optimizer(self, model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        rising = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.05, total_iters=WARMUP)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, self.steps - WARMUP), eta_min=RATE / 10)
        return optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, [rising, falling], [WARMUP])

    def batches(self, order):
        random = torch.Generator().manual_seed(order)
        while True:
            yield torch.randint(TRAINING_CHARACTERS - CONTEXT, (BATCH,), generator=random)

    def loss(self, model, samples):
        sequences = self._training[samples[:, None] + torch.arange(CONTEXT + 1)]
        return functional.cross_entropy(model(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten())

    def evaluate(self, model, rank, ranks):
        x, y = (part[rank::ranks] for part in self._held_out)
        answers = model(x)
        return functional.cross_entropy(answers.flatten(0, 1), y.flatten(), reduction="sum").item(), (answers.argmax(-1) == y).sum().item(), y.numel()
