"""Runs `sluice` for tests: real processes, ports from the OS, waits with a condition, and cleanup of all processes. Needs only Python 3.11."""

import argparse
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "capabilities"))

# A hang must fail in the step that hangs, so this deadline is shorter than ctest's timeout.
DEADLINE_S = float(os.environ.get("SLUICE_TEST_DEADLINE_S", "60"))

PROGRAM = None


def main():
    """Entry point of every test file: --sluice PROGRAM, then the arguments of unittest."""
    global PROGRAM
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", type=Path, required=True, help="the program under test")
    arguments, rest = parser.parse_known_args()
    PROGRAM = str(arguments.sluice.resolve())
    unittest.main(argv=[sys.argv[0], *rest], module="__main__", verbosity=2)


def environment(extra=None):
    """Returns the environment without SLUICE_ and NCCL_ variables, except SLUICE_TRANSPORT, which selects the transport under test."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLUICE_", "NCCL_")) or key == "SLUICE_TRANSPORT"}
    clean.update(extra or {})
    return clean


def until(what, condition):
    """Polls until condition() is neither None nor False and returns its value; fails after DEADLINE_S with `what`."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value is not None and value is not False:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")


def closed_port():
    """Returns a loopback port without a listener, and the socket that reserves it."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    return holder, holder.getsockname()[1]


class SluiceTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_sluice(self, *arguments, expect=0, env=None):
        """Runs the program to its end and returns the CompletedProcess. Fails when the exit code is not `expect`."""
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S,
                              env=environment(env), check=False)
        self.assertEqual(done.returncode, expect, f"sluice {arguments}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def run_json(self, *arguments, **how):
        """Runs the program with --json FILE and returns the contents of the file."""
        path = self.folder / "result.json"
        path.unlink(missing_ok=True)
        self.run_sluice(*arguments, "--json", path, **how)
        return json.loads(path.read_text())

    def start(self, *arguments, env=None, stderr=None):
        """Starts the program and returns a Running, which ends with the test. `stderr`: a descriptor instead of a file."""
        running = Running([str(argument) for argument in arguments], self.folder, env, stderr)
        self.addCleanup(running.end)
        return running

    def start_reducer(self, *arguments, env=None):
        """Starts a reducer on a port chosen by the OS: (Running, "127.0.0.1:PORT")."""
        port_file = self.folder / f"port-{time.monotonic_ns()}"
        running = self.start("reducer", "--listen", "127.0.0.1:0", "--port-file", port_file, *arguments, env=env)
        until("the reducer writes its port", lambda: port_file.exists() or running.ended())
        self.assertIsNone(running.process.poll(), running.stderr())
        return running, f"127.0.0.1:{port_file.read_text().strip()}"

    def check_machine(self, result, nic=True):
        """Checks that a result describes the machine that it was measured on."""
        machine = result["machine"]
        self.assertEqual(list(machine), ["host", "kernel", "cpu", "cores", "memory_bytes", "nic", "congestion_control", "sluice_version", "revision"])
        self.assertEqual((machine["host"], machine["cores"]), (socket.gethostname(), len(os.sched_getaffinity(0))))
        self.assertNotIn("", machine.values())
        if nic:
            self.assertEqual((machine["nic"]["name"], machine["nic"]["driver"]), ("lo", None))
            self.assertGreater(machine["nic"]["mtu"], 0)
        else:
            self.assertIsNone(machine["nic"])

    def status(self, address, *arguments):
        done = self.run_sluice("status", "--reducers", address, *arguments)
        return json.loads(done.stdout)[0]["status"]


class Running:
    """A running process with its outputs in files."""

    def __init__(self, arguments, folder, env, stderr=None):
        name = f"{time.monotonic_ns()}"
        self.arguments = arguments
        self._out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen([PROGRAM, *arguments], stdout=out, stderr=err if stderr is None else stderr, stdin=subprocess.DEVNULL,
                                            env=environment(env))
        self.pid = self.process.pid

    def stdout(self):
        return self._out.read_text(errors="replace")

    def stderr(self):
        return self._err.read_text(errors="replace")

    def ended(self):
        return self.process.poll() is not None

    def wait(self):
        """Returns the exit code; negative for a signal."""
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"sluice {self.arguments} does not end\n{self.stdout()}{self.stderr()}") from expired

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def children_of(pid):
    """Returns the process ids of the children, including zombies."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def has_sanitizer(running):
    """Returns whether the process runs under a sanitizer, whose shadow memory reserves terabytes of address space and so prevents a limit."""
    return int(re.search(r"VmSize:\s+(\d+) kB", Path(f"/proc/{running.pid}/status").read_text())[1]) > 1 << 30


def limit_memory(running, more):
    """Limits the address space of the process to its current size and `more` bytes; None: removes the limit."""
    _, hard_limit = resource.prlimit(running.pid, resource.RLIMIT_AS)
    used = int(re.search(r"VmSize:\s+(\d+) kB", Path(f"/proc/{running.pid}/status").read_text())[1]) * 1024
    resource.prlimit(running.pid, resource.RLIMIT_AS, (hard_limit if more is None else used + more, hard_limit))


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
