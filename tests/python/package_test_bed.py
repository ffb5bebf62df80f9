"""Class PackageTest runs the package of the source tree with the built libsluice: reducers and ranks as processes."""

import argparse
import os
import subprocess
import sys
import threading
import time
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gpu_client" / "python"
LOST_S = 60  # from the end of a worker to the error of its framework, at most: a promise, not a limit for busy machines
# Runs a command with another /etc/hosts and another host name: HOSTS NAME COMMAND...
AS_HOST = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'
sys.path.insert(0, str(ROOT / "tests" / "functional"))

import sluice_process  # noqa: E402
from sluice_process import DEADLINE_S, SluiceTest, until  # noqa: E402


def main():
    """Entry point of every test file, which in_environment.py starts. Arguments: --sluice PROGRAM --library FILE, then those of unittest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", type=Path, required=True, help="the program under test")
    parser.add_argument("--library", type=Path, required=True, help="libsluice under test")
    arguments, rest = parser.parse_known_args()
    os.environ["SLUICE_LIBRARY"] = str(arguments.library.resolve())  # read by the first session of this process and of child processes
    os.environ["SLUICE_HOSTS"] = "off"  # ranks of this process stand for hosts, see sluice_process.environment
    os.environ["PYTHONFAULTHANDLER"] = "1"  # a process that a signal ends prints where it was
    sluice_process.PROGRAM = str(arguments.sluice.resolve())
    unittest.main(argv=[sys.argv[0], *rest], module="__main__", verbosity=2)


def variables(**extra):
    """Returns the environment of a process that imports the package. Each rank uses one thread, because ranks share the CPUs."""
    library = {name: value for name, value in os.environ.items() if name in ("SLUICE_LIBRARY", "SLUICE_CUDA_DRIVER")}
    return sluice_process.environment({"PYTHONPATH": str(PACKAGE / "src"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                                       "PYTHONDONTWRITEBYTECODE": "1", **library, **extra})


def open_session(reducers, **options):
    """Creates a session in this process with short timeouts; by default with one rank."""
    import sluice

    settings = {"session_id": os.urandom(16), "rank": 0, "ranks": 1, "join_timeout_ms": 20_000, "linger_ms": 2000, "resume_timeout_ms": 200}
    return sluice.Session(reducers, **{**settings, **options})


def wheel_environment():
    """Returns the environment in which the package's build backend puts the files of the build under test into a wheel, and builds nothing."""
    return {name: value for name, value in sluice_process.environment({"SLUICE_BUILD": str(Path(os.environ["SLUICE_LIBRARY"]).parents[1])}).items()
            if not name.startswith("PYTHON")}


def unpack_wheel(folder, interpreter=sys.executable):
    """Builds the wheel in `folder` with an interpreter that has setuptools, and unpacks it there. Returns the folder, for PYTHONPATH."""
    code = "import sys, wheel_backend; print(wheel_backend.build_wheel(sys.argv[1]))"
    made = subprocess.run([interpreter, "-B", "-c", code, folder], capture_output=True, text=True, timeout=60, check=True,
                          env={**wheel_environment(), "PYTHONPATH": str(PACKAGE)})
    with zipfile.ZipFile(folder / made.stdout.strip()) as wheel:
        wheel.extractall(folder / "site-packages")
    return folder / "site-packages"


class PackageTest(SluiceTest):
    def python(self, *arguments, **extra):
        """Starts a process of this interpreter, which is killed at the end of the test."""
        process = subprocess.Popen([sys.executable, "-B", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL, env=variables(**extra))
        self.addCleanup(kill, process)
        return process

    def start_script(self, *arguments, **extra):
        """Starts a script, as a process that is killed at the end of the test. TorchTest replaces this by a fork."""
        return self.python(*arguments, **extra)

    def start_ranks(self, script, ranks, reducers, *arguments, **extra):
        """Starts `script` of this folder as `ranks` processes, with the variables RANK, WORLD_SIZE, REDUCERS, SESSION_ID (hex) and STORE, the file store of
        torch.distributed, and those of `extra`."""
        common = {"WORLD_SIZE": str(ranks), "REDUCERS": reducers, "SESSION_ID": os.urandom(16).hex(),
                  "STORE": str(self.folder / f"store-{time.monotonic_ns()}"), **extra}
        path = Path(__file__).parent / script
        return [self.start_script(path, *arguments, RANK=str(rank), **common) for rank in range(ranks)]

    def outputs(self, processes, expect=0):
        """Waits for the processes, which must exit with `expect`; returns their outputs."""
        # Processes may import torch, which takes 5 s of processor time, beside other tests.
        deadline = time.monotonic() + 4 * DEADLINE_S
        printed = []
        for process in processes:
            try:
                printed.append(process.communicate(timeout=max(0.0, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                printed.append(process.communicate())
        codes = [process.returncode for process in processes]
        # The cause is often in the output of another rank than the one that hangs.
        self.assertEqual(codes, [expect] * len(codes), "\n".join(f"{process.args}\n{out}{error}" for process, (out, error) in zip(processes, printed)))
        return [out for out, _ in printed]

    def run_ranks(self, *arguments):
        return self.outputs(self.start_ranks(*arguments))

    def session_with(self, reducers, **options):
        """As open_session(); the end of the test closes the session."""
        session = open_session(reducers, **options)
        self.addCleanup(session.close)
        return session

    def by_ranks(self, ranks, reducers, work, **options):
        """Runs work(session) for each rank in a thread of this process; returns the results or exceptions."""
        identity, results = os.urandom(16), [None] * ranks
        if reducers == "none":
            options["rendezvous"] = f"127.0.0.1:{self.reserve_port()}"

        def run(rank):
            try:
                with open_session(reducers, session_id=identity, rank=rank, ranks=ranks, **options) as session:
                    results[rank] = work(session)
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
            self.assertFalse(thread.is_alive())
        return results


class ReducerTest(PackageTest):
    """Each test has a reducer of its own."""

    def setUp(self):
        super().setUp()
        self.reducer, self.address = self.start_reducer()

    def session(self, **options):
        return self.session_with(self.address, **options)


class TwoHostsTest(PackageTest):
    """Two network namespaces stand for hosts, with the addresses 10.11.12.1 and 10.11.12.2, fe80::1 and fe80::2 at eth0. Needs root."""

    def setUp(self):
        super().setUp()
        self.hosts = [f"sluice-python-{os.getpid()}-{index}" for index in range(2)]
        for host in self.hosts:
            ip("netns", "add", host)
            self.addCleanup(ip, "netns", "del", host)
            ip("link", "set", "lo", "up", host=host)
        ip("link", "add", "eth0", "netns", self.hosts[0], "type", "veth", "peer", "name", "eth0", "netns", self.hosts[1])
        for index, host in enumerate(self.hosts):
            ip("address", "add", f"10.11.12.{index + 1}/24", "dev", "eth0", host=host)
            ip("address", "add", f"fe80::{index + 1}/64", "dev", "eth0", "nodad", host=host)
            ip("link", "set", "eth0", "up", host=host)

    def start_on_host(self, index, name, hosts_file, arguments, environment):
        """Starts a process of this interpreter on a host that calls itself `name` and has another /etc/hosts; the end of the test kills it."""
        process = subprocess.Popen(["nsenter", f"--net=/run/netns/{self.hosts[index]}", "unshare", "--mount", "--uts", "sh", "-c", AS_HOST, hosts_file, name,
                                    sys.executable, "-B", *map(str, arguments)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.addCleanup(kill, process)
        return process


def ip(*arguments, host=None):
    """Runs ip, in the network namespace `host` if it is given."""
    subprocess.run(["ip", *(["-n", host] if host else []), *arguments], check=True, timeout=10)


def kill(process):
    process.kill()  # has no effect after the end
    process.communicate()


def session_of_environment(**options):
    """Creates the session that the variables of start_ranks describe."""
    import sluice

    return sluice.Session(os.environ["REDUCERS"], session_id=bytes.fromhex(os.environ["SESSION_ID"]), rank=int(os.environ["RANK"]),
                          ranks=int(os.environ["WORLD_SIZE"]), **options)


def join_torch(backend, attempt="", **options):
    """Creates the default process group of the job that the variables of start_ranks describe, or INIT, an init_method, instead of STORE.

    `attempt`: different for each group that a process makes."""
    import torch.distributed as dist

    method = os.environ.get("INIT") or f"file://{os.environ['STORE']}{attempt}"
    dist.init_process_group(backend, init_method=method, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]), **options)
