"""Runs the job scripts of deploy/slurm on a Slurm cluster on this machine (slurm_cluster.py).

Exits with 77 if the machine cannot run the cluster.
"""

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

# Variables of another pool in the shell of a user. They must not affect the reducers or workers of a script.
OTHER_POOL = "SLUICE_REDUCERS=elsewhere:7470,SLUICE_KEY_FILE=/none,SLUICE_TOKEN_FILE=/none,SLUICE_JOB=another,SLUICE_DISCOVERY=none,SLUICE_LISTEN=127.0.0.1:1"
DIGITS = Path(__file__).resolve().parents[2] / "deploy/launchers/digits.sh"


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="sluice-slurm-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.scripts = deploy_case.ROOT / "deploy/slurm"
        cls.cluster = cls.enterClassContext(Cluster(cls.folder, deploy_case.program().parent))

    def setUp(self):
        self.job_folder = Path(tempfile.mkdtemp(prefix="job-", dir=self.folder))

    def submit(self, script, *arguments, options=()):
        """Submits a script of deploy/slurm or, with an absolute path, of another folder. Returns the number of the job."""
        number = self.cluster.submit(*options, self.scripts / script, *arguments, cwd=self.job_folder)
        self.addCleanup(self.cluster.run, "scancel", str(number), check=False)
        return number

    def output(self, number):
        file = next(self.job_folder.glob(f"*-{number}.out"), None)
        return file.read_text(errors="replace") if file else ""

    def expect_end(self, number, code):
        try:
            actual = self.cluster.wait_for_end(number)
        except AssertionError as error:
            actual = error
        self.assertEqual(actual, code, f"{self.output(number)}\n{self.cluster.logs()}")
        return self.output(number)

    def wait_for_output(self, number, text):
        until(f"job {number} prints {text}", lambda: text in self.output(number))

    def sluice(self, *arguments):
        return subprocess.run([deploy_case.program(), *map(str, arguments)], check=True, capture_output=True, text=True, timeout=DEADLINE_S,
                              env=self.cluster.environment).stdout

    def expect_digits(self, output):
        self.assertRegex(output, r"weights +bit-identical on 2 workers")
        shares = [float(share) for share in re.findall(r"reducer +cpu\d:7470: +([\d.]+) % of the bytes", output)]
        self.assertEqual(len(shares), 2, output)
        self.assertGreater(min(shares), 40, output)

    def expect_served_sessions(self, count, output):
        """This many reducers have served one session each."""
        self.assertEqual(len(re.findall(r"ended after .* 1 sessions completed, 0 failed", output)), count, output)

    def run_digits(self, script, variables):
        """Trains with two reducers that end with the job, and returns the job's output."""
        number = self.submit(script, DIGITS, "--epochs", 3, options=[f"--export=ALL,{variables}"])
        output = self.expect_end(number, 0)
        self.expect_digits(output)
        self.expect_served_sessions(2, output)
        self.assertNotIn("error: ", output)  # no "STEP CANCELLED" in a good job
        self.assertEqual(sorted(path.name for path in self.job_folder.iterdir()), [f"sluice-{number}.out"], "the script deletes the key")
        return output

    def test_job_with_its_own_reducers(self):
        self.assertNotIn("the reducers exited with", self.run_digits("hetjob.sbatch", OTHER_POOL))

    def test_exit_code_is_the_exit_code_of_the_training(self):
        # Uses one node: with several tasks, srun kills the other tasks and returns the largest code.
        self.expect_end(self.submit("hetjob.sbatch", "sh", "-c", "exit 7", options=["--nodes=1"]), 7)

    def test_training_does_not_start_without_reducers(self):
        number = self.submit("hetjob.sbatch", "touch", "started", options=["--export=ALL,SLUICE_MEMORY_LIMIT=much"])
        self.assertIn("the reducers ended before the training started", self.expect_end(number, 69))
        self.assertFalse((self.job_folder / "started").exists())

    def test_failure_of_a_node_with_a_reducer(self):
        number = self.submit("hetjob.sbatch", DIGITS, "--epochs", 400)
        self.wait_for_output(number, "epoch   2/400")
        self.assertEqual((self.job_folder / f".sluice-{number}").stat().st_mode & 0o777, 0o700)
        self.assertEqual((self.job_folder / f".sluice-{number}/pool.key").stat().st_mode & 0o777, 0o600)
        self.addCleanup(self.cluster.resume_node, "cpu2")
        self.cluster.run("scontrol", "update", "nodename=cpu2", "state=down", "reason=test")
        output = self.expect_end(number, 0)
        self.assertRegex(output, r"weights +bit-identical on 2 workers")
        self.assertIn("Node failure on cpu2", output)
        self.assertNotIn("draining: 1 sessions", output)  # the other reducer was not stopped
        self.expect_served_sessions(1, output)

    def test_canceled_job_leaves_no_key(self):
        number = self.submit("hetjob.sbatch", "sleep", "600")
        self.wait_for_output(number, "are ready")
        self.cluster.run("scancel", str(number))
        self.cluster.wait_for_end(number)
        until("the key is deleted", lambda: not (self.job_folder / f".sluice-{number}").exists())

    def test_each_node_discovers_its_role(self):
        self.run_digits("auto.sbatch", f"SLUICE_IDLE_TIMEOUT=1s,{OTHER_POOL}")

    def test_script_of_sluice_plan(self):
        text = self.sluice("plan", "--workers", 2, "--worker-gbps", 100, "--reducer-gbps", 100, "--reducer-price", 2, "--format", "sbatch")
        script = self.job_folder / "planned.sbatch"
        script.write_text(text)
        self.expect_digits(self.expect_end(self.submit(script, DIGITS, "--epochs", 2), 0))

    def test_permanent_pool(self):
        key, reducers = self.job_folder / "pool.key", self.job_folder / "reducers"
        self.assertIn("sbatch pool.sbatch FOLDER", self.expect_end(self.submit("pool.sbatch"), 64))
        self.assertIn("cannot read the key", self.expect_end(self.submit("pool.sbatch", self.job_folder), 78))
        self.sluice("keygen", "--out", key)
        pool = self.submit("pool.sbatch", self.job_folder, options=[f"--export=ALL,{OTHER_POOL}"])
        until("the list of the pool exists", reducers.exists)
        self.assertEqual(reducers.read_text(), "cpu1:7470\ncpu2:7470\n")

        for name in ("first", "second"):
            self.sluice("keygen", "--job", name, "--key-file", key, "--out", self.job_folder / f"{name}.token")
        train = ["train.sbatch", reducers, self.job_folder / "first.token", DIGITS, "--epochs", 2]
        self.expect_digits(self.expect_end(self.submit(*train, options=["--job-name=first", f"--export=ALL,{OTHER_POOL}"]), 0))
        self.expect_end(self.submit(*train, options=["--job-name=second"]), 69)  # the token belongs to the job "first"

        self.cluster.run("scancel", "--batch", "--signal=TERM", str(pool))
        output = self.expect_end(pool, 0)
        self.expect_served_sessions(2, output)
        self.assertNotRegex(output, r"STEP .*CANCELLED")  # the job is, by the line above; its reducers drain
        self.assertFalse(reducers.exists())


if __name__ == "__main__":
    deploy_case.capabilities.enter_namespaces()
    deploy_case.main(*slurm_cluster.NEEDS)
