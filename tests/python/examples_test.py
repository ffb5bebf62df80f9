"""The examples of torch, with the installed package: with two ranks, the losses have the same bits with the backend "sluice" as with gloo."""

import os
import re
import shutil
import signal
import subprocess
import sys

from examples_rank import BACKENDS, FOLDER, OFFLOADED, SCRIPTS
from package_test_bed import DEADLINE_S, LOST_S, PackageTest, main, unpack_wheel, variables

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "examples_rank.py")
LOST_RANK = os.path.join(os.path.dirname(RANK), "examples_lost_rank.py")
RANKS = 2
STEPS = 5


class Examples(PackageTest):
    def setUp(self):
        super().setUp()
        installed = unpack_wheel(self.folder)  # its entry point lets torch find the backend by the name
        _, reducer = self.start_reducer()
        self.common = {"PYTHONPATH": str(installed), "SLUICE_REDUCERS": reducer, "MASTER_ADDR": "127.0.0.1"}

    def losses(self, printed):
        found = re.findall(r"^step \d+ loss (\S+)$", printed, re.MULTILINE)
        self.assertEqual(len(found), STEPS, printed)
        self.assertLess(float(found[-1]), float(found[0]))
        return found

    def start_as_torchrun(self, *arguments, **extra):
        torchrun = {"WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "examples"}
        return [self.python(*arguments, **self.common, RANK=str(rank), LOCAL_RANK=str(rank), **{name: str(value) for name, value in torchrun.items()}, **extra)
                for rank in range(RANKS)]

    def losses_by_example(self):
        """Returns {(backend, script): losses}."""
        ports = [self.reserve_port() for _ in range(len(BACKENDS) * len(SCRIPTS) + 1)]
        ranks = self.start_as_torchrun(RANK, *ports)
        parts = re.split(r"^== (\w+) (.+)\n", self.outputs(ranks)[0], flags=re.MULTILINE)
        return {(backend, name): self.losses(part) for name, backend, part in zip(parts[1::3], parts[2::3], parts[3::3])}

    def mpirun(self):
        environment = variables(**self.common, MASTER_PORT=str(self.reserve_port()), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_btl="self,vader", OMPI_MCA_oob_tcp_if_include="lo")
        run = subprocess.run(["mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none", sys.executable, "-B", FOLDER / "train_mpirun.py"],
                             capture_output=True, text=True, timeout=100, env=environment, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return self.losses(run.stdout)

    def test_losses_have_the_bits_of_gloo(self):
        losses = self.losses_by_example()
        self.assertEqual(len(losses), len(BACKENDS) * len(SCRIPTS) + 1)
        self.assertEqual(losses[OFFLOADED], losses["gloo", "train_fsdp2"])
        for name in SCRIPTS:
            self.assertEqual(losses["sluice", name], losses["gloo", name], name)
        with self.subTest("mpirun"):
            if not shutil.which("mpirun"):
                self.skipTest("mpirun is not installed")
            self.assertEqual(self.mpirun(), losses["gloo", "train_ddp"])

    def test_a_rank_that_dies_ends_the_others_with_its_number(self):
        for framework in "lightning", "accelerate":
            with self.subTest(framework):
                survivor, dead = self.start_as_torchrun(LOST_RANK, framework, MASTER_PORT=str(self.reserve_port()))
                self.assertEqual(dead.wait(4 * DEADLINE_S), -signal.SIGKILL)
                _, errors = survivor.communicate(timeout=LOST_S)
                self.assertNotEqual(survivor.returncode, 0)
                self.assertRegex(errors, "DistBackendError: .*rank 1 ")


if __name__ == "__main__":
    main()
