"""Colossal-AI on CPUs: with the Booster and its plugin of DDP, the losses have the bits of gloo's."""

import sys
from pathlib import Path

from job_test_bed import EXAMPLES, JobTest
from package_test_bed import main

SCRIPT = "colossalai/train_booster.py"
TORCHRUN = Path(sys.executable).with_name("torchrun")


class ColossalAI(JobTest):
    def train(self, *arguments, ranks=2):
        return self.lines(self.run_ranks_of(SCRIPT, ranks, *arguments))

    def test_losses_have_the_bits_of_gloo(self):
        lines = self.train()
        self.assertGreater(self.reduced_bytes(), 0)
        print(lines[0], lines[-1], flush=True)
        self.expect_training(lines)
        self.assertEqual(lines, self.train("--backend", "gloo"))

    def test_losses_of_four_ranks_are_those_of_gloo(self):
        lines = self.train(ranks=4)
        self.assertGreater(self.reduced_bytes(), 0)
        for ours, gloos in zip(lines, self.train("--backend", "gloo", ranks=4), strict=True):
            self.assertAlmostEqual(float(ours.split()[-1]), float(gloos.split()[-1]), delta=1e-5, msg=lines)

    def test_torchrun(self):
        printed = self.run_command(TORCHRUN, "--nproc-per-node", 2, "--master-port", self.reserve_port(), EXAMPLES / SCRIPT)
        self.assertGreater(self.reduced_bytes(), 0)
        self.assertEqual(self.lines(printed), self.train("--backend", "gloo"))

    def test_a_rank_that_dies_ends_the_others_with_its_number(self):
        self.expect_error_when_a_rank_dies(self.start_ranks_of(SCRIPT, 2, "--steps", 1_000_000), "DistBackendError: .*rank 1 ")


if __name__ == "__main__":
    main()
