"""Class TorchTest runs scripts that import torch in processes forked from one that has imported it."""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from contextlib import suppress
from pathlib import Path

from package_test_bed import DEADLINE_S, PackageTest, kill, variables

FORK_SERVER = Path(__file__).with_name("fork_server.py")


@functools.cache
def fork_server(preloaded):
    """Starts the server of this process with those modules of torch, and returns the connection."""
    connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in variables().items() if name != "PYTHONPATH"}  # each request has its own
    with theirs:
        server = subprocess.Popen([sys.executable, "-B", FORK_SERVER, str(theirs.fileno()), *preloaded], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                  env=environment)
    connection.settimeout(4 * DEADLINE_S)  # the import takes long beside other tests

    def close():
        connection.close()
        server.wait(DEADLINE_S)

    atexit.register(close)
    return connection


class ForkedProcess:
    """A process of the server, with the functions of subprocess.Popen that tests use."""

    def __init__(self, arguments, environment, preloaded):
        self.args, self.returncode = [str(argument) for argument in arguments], None
        (stdin, writing), (reading, stdout), (self._exit_code, pipe) = os.pipe(), os.pipe(), os.pipe()
        self.stdin, self.stdout, self._stderr = open(writing, "w"), open(reading), tempfile.TemporaryFile("w+")
        self._printed = self._errors = None
        server = fork_server(preloaded)
        socket.send_fds(server, [json.dumps([self.args, environment]).encode()], [stdin, stdout, self._stderr.fileno(), pipe])
        for descriptor in stdin, stdout, pipe:
            os.close(descriptor)
        _, descriptors, _, _ = socket.recv_fds(server, 16, 1)
        assert descriptors, "the fork server has ended"
        self._pidfd = descriptors[0]

    def send_signal(self, number):
        if self.returncode is None:  # afterwards the descriptor is closed
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=None):
        """Closes stdin, and waits for the end. Returns what stdout has beyond the lines that were read, and stderr."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._printed is None:
            self.stdin.close()
            reader = futures.ThreadPoolExecutor(1)
            self._printed = reader.submit(self.stdout.read)
            reader.shutdown(wait=False)
        try:
            printed = self._printed.result(timeout)
        except futures.TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout) from None
        if self.returncode is None:
            if not select.select([self._exit_code], [], [], None if deadline is None else max(0, deadline - time.monotonic()))[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(os.read(self._exit_code, 16))
            self._stderr.seek(0)
            self._errors = self._stderr.read()
            for file in self.stdout, self._stderr:
                file.close()
            for descriptor in self._exit_code, self._pidfd:
                os.close(descriptor)
        return printed, self._errors


class TorchTest(PackageTest):
    preloaded = ()  # modules that most scripts of a test import and whose import takes long, beside torch

    def start_script(self, *arguments, **extra):
        process = ForkedProcess(arguments, variables(**extra), self.preloaded)
        self.addCleanup(kill, process)
        return process

    def start_job(self, script, ranks, *arguments, **extra):
        """Starts the ranks of a job with the variables that torchrun sets."""
        common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.reserve_port()), **extra}
        return [self.start_script(script, *arguments, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(ranks)]
