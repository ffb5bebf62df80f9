"""usage: fork_server.py SOCKET [MODULE...]: forks processes that have imported torch and the modules, for torch_test_bed.py. The import takes seconds of
processor time.

SOCKET: a descriptor of a socket that preserves message boundaries. A request is JSON: the script with its arguments, and the environment. Four
descriptors come with it: stdin, stdout and stderr of the process, and a pipe to which the server writes the exit code. The reply comes with a descriptor
of the process (a pidfd). The server ends with the connection.

A forked process runs its script as a new interpreter would: as __main__, with its own sys.path, up to the complete shutdown of the interpreter. It differs
in that all processes have the same seed for hashes of str, lack triton, and never free cycles of objects that the import has created."""

import gc
import json
import os
import select
import socket
import sys
from importlib import import_module
from types import ModuleType

PRELOADED = ("torch", "torch._dynamo")  # DistributedDataParallel imports the second one
REQUEST_BYTES = 1 << 17


def serve(connection):
    """Forks a process for each request. Returns in each of them, with its request and its standard streams."""
    running = {}  # pidfd: process id and the pipe for the exit code
    while True:
        ready, _, _ = select.select([connection, *running], [], [])
        for pidfd in [each for each in ready if each is not connection]:
            pid, pipe = running.pop(pidfd)
            os.write(pipe, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os.close(pipe)
            os.close(pidfd)
        if connection not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
        if not request:
            os._exit(0)  # skips the shutdown of torch, which takes processor time
        *streams, pipe = descriptors
        pid = os.fork()
        if pid == 0:
            for descriptor in (pipe, *running, *(other for _, other in running.values())):
                os.close(descriptor)
            return json.loads(request), streams
        pidfd = os.pidfd_open(pid)
        running[pidfd] = pid, pipe
        socket.send_fds(connection, [b"forked"], [pidfd])
        for stream in streams:
            os.close(stream)


def run(arguments, environment, streams):
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    script = arguments[0]
    sys.path[:1] = [os.path.dirname(script), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = script
    with open(script, "rb") as source:
        program = compile(source.read(), script, "exec")
    exec(program, main.__dict__)


def main():
    sys.modules["triton"] = None  # no script compiles, and its bindings would print leaks at the end of each process
    for module in (*PRELOADED, *sys.argv[2:]):
        import_module(module)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{len(threads)} threads after the imports: a forked process would lack them, and could find their locks held"
    assert "sluice" not in sys.modules, "the scripts choose the package by PYTHONPATH"
    gc.freeze()  # otherwise each process examines the objects of torch when it ends, which takes most of its processor time
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        request, streams = serve(connection)
    run(*request, streams)


if __name__ == "__main__":
    main()
