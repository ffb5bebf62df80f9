"""transformers' Trainer: in the group that the program makes before it, losses and weights have the bits of gloo's."""

import os
import sys
from pathlib import Path
from unittest import mock

from job_test_bed import EXAMPLES, JobTest
from package_test_bed import main

SCRIPT = "transformers/train_trainer.py"
TORCHRUN = Path(sys.executable).with_name("torchrun")


class Trainer(JobTest):
    def train(self, *arguments):
        """Returns the losses, then the hash of the weights."""
        printed = self.run_ranks_of(SCRIPT, 2, *arguments)
        return self.lines(printed) + self.lines(printed, r"weights \w+")

    def test_losses_and_weights_have_the_bits_of_gloo(self):
        trained = self.train()
        self.assertGreater(self.reduced_bytes(), 0)
        self.expect_training(trained[:-1])
        self.assertEqual(trained, self.train("--backend", "gloo"))
        printed = self.run_command(TORCHRUN, "--nproc-per-node", 2, "--master-port", self.reserve_port(), EXAMPLES / SCRIPT)
        self.assertEqual(self.lines(printed), trained[:-1])
        self.assertEqual(self.lines(printed, r"weights \w+"), trained[-1:] * 2)

    def test_an_epoch_that_leaves_a_rank_without_data(self):
        """353 blocks of text are 22 steps of 16, and one block. Trainer repeats blocks, so that both ranks take the 23rd step."""
        trained = self.train("--steps", 24)
        self.assertEqual(len(trained), 25)
        self.assertEqual(trained, self.train("--steps", 24, "--backend", "gloo"))

    def test_a_rank_that_dies_ends_the_others_with_its_number(self):
        self.expect_error_when_a_rank_dies(self.start_ranks_of(SCRIPT, 2, "--steps", 1_000_000), "DistBackendError: .*rank 1 ")

    def test_the_name_of_the_backend_as_an_argument(self):
        """Fails when the page's sentence about ddp_backend is no longer true."""
        import transformers

        with mock.patch.dict(os.environ, LOCAL_RANK="0"), self.assertRaisesRegex(ValueError, "backend sluice is not available, please use gloo"):
            transformers.TrainingArguments(str(self.folder), use_cpu=True, ddp_backend="sluice").device


if __name__ == "__main__":
    main()
