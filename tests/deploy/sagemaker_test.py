"""Plays jobs of SageMaker with hosts in network namespaces: their names, resourceconfig.json in /opt/ml, and the variables and commands of
sagemaker-training-toolkit 4.8 and sagemaker-tensorflow-training-toolkit. SageMaker itself does not run here."""

import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S, DeployTest, program, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/test_network"))

from launchers_test import LAUNCHERS, commands  # noqa: E402
from test_network import TestNetwork  # noqa: E402

from sluice_process import children_of  # noqa: E402

VENV = "build/python-venv"
HOSTS = [f"algo-{number}" for number in range(1, 5)]
DIGITS = "deploy/launchers/digits.sh"
JOB_S = 4 * DEADLINE_S  # of processes that import torch
# Runs a command as a host: HOSTS-FILE NAME ML-FOLDER COMMAND...
AS_HOST = 'mount --bind "$0" /etc/hosts && hostname "$1" && mount -t tmpfs tmpfs /opt && cp -a "$2" /opt/ml && shift 2 && exec "$@"'


def unchanged(value):
    return value if isinstance(value, str) else json.dumps(value)


class SageMaker(DeployTest):
    def setUp(self):
        super().setUp()
        self.network = self.enterContext(TestNetwork(HOSTS, "0"))
        names = "".join(f"{self.network.address(host)} {host}\n" for host in HOSTS)
        self.hosts = self.write("hosts", f"127.0.0.1 localhost\n{names}")
        self.path = f"{deploy_case.ROOT / VENV / 'bin'}:{program().parent}:{os.environ['PATH']}"

    def need_torchrun(self):
        if not (deploy_case.ROOT / VENV / "has-torch").exists():
            self.skipTest(f"needs pypi: {VENV} has no torch")

    def cluster(self, groups):
        """Writes /opt/ml of each host of {group: hosts}. Returns the variables of the toolkit by host."""
        key, variables = self.make_key(), {}
        hosts = sorted(host for members in groups.values() for host in members)
        listed = [{"instance_group_name": name, "instance_type": "ml.c5n.18xlarge", "hosts": members} for name, members in groups.items()]
        for name, members in groups.items():
            for host in members:
                config = {"current_host": host, "current_instance_type": "ml.c5n.18xlarge", "current_group_name": name, "hosts": hosts,
                          "instance_groups": listed, "network_interface_name": "eth0"}
                (self.folder / host / "input/config").mkdir(parents=True)
                (self.folder / host / "input/config/resourceconfig.json").write_text(json.dumps(config))
                (self.folder / host / "input/data/sluice").mkdir(parents=True)
                shutil.copy2(key, self.folder / host / "input/data/sluice")
                values = {"HOSTS": hosts, "CURRENT_HOST": host, "NETWORK_INTERFACE_NAME": "eth0", "NUM_GPUS": "0", "NUM_CPUS": "2", "RESOURCE_CONFIG": config,
                          "CURRENT_INSTANCE_TYPE": "ml.c5n.18xlarge", "CURRENT_INSTANCE_GROUP": name, "CURRENT_INSTANCE_GROUP_HOSTS": members,
                          "INSTANCE_GROUPS": list(groups), "INSTANCE_GROUPS_DICT": {group["instance_group_name"]: group for group in listed},
                          "IS_HETERO": len(groups) > 1, "MODEL_DIR": "/opt/ml/model", "CHANNEL_SLUICE": "/opt/ml/input/data/sluice"}
                variables[host] = {f"SM_{variable}": unchanged(value) for variable, value in values.items()}
                variables[host] |= {"TRAINING_JOB_NAME": "digits-2026-11-30", "PATH": self.path, "HOME": str(self.folder), "GLOO_SOCKET_IFNAME": "eth0"}
        return variables

    def command_at(self, host, *command):
        return self.network.command_at(host, ["unshare", "--uts", "sh", "-c", AS_HOST, self.hosts, host, self.folder / host, *command])

    def start_at(self, host, variables, *command, name=""):
        """Starts a command at a host with these variables only. Returns (process, log)."""
        log = self.folder / f"{host}{name}.log"
        return self.start_process(self.command_at(host, *command), log, variables), log

    def start_sh(self, command):
        """Writes start.sh of the page, which runs the command where the page runs sagemaker.sh."""
        lines = commands(LAUNCHERS)
        first = next(i for i, line in enumerate(lines) if line.startswith("export SLUICE_KEY_FILE=/opt/ml"))
        self.assertTrue(lines[first + 1].startswith("exec sluice auto -- "), lines[first + 1])
        text = "\n".join(["#!/usr/bin/env bash", f"cd {deploy_case.ROOT}", lines[first], f"exec sluice auto --idle-timeout 1s -- {command}", ""])
        path = self.write("start.sh", text)
        path.chmod(0o755)
        return path

    def expect_ends(self, running):
        printed = {}
        for process, log in running:
            code = process.wait(JOB_S)
            printed[log.stem] = log.read_text()
            self.assertEqual(code, 0, "\n".join(f"{each.stem}: {each.read_text()}" for _, each in running))
        return printed

    def expect_training(self, output, workers, reducers):
        alone = self.run_json("demo", "digits", "--epochs", "3", "--workers", workers, "--single")
        self.assertGreater(alone["held_out_accuracy"], 0.9)
        self.assertRegex(output, rf"weights +bit-identical on {workers} workers, hash {alone['weights_hash']}")
        shares = dict(re.findall(r"reducer +(\S+): +([\d.]+) % of the bytes", output))
        self.assertEqual(set(shares), set(reducers))
        self.assertGreater(min((float(share) for share in shares.values()), default=1), 0, output)

    def test_script_mode_with_a_group_of_reducers(self):
        self.need_torchrun()
        variables = self.cluster({"worker": ["algo-1", "algo-3"], "reducer": ["algo-2", "algo-4"]})
        script = self.start_sh(f"deploy/launchers/sagemaker.sh --nproc-per-node 1 --no-python {DIGITS} --epochs 3")
        printed = self.expect_ends([self.start_at(host, variables[host], script) for host in HOSTS])
        self.expect_training(printed["algo-1"], 2, ["algo-2:7470", "algo-4:7470"])
        for host in ("algo-2", "algo-4"):
            self.assertIn("job finished: 2 of 2 expected ranks joined", printed[host])
        self.assertIn("source sagemaker, job digits-2026-11-30; instance group worker", printed["algo-3"])

    def test_a_worker_dies(self):
        self.need_torchrun()
        variables = self.cluster({"worker": ["algo-1", "algo-3"], "reducer": ["algo-2"]})
        script = self.start_sh(f"deploy/launchers/sagemaker.sh --nproc-per-node 1 --no-python {DIGITS} --epochs 10000")
        running = {host: self.start_at(host, variables[host], script) for host in HOSTS[:3]}
        until("two epochs are over", lambda: re.search(r"epoch +2/10000", running["algo-1"][1].read_text()), running["algo-1"][0])
        [rank] = [pid for pid in children_of(running["algo-3"][0].pid) if "digits" in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(rank, signal.SIGKILL)
        codes = {host: process.wait(DEADLINE_S) for host, (process, _) in running.items()}
        printed = {host: log.read_text() for host, (_, log) in running.items()}
        # torchrun exits with 1 whatever its rank exits with. Only a reducer of a job that did not start would exit with an error.
        self.assertEqual(codes, {"algo-1": 1, "algo-2": 0, "algo-3": 1}, printed)
        self.assertRegex(printed["algo-1"], r"sluice: .*rank 1")
        self.assertIn("job finished: 2 of 2 expected ranks joined", printed["algo-2"])

    def test_a_parameter_server_on_each_instance(self):
        """The toolkit's TF_CONFIG calls TensorFlow's servers on each host `ps`, and the environment "cloud", as Vertex AI does."""
        self.need_torchrun()
        pair = HOSTS[:2]
        variables = self.cluster({"homogeneousCluster": pair})
        cluster = {"master": ["algo-1:2222"], "ps": [f"{host}:2223" for host in pair], "worker": ["algo-2:2222"]}
        served = "import socket; s = socket.create_server(('', 2223)); print('listens', flush=True); s.accept(); print('a client came', flush=True)"
        servers = [self.start_at(host, variables[host], sys.executable, "-c", served, name="-ps") for host in pair]
        for server, log in servers:
            until("the parameter server listens", lambda each=log: "listens" in each.read_text() or None, server)
        script = self.start_sh(f"deploy/launchers/sagemaker.sh --nproc-per-node 1 --no-python {DIGITS} --epochs 3")
        sent = self.network.sent_bytes(pair)
        running = []
        for index, host in enumerate(pair):
            task = {"type": "worker" if index else "master", "index": 0}
            config = {"TF_CONFIG": json.dumps({"cluster": cluster, "environment": "cloud", "task": task})}
            running.append(self.start_at(host, variables[host] | config, script))
        printed = self.expect_ends(running)
        self.expect_training(printed["algo-1"], 2, [])
        self.assertIn("tf-config: TF_CONFIG is SageMaker's, so ps are parameter servers of TensorFlow", printed["algo-1"])
        self.assertGreater(self.network.sent_bytes(pair) - sent, 1e6, "the gradients did not pass the network")
        for server, log in servers:
            self.assertIsNone(server.poll(), log.read_text())
            self.assertNotIn("client", log.read_text())

    def test_mpi(self):
        """mpirun as the toolkit calls it, with the variables of its host for all ranks; ssh is replaced by a step into the host's namespaces."""
        deploy_case.need("mpirun", "orted")
        variables = self.cluster({"worker": ["algo-1", "algo-3"], "reducer": ["algo-2", "algo-4"]})
        script = self.start_sh(f"{DIGITS} --epochs 3")
        enter = self.command_at("algo-3", "env", "-i", f"PATH={self.path}", f"HOME={self.folder}", "sh", "-c")
        agent = self.write("enter_host", f"#!/bin/sh\n[ \"$1\" = algo-3 ] && shift && exec {shlex.join(map(str, enter))} \"$*\"\n")
        agent.chmod(0o755)
        exported = [word for name in variables["algo-1"] if name.startswith("SM_") for word in ("-x", name)]
        mpirun = ["mpirun", "--host", "algo-1,algo-3", "-np", "2", "--allow-run-as-root", "--tag-output", "-mca", "btl_tcp_if_include", "eth0",
                  "-mca", "oob_tcp_if_include", "eth0", "-mca", "plm_rsh_no_tree_spawn", "1", "-bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1",
                  "-mca", "btl", "^openib", "-mca", "orte_abort_on_non_zero_status", "1", "-mca", "plm_rsh_agent", agent, "-x", "NCCL_SOCKET_IFNAME=eth0",
                  "-x", "PATH", *exported, "/bin/sh", "-c", script]
        reducers = [self.start_at(host, variables[host], script) for host in ("algo-2", "algo-4")]
        printed = self.expect_ends([self.start_at("algo-1", variables["algo-1"], *mpirun), *reducers])
        self.assertIn("role worker 1", printed["algo-1"], "resourceconfig.json of the host has precedence over the variables of the first host")
        self.expect_training(re.sub(r"^\[.*?\]<stdout>:", "", printed["algo-1"], flags=re.MULTILINE), 2, ["algo-2:7470", "algo-4:7470"])


if __name__ == "__main__":
    deploy_case.capabilities.enter_namespaces()
    deploy_case.main("network-namespaces", "bind-mounts")
