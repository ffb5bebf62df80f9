"""Runs `sluice` for tests: real processes, ports from the OS, waits with a condition, and cleanup of all processes. Needs only Python 3.11."""

import argparse
import json
import os
import re
import resource
import shutil
import signal
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
    """Returns the environment without SLUICE_ and NCCL_ variables, except those that select what is under test.

    Ranks stand for hosts unless `extra` says otherwise: else all would share this host's memory, and the reducers get nothing."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLUICE_", "NCCL_")) or key in ("SLUICE_TRANSPORT", "SLUICE_COLOCATED")}
    clean.update({"SLUICE_HOSTS": "off", **(extra or {})})
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


def rows_of(text):
    """The cells of each line of a benchmark's output that is no comment."""
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def row_count(running):
    return len(rows_of(running.stdout()))


class SluiceTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_sluice(self, *arguments, expect=0, env=None, stdout=subprocess.PIPE):
        """Runs the program to its end and returns the CompletedProcess. Fails when the exit code is not `expect`."""
        done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S,
                              env=environment(env), check=False)
        self.assertEqual(done.returncode, expect, f"sluice {arguments}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def expect_error(self, code, text, *arguments, **how):
        """Runs the program, which must exit with `code` and have the text, or a match of the compiled pattern, on stderr."""
        done = self.run_sluice(*arguments, expect=code, **how)
        self.assertRegex(done.stderr, text if isinstance(text, re.Pattern) else re.escape(text))
        return done

    def expect_usage_errors(self, command, cases):
        """Each case is a list of options that `command` must refuse with one line and exit code 64."""
        for arguments in cases:
            with self.subTest(arguments):
                done = self.run_sluice(*command, *arguments, expect=64)
                self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)

    def run_json(self, *arguments, **how):
        """Runs the program with --json FILE and returns the contents of the file."""
        return self.run_json_and_text(*arguments, **how)[0]

    def run_json_and_text(self, *arguments, **how):
        """The same, with the output."""
        path = self.folder / "result.json"
        path.unlink(missing_ok=True)
        done = self.run_sluice(*arguments, "--json", path, **how)
        return json.loads(path.read_text()), done.stdout

    def reserve_port(self):
        """Returns a loopback port without a listener, which no other process gets during the test. A server that sets SO_REUSEADDR can
        listen there."""
        holder = socket.socket()
        self.addCleanup(holder.close)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]

    def start(self, *arguments, env=None, stdout=None, stderr=None):
        """Starts the program and returns a Running, which ends with the test. `stdout`, `stderr`: a descriptor instead of a file."""
        running = Running([str(argument) for argument in arguments], self.folder, env, stdout, stderr)
        self.addCleanup(running.end)
        return running

    def start_server(self, command, *arguments, host="127.0.0.1", port=0, **how):
        """Starts a command that listens on a port chosen by the OS, or that of an earlier process, and waits until it does: (Running, "HOST:PORT")."""
        port_file = self.folder / f"port-{time.monotonic_ns()}"
        running = self.start(*command, "--listen", f"{host}:{port}", "--port-file", port_file, *arguments, **how)
        until("the server writes its port", lambda: port_file.exists() or running.ended())
        self.assertIsNone(running.process.poll(), running.stderr())
        return running, f"{host}:{port_file.read_text().strip()}"

    def start_reducer(self, *arguments, **how):
        """Starts a reducer: (Running, "HOST:PORT")."""
        return self.start_server(["reducer"], *arguments, **how)

    def start_http_reducer(self, *arguments, **how):
        """Starts a reducer that serves HTTP: (Running, "HOST:PORT", HTTP port)."""
        port_file = self.folder / f"http-{time.monotonic_ns()}"
        running, address = self.start_reducer("--http-listen", "127.0.0.1:0", "--http-port-file", port_file, *arguments, **how)
        until("the reducer writes its HTTP port", port_file.exists)
        return running, address, int(port_file.read_text())

    def start_ranks(self, address, *command, ranks=(0, 1), session="000102030405060708090a0b0c0d0e0f"):
        """Starts these ranks of a job as a process each. `command` says how many workers the job has."""
        return [self.start(*command, "--rank", rank, "--session", session, "--connect", address) for rank in ranks]

    def expect_ends(self, processes, code=0):
        self.assertEqual([each.wait() for each in processes], [code] * len(processes), "".join(each.stderr() for each in processes))

    def expect_drained(self, reducer):
        """Asks the reducer to drain, which must end it."""
        reducer.signal(signal.SIGTERM)
        self.expect_ends([reducer])

    def wait_for_rows(self, job, more_than=0):
        until("the job has started", lambda: row_count(job) > more_than or job.ended())

    def write(self, name, text):
        """Writes a file by a rename, like configuration tools, and returns its path."""
        path = self.folder / name
        path.with_suffix(".new").write_text(text)
        os.replace(path.with_suffix(".new"), path)
        return path

    def make_key(self):
        """Creates a pool key and returns its file."""
        path = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", path)
        return path

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
        done = self.run_sluice("status", "--reducers", address, "--timeout", "30s", *arguments)
        return json.loads(done.stdout)[0]["status"]

    def status_after_sessions(self, address, completed, *arguments):
        """The status when so many sessions are completed. A reducer counts a session after the answers that end the ranks."""
        def now():
            status = self.status(address, *arguments)
            return status if status["sessions"]["completed"] >= completed else None
        status = until(f"{completed} sessions are completed", now)
        self.assertEqual(status["sessions"]["completed"], completed)
        return status


class Running:
    """A running process with its outputs in files."""

    def __init__(self, arguments, folder, env, stdout=None, stderr=None):
        name = f"{time.monotonic_ns()}"
        self.arguments = arguments
        self._out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen([PROGRAM, *arguments], stdout=out if stdout is None else stdout, stderr=err if stderr is None else stderr,
                                            stdin=subprocess.DEVNULL, env=environment(env))
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

    def freeze(self):
        """Stops the process and waits until every thread is stopped. signal(SIGCONT) resumes it."""
        self.signal(signal.SIGSTOP)
        threads = list(Path(f"/proc/{self.pid}/task").iterdir())
        until(f"process {self.pid} is stopped", lambda: all(process_state(thread) == "T" for thread in threads))

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


def address_space(running):
    """Bytes."""
    return int(re.search(r"VmSize:\s+(\d+) kB", Path(f"/proc/{running.pid}/status").read_text())[1]) * 1024


def has_sanitizer(running):
    """Returns whether the process runs under a sanitizer, whose shadow memory reserves terabytes of address space and so prevents a limit."""
    return address_space(running) > 1 << 40


def limit_memory(running, more):
    """Limits the address space of the process to its current size and `more` bytes; None: removes the limit."""
    _, hard_limit = resource.prlimit(running.pid, resource.RLIMIT_AS)
    resource.prlimit(running.pid, resource.RLIMIT_AS, (hard_limit if more is None else address_space(running) + more, hard_limit))


def process_state(folder):
    """The state letter of a process or thread, by its folder in /proc: T if it is stopped."""
    return Path(folder, "stat").read_text().rsplit(")", 1)[1].split()[0]


def is_alive(pid):
    try:
        state = process_state(f"/proc/{pid}")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
