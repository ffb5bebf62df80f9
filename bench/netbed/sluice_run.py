"""`sluice` at the hosts of a Bed or a Loopback: reducers at r0, r1, ..., and `sluice bench` allreduce or replay with one rank at each of w0, w1, ..."""

import contextlib
import json
import os
import subprocess
import time

DEADLINE_S = 300


class SluiceFailed(SystemExit):
    """Which ends a script with its text, unless that goes on with something else."""


def end(processes):
    for process in processes:
        process.kill()
        process.wait()


def port_of(process, port_file, name):
    while not port_file.exists():
        if process.poll() is not None:
            raise SluiceFailed(f"{name} ended with {process.returncode}")
        time.sleep(0.02)
    return port_file.read_text(encoding="ascii").strip()


@contextlib.contextmanager
def reducers(hosts, sluice, count, folder):
    """Runs them meanwhile; gives what --connect takes."""
    processes, pool = [], []
    try:
        for i in range(count):
            host = f"r{i}"
            port_file = folder / f"{host}-{time.monotonic_ns()}"
            processes.append(hosts.start(host, [sluice, "reducer", "--insecure", "--lanes", 1, "--listen", f"{hosts.address(host)}:0", "--port-file", port_file],
                                         stderr=subprocess.DEVNULL))
            pool.append(f"{hosts.address(host)}:{port_of(processes[-1], port_file, f'reducer {i}')}")
        yield ",".join(pool)
    finally:
        end(processes)


def bench(hosts, sluice, verb, workers, pool, folder, options):
    """`options` of `sluice bench <verb>`. Returns what its --json holds."""
    session = os.urandom(16).hex()
    out = folder / f"{session}.json"
    env = {**os.environ, "SLUICE_NET": "always", "SLUICE_IFNAME": f"={hosts.interface}"}
    ranks = []
    try:
        for rank in range(workers):
            words = [sluice, "bench", verb, *options, "--workers", workers, "--connect", pool, "--rank", rank, "--session", session]
            words += ["--json", out] if rank == 0 else []
            ranks.append(hosts.start(f"w{rank}", words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env))
        for number, rank in enumerate(ranks):
            try:
                said = rank.communicate(timeout=DEADLINE_S)[1].strip()
            except subprocess.TimeoutExpired as expired:
                raise SluiceFailed(f"sluice bench {verb}: rank {number} does not end") from expired
            if rank.returncode != 0:
                raise SluiceFailed(f"sluice bench {verb} {' '.join(map(str, options))}: rank {number} ended with {rank.returncode}: {said}")
    finally:
        end(ranks)
    return json.loads(out.read_text(encoding="utf-8"))


@contextlib.contextmanager
def star_server(hosts, sluice, folder):
    """The bare TCP star at r0 meanwhile; gives what `sluice bench latency --star` takes."""
    port_file = folder / f"star-{time.monotonic_ns()}"
    process = hosts.start("r0", [sluice, "bench", "star-server", "--listen", f"{hosts.address('r0')}:0", "--port-file", port_file], stderr=subprocess.DEVNULL)
    try:
        yield f"{hosts.address('r0')}:{port_of(process, port_file, 'the star server')}"
    finally:
        end([process])
