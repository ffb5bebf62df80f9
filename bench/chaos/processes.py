"""Starts reducer processes on loopback and counts the resources of reducers and workers."""

import json
import signal
import subprocess
import time
from pathlib import Path

from relay import Relay


class Failed(Exception):
    """A check of the run failed."""


def wait_until(description, condition, deadline_s=60.0):
    """Polls the condition until it is neither None nor False, and returns its value. Raises Failed after the deadline."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        value = condition()
        if value is not None and value is not False:
            return value
        time.sleep(0.01)
    raise Failed(f"timeout after {deadline_s:.0f} s: expected that {description}")


class Reducer:
    """A reducer process with a fixed port, which stays the same over restarts. With `has_relay`, workers connect through a relay that
    injects faults."""

    def __init__(self, program, folder, name, options, has_relay):
        self.program, self.folder, self.name, self.options = program, folder, name, options
        self.port, self.process, self.starts, self.relay = 0, None, 0, None
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        if has_relay:
            self.relay = Relay(f"127.0.0.1:{self.port}")
        self.address = self.relay.address if has_relay else f"127.0.0.1:{self.port}"

    def start(self):
        self.starts += 1
        port_file = self.folder / f"{self.name}.port"
        port_file.unlink(missing_ok=True)

        def listens():
            # Connections of the previous process may block the port for a short time, so starts are repeated.
            if self.process is None or self.process.poll() is not None:
                with open(self.folder / f"{self.name}.log", "ab") as log:
                    self.process = subprocess.Popen([self.program, "reducer", "--listen", f"127.0.0.1:{self.port}", "--port-file", port_file,
                                                     *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            return port_file.exists() and port_file.read_text().strip()

        self.port = int(wait_until(f"{self.name} listens", listens))

    def status(self):
        done = subprocess.run([self.program, "status", "--reducers", f"127.0.0.1:{self.port}", "--timeout", "2s"], capture_output=True, text=True,
                              timeout=10, check=False)
        try:
            return json.loads(done.stdout)[0]["status"]
        except (ValueError, KeyError, IndexError):
            return None

    def resources(self):
        """Returns the resources of sessions and the number of descriptors; None if the reducer does not answer."""
        status = self.status()
        if status is None:
            return None
        return {"reserved_bytes": status["memory"]["reserved_bytes"], "sessions": status["sessions"]["open"] + status["sessions"]["ending"],
                "descriptors": descriptors(self.process.pid)}

    def steady_resources(self):
        """As resources(); None if they change: a thread starts, or the connection of an earlier request is being closed."""
        found = self.resources()
        return found if found == self.resources() else None

    def in_use(self, sessions=1):
        """Returns True when the reducer has exactly `sessions` open sessions, each with all its ranks. A loss during a join ends the job."""
        status = self.status()
        return status is not None and status["sessions"]["open"] == sessions and status["data"]["bytes_in"] > 0 \
            and all(s["state"] == "active" and s.get("absent_ranks", 0) == 0 for s in status["session_list"])

    def drain(self):
        """Sends SIGTERM and waits for exit code 0. The reducer exits when its sessions have moved to other reducers."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        if code != 0:
            raise Failed(f"{self.name} exited with code {code} after a drain; expected 0")

    def kill(self):
        if self.relay:
            self.relay.close()
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def start_pool(count, program, folder, options, has_relays=False, first=0):
    """Starts reducers with names from reducer-<first>. Returns the reducers and their resources without a job. If one does not start,
    kills the others."""
    pool = []
    try:
        for i in range(first, first + count):
            pool.append(Reducer(program, folder, f"reducer-{i}", options, has_relays))
        return pool, [wait_until(f"{r.name} has started", r.steady_resources) for r in pool]
    except BaseException:
        for r in pool:
            r.kill()
        raise


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def expect_freed(reducers, baselines):
    """Waits until each reducer has the same resources as before the job: no session, slot or descriptor may leak."""
    for r, baseline in zip(reducers, baselines):
        try:
            wait_until(f"{r.name} frees the resources of the job", lambda r=r, baseline=baseline: r.resources() == baseline, 30)
        except Failed as failed:
            raise Failed(f"{failed}: {baseline} before the job, {r.resources()} now") from failed


def child_resources(pid):
    """Returns descriptors, threads and resident bytes of each child of a process. Skips children that have just ended."""
    resources, children = [], []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children += [int(p) for p in (task / "children").read_text().split()]
        except OSError:  # the thread has just ended
            continue
    for child in children:
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines() if ":" in line)
            resources.append({"descriptors": descriptors(child), "threads": int(status["Threads"]), "resident_bytes": 1024 * int(status["VmRSS"].split()[0])})
        except (OSError, KeyError):
            continue
    return resources


def stall_summary(stalls):
    if not stalls:
        return "none"
    s = sorted(stalls)
    return f"median {s[len(s) // 2]:.0f} ms, p99 {s[min(len(s) - 1, len(s) * 99 // 100)]:.0f} ms, longest {s[-1]:.0f} ms ({len(s)})"
