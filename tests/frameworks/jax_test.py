"""JAX on CPUs: gradients that a session averages give the losses of JAX's own collectives over gloo."""

import os

from job_test_bed import EXAMPLES, JobTest
from package_test_bed import main

SCRIPT = EXAMPLES / "jax" / "train_digits.py"


class Jax(JobTest):
    def start_training(self, *arguments, ranks=2):
        return [self.python(SCRIPT, "--rank", rank, "--ranks", ranks, *arguments, JAX_PLATFORMS="cpu", **self.common) for rank in range(ranks)]

    def through_reducers(self, *arguments, **how):
        return self.start_training("--session", os.urandom(16).hex(), *arguments, **how)

    def train(self, ranks):
        """Trains through reducers and over gloo, and returns the losses of both."""
        ours = self.lines(self.outputs(self.through_reducers(ranks=ranks))[0])
        self.assertGreater(self.reduced_bytes(), 0)
        self.expect_training(ours)
        return ours, self.lines(self.outputs(self.start_training("--gloo", f"127.0.0.1:{self.reserve_port()}", ranks=ranks))[0])

    def test_losses_of_two_ranks_have_the_bits_of_gloo(self):
        ours, gloos = self.train(2)
        self.assertEqual(ours, gloos)

    def test_losses_of_three_ranks_are_those_of_gloo(self):
        for ours, gloos in zip(*self.train(3), strict=True):
            self.assertAlmostEqual(float(ours.split()[-1]), float(gloos.split()[-1]), delta=1e-5)

    def test_a_rank_that_dies_ends_the_others_with_its_number(self):
        self.expect_error_when_a_rank_dies(self.through_reducers("--steps", "1000000", ranks=3), "sluice.errors.Lost: .*rank 2 ")


if __name__ == "__main__":
    main()
