"""The job scripts of deploy/slurm, as they ship, on a cluster of this machine (slurm_cluster.py). Exit 77 where there can be none."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import deploy_case
import slurm_cluster
from deploy_case import DEADLINE_S, until
from slurm_cluster import Cluster

# What a user's shell may have for a pool elsewhere: nothing of it may reach a script's reducers or workers.
OTHERS = "SLUICE_REDUCERS=elsewhere:7470,SLUICE_KEY_FILE=/none,SLUICE_TOKEN_FILE=/none,SLUICE_JOB=another,SLUICE_DISCOVERY=none,SLUICE_LISTEN=127.0.0.1:1"
DIGITS = Path(__file__).resolve().parents[2] / "deploy/launchers/digits.sh"


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="sluice-slurm-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.scripts = deploy_case.ROOT / "deploy/slurm"
        cls.cluster = cls.enterClassContext(Cluster(cls.folder, deploy_case.program().parent))

    def setUp(self):
        self.where = Path(tempfile.mkdtemp(prefix="job-", dir=self.folder))

    def submit(self, script, *words, options=()):
        """A script of deploy/slurm, or of any other folder."""
        number = self.cluster.submit(*options, self.scripts / script, *words, cwd=self.where)
        self.addCleanup(self.cluster.run, "scancel", str(number), check=False)
        return number

    def output(self, number):
        file = next(self.where.glob(f"*-{number}.out"), None)
        return file.read_text(errors="replace") if file else ""

    def expect_end(self, number, code):
        try:
            ended = self.cluster.end_of(number)
        except AssertionError as error:
            ended = error
        self.assertEqual(ended, code, f"{self.output(number)}\n{self.cluster.logs()}")
        return self.output(number)

    def until_said(self, number, what):
        until(f"job {number} says {what}", lambda: what in self.output(number))

    def sluice(self, *words):
        return subprocess.run([deploy_case.program(), *map(str, words)], check=True, capture_output=True, text=True, timeout=DEADLINE_S,
                              env=self.cluster.environment).stdout

    def expect_digits(self, said):
        self.assertRegex(said, r"weights +bit-identical on 2 workers")
        shares = [float(share) for share in re.findall(r"reducer +cpu\d:7470: +([\d.]+) % of the bytes", said)]
        self.assertEqual(len(shares), 2, said)
        self.assertGreater(min(shares), 40, said)

    def test_a_job_with_reducers_of_its_own(self):
        number = self.submit("hetjob.sbatch", DIGITS, "--epochs", 3, options=[f"--export=ALL,{OTHERS}"])
        said = self.expect_end(number, 0)
        self.expect_digits(said)
        self.assertEqual(len(re.findall(r"ended after .* 1 sessions completed, 0 failed", said)), 2, said)
        self.assertNotIn("the reducers ended with", said)
        self.assertEqual(sorted(path.name for path in self.where.iterdir()), [f"sluice-{number}.out"], "the key ends with the job")

    def test_the_training_decides_the_exit_code(self):
        # On one node: of several tasks srun ends the others, and tells the largest code.
        self.expect_end(self.submit("hetjob.sbatch", "sh", "-c", "exit 7", options=["--nodes=1"]), 7)

    def test_no_reducers_no_training(self):
        number = self.submit("hetjob.sbatch", "touch", "begun", options=["--export=ALL,SLUICE_MEMORY_LIMIT=much"])
        self.assertIn("the reducers ended before the training began", self.expect_end(number, 69))
        self.assertFalse((self.where / "begun").exists())

    def test_a_node_with_a_reducer_is_lost(self):
        number = self.submit("hetjob.sbatch", DIGITS, "--epochs", 100)
        self.until_said(number, "epoch   2/100")
        self.assertEqual((self.where / f".sluice-{number}").stat().st_mode & 0o777, 0o700)
        self.assertEqual((self.where / f".sluice-{number}/pool.key").stat().st_mode & 0o777, 0o600)
        self.addCleanup(self.cluster.bring_back, "cpu2")
        self.cluster.run("scontrol", "update", "nodename=cpu2", "state=down", "reason=test")
        said = self.expect_end(number, 0)
        self.assertRegex(said, r"weights +bit-identical on 2 workers")
        self.assertIn("Node failure on cpu2", said)
        self.assertNotIn("draining: 1 sessions", said)  # the other one was left alone
        self.assertEqual(len(re.findall("ended after .* 1 sessions completed, 0 failed", said)), 1, said)

    def test_a_cancelled_job_leaves_no_key(self):
        number = self.submit("hetjob.sbatch", "sleep", "600")
        self.until_said(number, "answer")
        self.cluster.run("scancel", str(number))
        self.cluster.end_of(number)
        until("the key is gone", lambda: not (self.where / f".sluice-{number}").exists())

    def test_every_node_finds_its_own_part(self):
        number = self.submit("auto.sbatch", DIGITS, "--epochs", 3, options=[f"--export=ALL,SLUICE_IDLE_TIMEOUT=1s,{OTHERS}"])
        said = self.expect_end(number, 0)
        self.expect_digits(said)
        self.assertEqual(len(re.findall(r"ended after .* 1 sessions completed, 0 failed", said)), 2, said)
        self.assertEqual(sorted(path.name for path in self.where.iterdir()), [f"sluice-{number}.out"], "the key ends with the job")

    def test_what_plan_writes(self):
        text = self.sluice("plan", "--workers", 2, "--worker-gbps", 100, "--reducer-gbps", 100, "--reducer-price", 2, "--format", "sbatch")
        script = self.where / "planned.sbatch"
        script.write_text(text)
        self.expect_digits(self.expect_end(self.submit(script, DIGITS, "--epochs", 2), 0))

    def test_a_standing_pool(self):
        key, reducers = self.where / "pool.key", self.where / "reducers"
        self.assertIn("sbatch pool.sbatch FOLDER", self.expect_end(self.submit("pool.sbatch"), 64))
        self.assertIn("no key", self.expect_end(self.submit("pool.sbatch", self.where), 78))
        self.sluice("keygen", "--out", key)
        pool = self.submit("pool.sbatch", self.where, options=[f"--export=ALL,{OTHERS}"])
        until("the pool's list", reducers.exists)
        self.assertEqual(reducers.read_text(), "cpu1:7470\ncpu2:7470\n")

        for name in ("first", "second"):
            self.sluice("keygen", "--job", name, "--key-file", key, "--out", self.where / f"{name}.token")
        train = ["train.sbatch", reducers, self.where / "first.token", DIGITS, "--epochs", 2]
        self.expect_digits(self.expect_end(self.submit(*train, options=["--job-name=first", f"--export=ALL,{OTHERS}"]), 0))
        self.expect_end(self.submit(*train, options=["--job-name=second"]), 69)  # the token is another job's

        self.cluster.run("scancel", "--batch", "--signal=TERM", str(pool))
        said = self.expect_end(pool, 0)
        self.assertEqual(len(re.findall(r"ended after .* 1 sessions completed, 0 failed", said)), 2, said)
        self.assertFalse(reducers.exists())


if __name__ == "__main__":
    deploy_case.capabilities.enter_namespaces()
    deploy_case.main(*slurm_cluster.NEEDS)
