"""Plays jobs of Vertex AI with four pools on loopback: the processes of the job that `sluice plan --format gcloud` prints, with the variables that
the service sets, train examples/vertex/train_digits.py through reducers to models that an evaluator reads.

Vertex AI itself does not run here. It ends a job with its chief, and then stops the replicas that still run."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S, DeployTest, program, until

from sluice_process import environment  # noqa: E402: deploy_case says where it is

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))

try:
    import yaml
except ImportError:
    yaml = None

VENV = "build/python-venv"
PLAN = ("plan", "--workers", "3", "--reducers", "2", "--worker-type", "a2-highgpu-1g", "--format", "gcloud", "--name", "digits")
EVALUATORS = """  - machineSpec:
      machineType: n1-standard-8
    replicaCount: 1
    containerSpec:
      imageUri: "$WORKER_IMAGE"
      command: [sluice, auto, --, $TRAINING]
      env:
        - {name: SLUICE_KEY_FILE, value: "$KEY_FILE"}
"""
POOLS = ("workerpool0", "workerpool1", "workerpool2", "workerpool3")
TF_NAMES = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps"}  # TF_CONFIG never lists evaluators
JOB_S = 4 * DEADLINE_S  # of processes that import torch


class Job:
    """One job, or one trial of a hyperparameter search: processes by (pool, index)."""

    def __init__(self, test, pools, trial=None, arguments=(), change=lambda spec: spec, **extra):
        self.test, self.pools, self.trial = test, pools, trial
        self.models = test.folder / f"models-{trial}-{len(test.jobs)}"
        self.models.mkdir()
        self.cluster = {name: [f"127.0.0.1:{test.reserve_port()}" for _ in range(pool["replicaCount"])] for name, pool in zip(POOLS, pools)}
        self.processes, self.logs = {}, {}
        test.jobs.append(self)
        for name, pool in zip(POOLS, pools):
            container = pool["containerSpec"]
            for index in range(pool["replicaCount"]):
                log = test.folder / f"{len(test.jobs)}-{name}-{index}"
                env = {entry["name"]: entry["value"] for entry in container["env"]} | self.variables(name, index, change) | extra
                # Vertex AI appends a trial's hyperparameters to the arguments of every container.
                command = [*container["command"], *container.get("args", []), *arguments]
                self.processes[name, index] = test.start_process(command, log, environment(test.common | env))
                self.logs[name, index] = log

    def variables(self, name, index, change):
        trial = {} if self.trial is None else {"trial": str(self.trial)}
        job = {"workerPoolSpecs": self.pools}
        spec = {"cluster": self.cluster, "environment": "cloud", "task": {"type": name, "index": index, **trial}, "job": job}
        config = {"cluster": {TF_NAMES[each]: hosts for each, hosts in self.cluster.items() if each in TF_NAMES}, "environment": "cloud", "job": job,
                  "task": {"type": TF_NAMES.get(name, "evaluator"), "index": index, "cloud": "x1", **trial}}
        text = change(spec)
        return {"CLUSTER_SPEC": text if isinstance(text, str) else json.dumps(text), "TF_CONFIG": json.dumps(config), "CLOUD_ML_JOB_ID": "1234567890",
                "CLOUD_ML_PROJECT_ID": "42", "AIP_MODEL_DIR": str(self.models), **({"CLOUD_ML_TRIAL_ID": str(self.trial)} if trial else {})}

    def printed(self, name, index=0):
        return self.logs[name, index].read_text()

    def ends(self, name, index=0):
        """Waits for a process and returns its exit code."""
        return self.processes[name, index].wait(JOB_S)

    def expect_end(self):
        """Checks that all processes end with 0: the reducers when the service stops them."""
        for name, index in self.processes:
            if name != "workerpool2":
                self.test.assertEqual(self.ends(name, index), 0, self.everything())
        for index, address in enumerate(self.cluster["workerpool2"]):
            status = self.test.status(address, "--key-file", self.test.key)
            self.test.assertGreater(status["data"]["bytes_in"], 0)
            self.test.assertGreaterEqual(status["sessions"]["completed"], 1)
            self.processes["workerpool2", index].send_signal(signal.SIGTERM)
            self.test.assertEqual(self.ends("workerpool2", index), 0, self.everything())

    def everything(self):
        return "\n".join(f"{key}: {log.read_text()}" for key, log in self.logs.items())

    def model(self):
        """Returns a hash of the last model's parameters."""
        code = "import sys, torch; sys.stdout.buffer.write(b''.join(each.numpy().tobytes() for each in torch.load(sys.argv[1]).values()))"
        values = subprocess.run([self.test.interpreter, "-c", code, self.models / "epoch-3.pt"], capture_output=True, check=True, timeout=JOB_S).stdout
        return hashlib.sha256(values).hexdigest()


@unittest.skipIf(yaml is None, "needs python-module:yaml: python3-yaml is not installed")
class Vertex(DeployTest):
    def setUp(self):
        super().setUp()
        self.interpreter = deploy_case.ROOT / VENV / "bin/python"
        if not (deploy_case.ROOT / VENV / "has-torch").exists():
            self.skipTest(f"needs pypi: {VENV} has no torch")
        self.jobs, self.key = [], self.make_key()
        self.common = {"PATH": f"{self.interpreter.parent}:{program().parent}:{os.environ['PATH']}", "PYTHONPATH": self.package(), "OMP_NUM_THREADS": "1",
                       "GLOO_SOCKET_IFNAME": "lo", "SLUICE_LIBRARY": str(deploy_case.BUILD / "lib/libsluice.so"), "PYTHONDONTWRITEBYTECODE": "1"}

    def package(self):
        """Returns the folder of the installed package: the backend has the name "sluice" there without an import."""
        import package_test_bed

        os.environ["SLUICE_LIBRARY"] = str(deploy_case.BUILD / "lib/libsluice.so")
        return str(package_test_bed.unpack_wheel(self.folder, self.interpreter))

    def pools(self, change=lambda script: script):
        """Runs the script that sluice plan prints, with a pool of evaluators and a gcloud that only prints. Returns its pools."""
        script = self.run_sluice(*PLAN).stdout
        head, mark, tail = script.partition("JOB\ngcloud")
        self.assertTrue(mark, script)
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "gcloud").write_text("#!/bin/sh\nexit 0\n")
        (tools / "gcloud").chmod(0o755)
        filled = {"REGION": "europe-west4", "WORKER_IMAGE": "w:1", "REDUCER_IMAGE": "r:1", "KEY_FILE": str(self.key),
                  "TRAINING": f"python, {deploy_case.ROOT}/examples/vertex/train_digits.py", "PATH": f"{tools}:{os.environ['PATH']}"}
        self.command("bash", self.write("job.sh", change(head + EVALUATORS + mark + tail)), cwd=self.folder, env=environment(filled))
        pools = yaml.safe_load((self.folder / "digits.yaml").read_text())["workerPoolSpecs"]
        self.assertEqual([pool["replicaCount"] for pool in pools], [1, 2, 2, 1])
        return pools

    def test_a_job_of_four_pools_and_two_trials_at_once(self):
        pools = self.pools()
        job = Job(self, pools)
        job.expect_end()
        alone = job.model()
        accuracies = re.findall(r"^epoch-\d accuracy (\S+)$", job.printed("workerpool3"), re.MULTILINE)
        self.assertEqual(len(accuracies), 4)
        self.assertGreater(float(accuracies[-1]), 0.9)
        self.assertIn("role unknown, 2 reducers, 3 workers, source cluster-spec, job 1234567890; task is neither", job.printed("workerpool3"))
        self.assertIn("role reducer 1, 2 reducers, 3 workers, source cluster-spec, job 1234567890", job.printed("workerpool2", 1))

        unreduced = Job(self, pools[:2])  # without pool 2 the workers sum by themselves
        for name, index in unreduced.processes:
            self.assertEqual(unreduced.ends(name, index), 0, unreduced.everything())
            self.assertIn("running python without reducers", unreduced.printed(name, index))
            self.assertIn("cluster-spec: CLUSTER_SPEC:/cluster/workerpool2 is missing or empty", unreduced.printed(name, index))
        self.assertEqual(unreduced.model(), alone)

        trials = [Job(self, pools, trial=number + 1, arguments=[f"--learning-rate={rate}"]) for number, rate in enumerate(("0.05", "0.02"))]
        for number, trial in enumerate(trials):
            trial.expect_end()
            self.assertIn(f"job 1234567890.{number + 1}; trial {number + 1}", trial.printed("workerpool0"))
        self.assertEqual([trial.model() == alone for trial in trials], [True, False], "the bits of a trial depend on another trial")

    def test_two_trials_share_a_standing_pool(self):
        reducer, address = self.start_reducer("--key-file", self.key)
        trials = [Job(self, self.pools()[:3], trial=number, arguments=["--learning-rate=0.05"], SLUICE_REDUCERS=address) for number in (1, 2)]
        for trial in trials:
            for name, index in trial.processes:  # with a list of reducers those of pool 2 run their command, true
                self.assertEqual(trial.ends(name, index), 0, trial.everything())
            self.assertIn("source static, job 1234567890", trial.printed("workerpool0"))
            self.assertIn("SLUICE_REDUCERS replaces the 2 reducers of cluster-spec", trial.printed("workerpool2", 1))
        self.assertEqual(trials[0].model(), trials[1].model())
        self.assertGreater(self.status(address, "--key-file", self.key)["data"]["bytes_in"], 0)
        self.expect_drained(reducer)

    def test_a_worker_dies(self):
        job = Job(self, self.pools())
        until("the chief has trained an epoch", lambda: "epoch-0.pt is saved" in job.printed("workerpool0") or None, job.processes["workerpool0", 0])
        job.processes["workerpool1", 1].kill()
        for name, index in (("workerpool0", 0), ("workerpool1", 0)):
            self.assertEqual(job.processes[name, index].wait(DEADLINE_S), 1, job.everything())
            self.assertRegex(job.printed(name, index), "rank 2")
        for index in range(2):
            job.processes["workerpool2", index].send_signal(signal.SIGTERM)
            self.assertEqual(job.ends("workerpool2", index), 0, job.everything())

    def test_specifications_that_are_wrong(self):
        pools = self.pools()
        malformed = Job(self, pools, change=lambda spec: json.dumps(spec)[:40])
        for name, index in malformed.processes:
            self.assertEqual(malformed.ends(name, index), 78)
            self.assertRegex(malformed.printed(name, index), r"^sluice: CLUSTER_SPEC:1:41: unexpected end of JSON\n$")
        absent = Job(self, [*pools[:2], {"replicaCount": 0, "containerSpec": pools[2]["containerSpec"]}], SLUICE_DISCOVERY="cluster-spec")
        for name, index in absent.processes:
            self.assertEqual(absent.ends(name, index), 69)
            self.assertIn("no reducers found; cluster-spec: CLUSTER_SPEC:/cluster/workerpool2 is missing or empty", absent.printed(name, index))


if __name__ == "__main__":
    if shutil.which("bash") is None:
        deploy_case.capabilities.require("program:bash")
    deploy_case.main()
