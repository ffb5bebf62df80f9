"""A Slurm cluster on this machine: munge, a controller and nodes, each node a host of its own (network namespace, host name, /etc/hosts), so that scripts run
here as they ship, ports included. Needs the capabilities of NEEDS: Debian's slurmctld, slurmd, slurm-client and munge, and network namespaces. All state is in one folder and ends with the cluster."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/netbed"))

from bed import Bed  # noqa: E402
from deploy_case import DEADLINE_S, until  # noqa: E402

GPU, CPU, CONTROLLER = ["gpu1", "gpu2"], ["cpu1", "cpu2"], "ctl"
NEEDS = ["network-namespaces", "bind-mounts",
         *(f"program:{name}" for name in ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "scancel"))]
PATH = "/usr/sbin:/sbin:" + os.environ["PATH"]

# bf_interval: heterogeneous jobs wait for the backfill scheduler, which looks every 30 s by default. What stands for GPUs are empty files.
# KillOnBadExit, WaitTime: what a site may have that scripts must not rely on being otherwise.
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
KillWait=2
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
        """`folder`, which is empty, keeps everything, and is what all nodes share; `program_folder` is first in PATH of every job."""
        self.folder = Path(folder)
        self.bed = Bed([CONTROLLER, *GPU, *CPU], "0")
        self.processes = []
        self.environment = {"PATH": f"{program_folder}:{PATH}", "SLURM_CONF": str(self.folder / "slurm.conf"), "HOME": str(self.folder), "LANG": "C"}

    def __enter__(self):
        try:
            self.bed.__enter__()
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
        # Steps are the nodes' children in groups of their own, so what a job left is ended by its namespace's list.
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for host in self.bed.hosts:
            for pid in self.processes_at(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.bed.__exit__()

    def processes_at(self, host):
        listed = subprocess.run(["ip", "netns", "pids", self.bed.namespace(host)], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return [int(pid) for pid in listed.stdout.split()]

    def _write_files(self):
        addresses = "".join(f"{self.bed.address(host)} {host}\n" for host in self.bed.hosts)
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
        words = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munge.pid",
                 f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed"]
        with open(self.folder / "munged.log", "wb") as log:
            self.processes.append(subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        until("munge answers", (self.folder / "munge.socket").exists)

    def words(self, host, words):
        """`words` at a host: with its name and the cluster's /etc/hosts, beside its network."""
        enter = f"hostname {host} && mount --bind {self.folder}/hosts /etc/hosts && exec \"$@\""
        return self.bed.words(host, ["unshare", "--uts", "sh", "-c", enter, "sh", *words])

    def _start(self, host, *words):
        with open(self.folder / f"{host}.log", "wb") as log:
            self.processes.append(subprocess.Popen(self.words(host, words), env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def run(self, *words, check=True, cwd=None):
        """A command at the controller's host; its output."""
        done = subprocess.run(self.words(CONTROLLER, words), env=self.environment, cwd=cwd or self.folder, capture_output=True, text=True, timeout=DEADLINE_S,
                              check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _all_idle(self):
        if any(process.poll() is not None for process in self.processes):
            raise AssertionError("a daemon has ended")
        return self.run("sinfo", "-h", "-o", "%n %t", check=False).split()[1::2] == ["idle"] * len(GPU + CPU)

    def bring_back(self, node):
        self.run("scontrol", "update", f"nodename={node}", "state=resume")
        until("all nodes are idle", self._all_idle)

    def submit(self, *words, cwd=None):
        """sbatch; the job's number."""
        return int(self.run("sbatch", "--parsable", *map(str, words), cwd=cwd).split(";")[0])

    def job(self, number):
        """What scontrol says of a job, or of a heterogeneous job's first group."""
        lines = self.run("scontrol", "-o", "show", "job", number).splitlines()
        return dict(word.split("=", 1) for word in lines[0].split() if "=" in word)

    def end_of(self, number):
        """Waits for the job's end; its exit code, 128 + signal where one ended it."""
        def code():
            job = self.job(number)
            return job["ExitCode"] if job["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING") else None
        status, ended_by = map(int, until(f"job {number} ends", code).split(":"))
        return 128 + ended_by if ended_by else status

    def logs(self):
        return "".join(f"== {path.name}\n{path.read_text(errors='replace')[-4000:]}\n" for path in sorted(self.folder.glob("*.log")))
