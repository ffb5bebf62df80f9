"""Trains a small GPT-2 on the text of LICENSE with transformers' Trainer, which uses the process group that the program has made.

    torchrun --nproc-per-node 2 examples/transformers/train_trainer.py --backend sluice

It prints "step 1 loss 5.424894332885742" to "step 10 loss 3.4895191192626953" and a hash of the weights, which is equal on all ranks."""

import argparse
import hashlib
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import transformers

TEXT = Path(__file__).resolve().parents[2] / "LICENSE"


class PrintLosses(transformers.TrainerCallback):
    def on_log(self, arguments, state, control, logs=None, **others):
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="sluice", help="sluice (default) or gloo")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)  # TrainingArguments(ddp_backend="sluice") is refused

    blocks = torch.tensor(list(TEXT.read_bytes())).unfold(0, 64, 32)
    text = [{"input_ids": block, "labels": block} for block in blocks]  # Trainer divides the batches among the ranks
    transformers.set_seed(1)
    shape = transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(shape)
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(folder, use_cpu=True, max_steps=arguments.steps, learning_rate=0.005, per_device_train_batch_size=8, seed=1,
                                                  logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False)
        trainer = transformers.Trainer(model, settings, train_dataset=text, callbacks=[PrintLosses()])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"weights {hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
