"""Spark's distributors of PyTorch and TensorFlow on a cluster of two executors, which are processes of this machine."""

import json
import sys
from pathlib import Path

from job_test_bed import EXAMPLES, ROOT, JobTest
from package_test_bed import main
from uneven_training import BATCHES

sys.path.insert(0, str(ROOT / "tests" / "capabilities"))

from capabilities import require  # noqa: E402

JOB = ROOT / "tests" / "frameworks" / "spark_job.py"
SUBMIT = Path(sys.executable).with_name("spark-submit")


class Spark(JobTest):
    def setUp(self):
        super().setUp()
        self.common |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(self.folder), "SPARK_WORKER_DIR": str(self.folder),
                        "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        self.common["PYTHONPATH"] += f":{JOB.parent}"  # for the module tensorflow_rank, in executors

    def submission(self, script, *arguments, executors=2):
        return (SUBMIT, "--master", f"local-cluster[{executors},1,1024]", "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
                "--conf", f"spark.sql.warehouse.dir={self.folder}", "--conf", "spark.log.level=ERROR",
                "--conf", f"spark.executorEnv.SLUICE_REDUCERS={self.reducer}", script, *arguments)

    def submit(self, script, *arguments, **how):
        return self.run_command(*self.submission(script, *arguments, **how))

    def lose_worker(self, error, *arguments):
        printed = self.run_command_with_lost_worker(error, *self.submission(JOB, *arguments), expect=1)
        self.expect_no_process()
        return printed

    def train_torch(self, *arguments, executors=2):
        """Returns the lines with the losses of rank 0, of which the function returns the last one to the driver."""
        printed = self.submit(EXAMPLES / "spark" / "train_torch.py", "--executors", executors, *arguments, executors=executors)
        returned, = self.lines(printed, r"loss \S+")
        losses = self.lines(printed)
        self.expect_training(losses)
        self.assertEqual(returned.split()[-1], losses[-1].split()[-1])
        return losses

    def test_pytorch_has_the_bits_of_gloo(self):
        losses = self.train_torch()
        print(losses[0], losses[-1], flush=True)
        self.assertGreater(self.reduced_bytes(), 0)
        self.assertEqual(losses, self.train_torch("--backend", "gloo"))

    def test_pytorch_on_four_executors(self):
        losses = self.train_torch(executors=4)
        self.assertGreater(self.reduced_bytes(), 0)
        for ours, gloos in zip(losses, self.train_torch("--backend", "gloo", executors=4), strict=True):
            self.assertAlmostEqual(float(ours.split()[-1]), float(gloos.split()[-1]), delta=1e-5, msg=losses)

    def test_an_executor_without_data_and_one_with_more_batches(self):
        found = [json.loads(self.lines(self.submit(JOB, "uneven", backend), r"\[.*\]")[-1]) for backend in ("sluice", "gloo")]
        self.assertGreater(self.reduced_bytes(), 0)
        losses, hashes = found[0]
        self.assertEqual((len(losses), len(set(hashes))), (sum(batches[0] for batches in BATCHES), 1), found)
        self.assertEqual(found[0], found[1])

    def test_tensorflow_has_the_losses_of_the_strategy(self):
        printed = self.submit(EXAMPLES / "spark" / "train_tensorflow.py")
        losses = [float(line.split()[-1]) for line in self.lines(printed)]
        self.assertGreater(self.reduced_bytes(), 0)
        mirrored = json.loads(self.lines(self.submit(JOB, "mirrored"), r"\[.*\]")[0])
        self.assertEqual(len(losses), len(mirrored))
        worst = max(abs(loss - other) / other for loss, other in zip(losses, mirrored))
        print(f"{len(losses)} losses, {losses[0]} to {losses[-1]}, largest relative difference {worst:.2g}", flush=True)
        self.assertLess(losses[-1], losses[0] / 5)
        self.assertLessEqual(worst, 1e-6)

    def test_a_killed_worker_ends_the_job(self):
        """Spark ends the others first: a lost task of a barrier stage ends the stage."""
        for kind in "torch", "tensorflow":
            with self.subTest(kind):
                self.lose_worker(r"barrier task ResultTask\(\d+, 1\) finished unsuccessfully", kind, "SIGKILL")

    def test_a_worker_that_stops_ends_the_job_with_its_rank(self):
        for kind, error in ("torch", "DistBackendError: .*rank 1 "), ("tensorflow", "sluice.errors.Lost: .*rank 1 "):
            with self.subTest(kind):
                printed = self.lose_worker(r"barrier task ResultTask\(\d+, 0\) finished unsuccessfully", kind, "SIGSTOP")
                self.assertRegex(printed, error)


if __name__ == "__main__":
    require("program:java")
    main()
