"""Runs `sluice` at the hosts of a TestNetwork or a Loopback: reducers at r0, r1, ..., and one rank of `sluice bench` at each of w0, w1, ...

Without reducers (a pool of NO_REDUCERS) the ranks reduce in their own processes and meet at rank 0."""

import contextlib
import json
import os
import subprocess
import sys
import time

DEADLINE_S = 300
NO_REDUCERS = "none"  # value of --connect
# Prints a port that is free at a host. A fixed port may be in use on a loopback interface that other programs share.
FREE_PORT = "import socket, sys; s = socket.socket(); s.bind((sys.argv[1], 0)); print(s.getsockname()[1])"


class SluiceFailed(SystemExit):
    """A sluice process failed. The exception ends a script with its message unless the caller handles it."""


def kill_all(processes):
    for process in processes:
        process.kill()
        process.wait()


def wait_for_port(process, port_file, name):
    while not port_file.exists():
        if process.poll() is not None:
            raise SluiceFailed(f"{name} exited with code {process.returncode} before it listened")
        time.sleep(0.02)
    return port_file.read_text(encoding="ascii").strip()


def no_variables(_host):
    return {}


@contextlib.contextmanager
def reducers(hosts, sluice, count, folder, variables=no_variables, options=()):
    """Runs the reducers while the context is active; yields the value of --connect. `variables` maps a host to additional
    environment variables of its process; all have the additional options."""
    processes, pool = [], []
    try:
        for i in range(count):
            host = f"r{i}"
            port_file = folder / f"{host}-{time.monotonic_ns()}"
            processes.append(hosts.start(host, [sluice, "reducer", "--insecure", "--lanes", 1, "--listen", f"{hosts.address(host)}:0", "--port-file", port_file,
                                                 *options],
                                         stderr=subprocess.DEVNULL, env={**os.environ, **variables(host)}))
            pool.append(f"{hosts.address(host)}:{wait_for_port(processes[-1], port_file, f'reducer {i}')}")
        yield ",".join(pool) or NO_REDUCERS
    finally:
        kill_all(processes)


def rendezvous(hosts):
    """Returns an address of rank 0's host with a free port, where ranks without reducers meet."""
    address = hosts.address("w0")
    return f"{address}:{hosts.run('w0', [sys.executable, '-c', FREE_PORT, address]).stdout.strip()}"


def bench(hosts, sluice, verb, workers, pool, folder, options, variables=no_variables, log=None):
    """Runs `sluice bench <verb>` with `options` on all ranks. `variables` maps a host to additional environment variables of
    its rank. The ranks' log lines are added to the list `log`. Returns the content of the --json file."""
    session = os.urandom(16).hex()
    out = folder / f"{session}.json"
    env = {**os.environ, "SLUICE_NET": "always", "SLUICE_IFNAME": f"={hosts.interface}"}
    if pool == NO_REDUCERS:
        env["SLUICE_RENDEZVOUS"] = rendezvous(hosts)
    ranks = []
    try:
        for rank in range(workers):
            command = [sluice, "bench", verb, *options, "--workers", workers, "--connect", pool, "--rank", rank, "--session", session]
            command += ["--json", out] if rank == 0 else []
            ranks.append(hosts.start(f"w{rank}", command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                     env={**env, **variables(f"w{rank}")}))
        for number, rank in enumerate(ranks):
            try:
                errors = rank.communicate(timeout=DEADLINE_S)[1].strip()
                if log is not None:
                    log += errors.splitlines()
            except subprocess.TimeoutExpired as expired:
                raise SluiceFailed(f"sluice bench {verb}: rank {number} did not exit within {DEADLINE_S} s") from expired
            if rank.returncode != 0:
                raise SluiceFailed(f"sluice bench {verb} {' '.join(map(str, options))}: rank {number} exited with code {rank.returncode}: {errors}")
    finally:
        kill_all(ranks)
    return json.loads(out.read_text(encoding="utf-8"))


@contextlib.contextmanager
def star_server(hosts, sluice, folder):
    """Runs the bare TCP star at r0 while the context is active; yields the value of `sluice bench latency --star`."""
    port_file = folder / f"star-{time.monotonic_ns()}"
    process = hosts.start("r0", [sluice, "bench", "star-server", "--listen", f"{hosts.address('r0')}:0", "--port-file", port_file], stderr=subprocess.DEVNULL)
    try:
        yield f"{hosts.address('r0')}:{wait_for_port(process, port_file, 'the star server')}"
    finally:
        kill_all([process])
