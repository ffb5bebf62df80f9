"""Ray's TorchTrainer on a cluster of this machine: the losses are those of gloo, and Ray starts the workers again when one is killed."""

import re
import sys
from pathlib import Path

from job_test_bed import EXAMPLES, JobTest
from package_test_bed import ROOT, main
from uneven_training import BATCHES

SCRIPT = EXAMPLES / "ray" / "train_torch_trainer.py"
JOB = ROOT / "tests" / "frameworks" / "ray_job.py"
UNEVEN = JOB.with_name("ray_uneven.py")
RAY = Path(sys.executable).with_name("ray")
STEPS = 10
LOSS = re.compile(r"\brank (\d+) step (\d+) loss (\S+)$", re.MULTILINE)  # after "(RayTrainWorker pid=1) ", a marker that comes and goes


class Ray(JobTest):
    def setUp(self):
        """Starts a cluster of one node with four processors, however many this machine has."""
        super().setUp()
        self.attempts = self.folder / "attempts"
        self.common |= {"PYTHONUNBUFFERED": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0", "ATTEMPTS_FILE": str(self.attempts),
                        "RAY_ADDRESS": f"127.0.0.1:{self.reserve_port()}", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120", "RAY_AUTH_MODE": "disabled"}
        self.common["PYTHONPATH"] += f":{SCRIPT.parent}:{JOB.parent}"  # for ray_job.py, also in workers
        cluster = self.start_command(RAY, "start", "--head", "--block", "--num-cpus=4", "--object-store-memory=100000000", "--include-dashboard=false",
                                     "--node-ip-address=127.0.0.1", f"--port={self.common['RAY_ADDRESS'].split(':')[1]}", f"--temp-dir={self.folder}")
        printed = []
        while not printed or "Ray runtime started" not in printed[-1]:
            printed.append(cluster.stdout.readline())
            self.assertTrue(printed[-1], printed)

    def run_script(self, script, *arguments, **how):
        return self.run_command(sys.executable, "-B", script, *arguments, **how)

    def lose_worker(self, error, *arguments, expect=0):
        printed = self.run_command_with_lost_worker(error, sys.executable, "-B", JOB, *arguments, expect=expect)
        self.expect_no_process("RayTrainWorker")
        return printed

    def train(self, *arguments, workers=2):
        """Returns {(rank, step): loss}. The outputs of the workers come in any order."""
        losses = losses_of(self.run_script(SCRIPT, "--workers", workers, *arguments))
        self.assertEqual(len(losses), workers * STEPS)
        self.assertLess(losses[0, STEPS - 1], losses[0, 0])
        return losses

    def test_losses_are_those_of_gloo(self):
        losses, received = self.train(), self.reduced_bytes()
        print(losses[0, 0], losses[0, STEPS - 1], flush=True)
        self.assertGreater(received, 0)
        self.assertEqual(losses, self.train("--backend", "gloo"))
        losses, of_gloo = self.train(workers=4), self.train("--backend", "gloo", workers=4)
        self.assertGreater(self.reduced_bytes(), received)
        for key, loss in losses.items():
            self.assertAlmostEqual(loss, of_gloo[key], delta=1e-5)

    def test_a_worker_without_data_and_one_with_more_batches(self):
        found = []
        for backend in "sluice", "gloo":
            printed = self.run_script(UNEVEN, backend)
            found.append(sorted(set(re.findall(r"rank (\d) losses \[(.*)\] weights (\w+)$", printed, re.MULTILINE))))  # Ray prints some lines twice
            self.assertEqual([len(losses.split()) for _, losses, _ in found[-1]], [sum(batches) for batches in zip(*BATCHES)], printed)
            self.assertEqual(len({weights for _, _, weights in found[-1]}), 1, found)
        self.assertGreater(self.reduced_bytes(), 0)
        self.assertEqual(found[0], found[1])

    def test_a_killed_worker_is_started_again_from_the_last_checkpoint(self):
        printed = self.lose_worker(r"\[Rank 1 Error Snippet\]:\s+(\(.*\) )?A worker health check failed", "SIGKILL", 1)
        self.assertEqual(len(self.attempts.read_text().splitlines()), 2)
        self.assertGreater(self.reduced_bytes(), 0)
        pids = {rank: set(re.findall(rf"pid=(\d+)\) rank {rank} step 0 ", printed)) for rank in range(2)}
        self.assertEqual([len(pids[rank]) for rank in range(2)], [1, 1], printed)  # the second attempt begins later
        self.assertEqual(losses_of(printed), self.train("--backend", "gloo"))

    def test_a_worker_that_stops_ends_the_job_with_its_rank(self):
        """Ray waits 10 minutes for such a worker; the reducer counts it as lost after its peer timeout. The controller of Ray logs the error; fit() raises it
        later, because Ray waits for the end of the process groups first."""
        error = r"ray.train.WorkerGroupError: Training failed due to worker errors:\s+(\(.*\) )?\[Rank 0 Error Snippet\]"
        printed = self.lose_worker(error, "SIGSTOP", 1, "--restarts", 0, expect=1)
        self.assertRegex(printed, rf"\n{error}")
        self.assertRegex(printed, "DistBackendError: .*rank 1 ")  # Ray's own message has only the begin and the end of a long one


def losses_of(printed):
    return {(int(rank), int(step)): float(loss) for rank, step, loss in LOSS.findall(printed)}


if __name__ == "__main__":
    main()
