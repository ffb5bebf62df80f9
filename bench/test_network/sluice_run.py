"""Runs `sluice` at the hosts of a TestNetwork or a Loopback: reducers at r0, r1, ..., and one rank of `sluice bench` at each of w0, w1, ..."""

import contextlib
import json
import os
import subprocess
import time

DEADLINE_S = 300


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


@contextlib.contextmanager
def reducers(hosts, sluice, count, folder):
    """Runs the reducers while the context is active; yields the value of --connect."""
    processes, pool = [], []
    try:
        for i in range(count):
            host = f"r{i}"
            port_file = folder / f"{host}-{time.monotonic_ns()}"
            processes.append(hosts.start(host, [sluice, "reducer", "--insecure", "--lanes", 1, "--listen", f"{hosts.address(host)}:0", "--port-file", port_file],
                                         stderr=subprocess.DEVNULL))
            pool.append(f"{hosts.address(host)}:{wait_for_port(processes[-1], port_file, f'reducer {i}')}")
        yield ",".join(pool)
    finally:
        kill_all(processes)


def bench(hosts, sluice, verb, workers, pool, folder, options):
    """Runs `sluice bench <verb>` with `options` on all ranks. Returns the content of its --json file."""
    session = os.urandom(16).hex()
    out = folder / f"{session}.json"
    env = {**os.environ, "SLUICE_NET": "always", "SLUICE_IFNAME": f"={hosts.interface}"}
    ranks = []
    try:
        for rank in range(workers):
            command = [sluice, "bench", verb, *options, "--workers", workers, "--connect", pool, "--rank", rank, "--session", session]
            command += ["--json", out] if rank == 0 else []
            ranks.append(hosts.start(f"w{rank}", command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env))
        for number, rank in enumerate(ranks):
            try:
                errors = rank.communicate(timeout=DEADLINE_S)[1].strip()
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
