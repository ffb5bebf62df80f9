"""A Slurm cluster on this machine: munge, a controller and nodes.

Each node has its own network namespace, host name and /etc/hosts. Therefore the job scripts run without changes, with their
fixed ports. The cluster needs the capabilities in NEEDS. All its files are in one folder.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/test_network"))

from deploy_case import DEADLINE_S, until  # noqa: E402
from test_network import TestNetwork  # noqa: E402

GPU, CPU, CONTROLLER = ["gpu1", "gpu2"], ["cpu1", "cpu2"], "ctl"
NEEDS = ["network-namespaces", "bind-mounts",
         *(f"program:{name}" for name in ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "scancel"))]
PATH = "/usr/sbin:/sbin:" + os.environ["PATH"]

# bf_interval: heterogeneous jobs wait for the backfill scheduler, which runs every 30 s by default.
# KillOnBadExit and WaitTime: a site may have these values, and the scripts must work with them.
# Empty files replace the devices of GPUs.
CONFIGURATION = """ClusterName=sluice
SlurmctldHost={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
KillWait=20
KillOnBadExit=1
WaitTime=1
MailProg=/bin/true
NodeName={gpu} CPUs=2 Gres=gpu:8
NodeName={cpu} CPUs=2
PartitionName=gpu Nodes={gpu} Default=YES
PartitionName=cpu Nodes={cpu}
"""


class Cluster:
    def __init__(self, folder, program_folder):
        """`folder` must be empty. It contains all files of the cluster, and all nodes share it. `program_folder` is the first entry of
        PATH in each job."""
        self.folder = Path(folder)
        self.network = TestNetwork([CONTROLLER, *GPU, *CPU], "0")
        self.processes = []
        self.environment = {"PATH": f"{program_folder}:{PATH}", "SLURM_CONF": str(self.folder / "slurm.conf"), "HOME": str(self.folder), "LANG": "C"}

    def __enter__(self):
        try:
            self.network.__enter__()
            self._write_files()
            self._start_munge()
            self._start(CONTROLLER, "slurmctld", "-D")
            for node in GPU + CPU:
                self._start(node, "slurmd", "-D", "-N", node)
            until("all nodes are idle", self._all_idle)
        except BaseException:
            print(self.logs(), file=sys.stderr)
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Slurm starts job steps in other process groups. Kill the remaining processes of each network namespace.
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for host in self.network.hosts:
            for pid in self.processes_at(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.network.__exit__()

    def processes_at(self, host):
        listed = subprocess.run(["ip", "netns", "pids", self.network.namespace(host)], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return [int(pid) for pid in listed.stdout.split()]

    def _write_files(self):
        addresses = "".join(f"{self.network.address(host)} {host}\n" for host in self.network.hosts)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{addresses}", encoding="ascii")
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(folder=self.folder, controller=CONTROLLER, gpu="gpu[1-2]", cpu="cpu[1-2]"), encoding="ascii")
        (self.folder / "gres.conf").write_text(f"NodeName=gpu[1-2] Name=gpu File={self.folder}/device[0-7]\n", encoding="ascii")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="ascii")
        for number in range(8):
            (self.folder / f"device{number}").touch()
        for name in ["state", *(f"spool.{node}" for node in GPU + CPU)]:
            (self.folder / name).mkdir()

    def _start_munge(self):
        key = self.folder / "munge.key"
        subprocess.run(["mungekey", "-c", "-k", key], check=True, env=self.environment, capture_output=True, timeout=DEADLINE_S)
        command = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munge.pid",
                   f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed"]
        with open(self.folder / "munged.log", "wb") as log:
            self.processes.append(subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        until("munge has created its socket", (self.folder / "munge.socket").exists)

    def command_at(self, host, command):
        """Returns `command` as a command that runs at a host: in its network, with its host name and /etc/hosts of the cluster."""
        enter = f"hostname {host} && mount --bind {self.folder}/hosts /etc/hosts && exec \"$@\""
        return self.network.command_at(host, ["unshare", "--uts", "sh", "-c", enter, "sh", *command])

    def _start(self, host, *command):
        with open(self.folder / f"{host}.log", "wb") as log:
            self.processes.append(subprocess.Popen(self.command_at(host, command), env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=log))

    def run(self, *command, check=True, cwd=None):
        """Runs a command at the host of the controller and returns its stdout."""
        done = subprocess.run(self.command_at(CONTROLLER, command), env=self.environment, cwd=cwd or self.folder, capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _all_idle(self):
        if any(process.poll() is not None for process in self.processes):
            raise AssertionError("a daemon has exited")
        return self.run("sinfo", "-h", "-o", "%n %t", check=False).split()[1::2] == ["idle"] * len(GPU + CPU)

    def resume_node(self, node):
        self.run("scontrol", "update", f"nodename={node}", "state=resume")
        until("all nodes are idle", self._all_idle)

    def submit(self, *arguments, cwd=None):
        """Runs sbatch with these arguments and returns the number of the job."""
        return int(self.run("sbatch", "--parsable", *map(str, arguments), cwd=cwd).split(";")[0])

    def job(self, number):
        """Returns the fields that scontrol shows for a job or for the first group of a heterogeneous job."""
        lines = self.run("scontrol", "-o", "show", "job", number).splitlines()
        return dict(word.split("=", 1) for word in lines[0].split() if "=" in word)

    def wait_for_end(self, number):
        """Waits until the job ends. Returns its exit code, or 128 + signal if a signal ended it."""
        def code():
            job = self.job(number)
            return job["ExitCode"] if job["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING") else None
        status, ended_by = map(int, until(f"job {number} ends", code).split(":"))
        return 128 + ended_by if ended_by else status

    def logs(self):
        return "".join(f"== {path.name}\n{path.read_text(errors='replace')[-4000:]}\n" for path in sorted(self.folder.glob("*.log")))
