"""DeepSpeed: with each stage of ZeRO the losses have the bits of gloo's, also after a checkpoint and with several ranks on each host."""

import os
import sys
from pathlib import Path

from job_test_bed import EXAMPLES, JobTest
from package_test_bed import main

SCRIPT = "deepspeed/train_zero.py"
LAUNCHER = Path(sys.executable).with_name("deepspeed")
LOST = r"DistBackendError: .*rank 1 .*"


class DeepSpeed(JobTest):
    def setUp(self):
        super().setUp()
        # DeepSpeed compiles a part of itself when it first runs; the environment keeps it. Another ninja than the environment's would compile it again.
        self.common |= {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(Path(sys.prefix) / "torch_extensions"),
                        "PATH": f"{LAUNCHER.parent}:{os.environ['PATH']}"}

    def train(self, *arguments, ranks=2, **how):
        return self.lines(self.run_ranks_of(SCRIPT, ranks, *arguments, **how))

    def test_losses_have_the_bits_of_gloo_also_after_a_checkpoint(self):
        for stage in range(1, 4):
            with self.subTest(stage):
                before = self.reduced_bytes()
                parts = [self.train("--zero", stage, "--steps", 5, "--checkpoint", self.folder / f"zero{stage}") for _ in range(2)]
                self.assertGreater(self.reduced_bytes(), before)
                lines = self.train("--zero", stage, "--backend", "gloo")
                print("\n".join(lines), flush=True)
                self.expect_training(lines)
                self.assertEqual(parts[0] + parts[1], lines)

    def test_two_ranks_on_each_of_two_hosts(self):
        """The ranks of a host share its data through memory; reducers see a rank for each host."""
        def host(rank):
            return {"SLUICE_HOSTS": "auto", "SLUICE_HOST_ID": f"host-{rank // 2}"}
        lines = self.train("--zero", 3, ranks=4, per_rank=host)
        self.assertGreater(self.reduced_bytes(), 0)
        self.expect_training(lines)
        for ours, gloos in zip(lines, self.train("--zero", 3, "--backend", "gloo", ranks=4), strict=True):
            self.assertAlmostEqual(float(ours.split()[-1]), float(gloos.split()[-1]), delta=1e-5, msg=lines)

    def test_the_launcher(self):
        printed = self.run_command(LAUNCHER, "--num_accelerators", 2, "--master_port", self.reserve_port(), EXAMPLES / SCRIPT, "--zero", 2)
        self.assertEqual(self.lines(printed), self.train("--zero", 2, "--backend", "gloo"))

    def test_a_rank_that_dies_ends_the_others_with_its_number(self):
        for stage in 1, 3:
            with self.subTest(stage):
                self.expect_error_when_a_rank_dies(self.start_ranks_of(SCRIPT, 2, "--zero", stage, "--steps", 1_000_000), LOST)


if __name__ == "__main__":
    main()
