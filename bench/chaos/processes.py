"""A pool and a job as the programs here run them: processes on loopback, what they hold counted."""

import json
import signal
import subprocess
import time
from pathlib import Path

from relay import Relay


class Failed(Exception):
    pass


def until(what, condition, deadline_s=60.0):
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        value = condition()
        if value is not None and value is not False:
            return value
        time.sleep(0.01)
    raise Failed(f"not within {deadline_s:.0f} s: {what}")


class Reducer:
    """A reducer on a port of its own, which it keeps over its restarts; workers reach it through a relay when connections are to be harmed."""

    def __init__(self, program, folder, name, options, relayed):
        self.program, self.folder, self.name, self.options = program, folder, name, options
        self.port, self.process, self.starts, self.relay = 0, None, 0, None
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        if relayed:
            self.relay = Relay(f"127.0.0.1:{self.port}")
        self.address = self.relay.address if relayed else f"127.0.0.1:{self.port}"

    def start(self):
        self.starts += 1
        port_file = self.folder / f"{self.name}.port"
        port_file.unlink(missing_ok=True)

        def listens():
            # Connections of the one before may hold the port for a moment.
            if self.process is None or self.process.poll() is not None:
                with open(self.folder / f"{self.name}.log", "ab") as log:
                    self.process = subprocess.Popen([self.program, "reducer", "--listen", f"127.0.0.1:{self.port}", "--port-file", port_file,
                                                     *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            return port_file.exists() and port_file.read_text().strip()

        self.port = int(until(f"{self.name} listens", listens))

    def status(self):
        done = subprocess.run([self.program, "status", "--reducers", f"127.0.0.1:{self.port}", "--timeout", "2s"], capture_output=True, text=True,
                              timeout=10, check=False)
        try:
            return json.loads(done.stdout)[0]["status"]
        except (ValueError, KeyError, IndexError):
            return None

    def held(self):
        """What sessions hold here, and descriptors; nothing while it does not answer."""
        status = self.status()
        if status is None:
            return None
        return {"reserved_bytes": status["memory"]["reserved_bytes"], "sessions": status["sessions"]["open"] + status["sessions"]["releasing"],
                "descriptors": descriptors(self.process.pid)}

    def in_use(self, sessions=1):
        """That many sessions run here, and each with all its ranks."""
        status = self.status()
        return status is not None and status["sessions"]["open"] == sessions and status["data"]["bytes_in"] > 0 \
            and all(s.get("absent_ranks", 0) == 0 for s in status["session_list"])

    def drain(self):
        """SIGTERM, and its end, which is in order once the last session has moved."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        if code != 0:
            raise Failed(f"{self.name} drained with exit code {code}")

    def end(self):
        if self.relay:
            self.relay.close()
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def start_pool(count, program, folder, options, relayed=False, first=0):
    """Reducers that answer, and what each of them holds without a job. Those that came up end again when one does not. Their names count from `first`."""
    pool = []
    try:
        for i in range(first, first + count):
            pool.append(Reducer(program, folder, f"reducer-{i}", options, relayed))
        return pool, [until(f"{r.name} answers", r.held) for r in pool]
    except BaseException:
        for r in pool:
            r.end()
        raise


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def expect_freed(reducers, before):
    """No session, slot or descriptor may be left at a reducer once the job is over."""
    for r, held in zip(reducers, before):
        try:
            until(f"{r.name} holds what it held before the job", lambda r=r, held=held: r.held() == held, 30)
        except Failed as failed:
            raise Failed(f"{failed}: {held}; it holds {r.held()}") from failed


def hold_of_children(pid):
    """What each child of a process holds now: descriptors, threads, resident bytes. Without those that have just ended."""
    counts, children = [], []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children += [int(p) for p in (task / "children").read_text().split()]
        except OSError:  # a thread that has just ended
            continue
    for child in children:
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines() if ":" in line)
            counts.append({"descriptors": descriptors(child), "threads": int(status["Threads"]), "resident_bytes": 1024 * int(status["VmRSS"].split()[0])})
        except (OSError, KeyError):
            continue
    return counts


def quantiles(stalls):
    if not stalls:
        return "none"
    s = sorted(stalls)
    return f"median {s[len(s) // 2]:.0f} ms, p99 {s[min(len(s) - 1, len(s) * 99 // 100)]:.0f} ms, longest {s[-1]:.0f} ms ({len(s)})"
