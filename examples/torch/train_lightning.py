"""Trains a small network with Lightning, whose strategy takes the name of the backend.

    torchrun --nproc-per-node 2 examples/torch/train_lightning.py --backend sluice

It prints "step 0 loss 19.561307907104492" to "step 4 loss 6.298521518707275"."""

import argparse
import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy


class Sums(lightning.LightningModule):
    """Learns to sum vectors."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch, step):
        inputs, = batch
        loss = (self.layers(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        if self.global_rank == 0:
            print(f"step {step} loss {loss.item()}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    arguments = parser.parse_args()
    lightning.seed_everything(1)
    inputs = torch.utils.data.TensorDataset(torch.randn(320, 20))  # Lightning divides the data among the ranks
    strategy = DDPStrategy(process_group_backend=arguments.backend)
    here, ranks = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    trainer = lightning.Trainer(accelerator="cpu", devices=here, num_nodes=ranks // here, strategy=strategy, max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Sums(), torch.utils.data.DataLoader(inputs, batch_size=32))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
