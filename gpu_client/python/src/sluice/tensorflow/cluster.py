"""Finds this process's place among the workers in TF_CONFIG or in SLUICE's variables, and the id of their session.

libsluice reads the reducers, also those of TF_CONFIG; it does not tell ranks. The order of workers is libsluice's."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import json
import os
import socket
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Optional

from ..errors import Mismatch, System, Timeout
from ..placement.variables import OWN, rank_and_size

_WORKERS = ("chief", "master", "worker")  # jobs of TF_CONFIG that train, in the order of ranks
_GREETING = "sluice.tensorflow 1"
_PAUSE_S = 0.1  # between attempts to connect
_HELLO_S = 5.0  # for a connection's first line
_LONGEST_LINE = 500


class Place(NamedTuple):
    """This process's rank among `size` workers. `workers`: their addresses in TF_CONFIG, in the order of ranks."""

    rank: int
    size: int
    workers: tuple[str, ...] = ()


def place_of_environment(environment: Mapping[str, str] = os.environ) -> Optional[Place]:
    """Returns the place that SLUICE_RANK and SLUICE_WORKERS give this process, otherwise that of TF_CONFIG; None: neither is set.

    Warns if both are set and differ, and if SLUICE_REDUCERS replaces reducers of TF_CONFIG. Raises ValueError for an invalid variable."""
    config = _tf_config(environment)
    place = _place_of_config(config)
    if own := rank_and_size(*OWN, environment):
        chosen = Place(*own, place.workers if place else ())
        if place is not None and place != chosen:
            warnings.warn(f"SLUICE_RANK and SLUICE_WORKERS are used, rank {chosen.rank} of {chosen.size}, and not TF_CONFIG, rank {place.rank} of "
                          f"{place.size}", stacklevel=3)
        place = chosen
    reducers = environment.get("SLUICE_REDUCERS", "")
    listed = ",".join(config.get("cluster", {}).get("ps", []))
    # SageMaker's toolkit sets "cloud" too, but its ps are servers of TensorFlow.
    is_vertex = config.get("environment") == "cloud" and "SM_CURRENT_HOST" not in environment
    is_used = is_vertex and environment.get("SLUICE_DISCOVERY", "auto") == "auto"
    if place is not None and place.rank == 0 and is_used and listed and reducers not in ("", listed):
        warnings.warn(f"SLUICE_REDUCERS={reducers} is used, and not the reducers of TF_CONFIG, {listed}", stacklevel=3)
    return place


def agree_on_session(place: Place, timeout: float) -> bytes:
    """Returns a session id, new in each attempt of a job. Collective: the workers meet at the address of rank 0 in TF_CONFIG.

    Raises sluice.Timeout with the missing ranks, sluice.Mismatch if the clusters differ, or sluice.System."""
    if place.size == 1:
        return os.urandom(16)
    if not place.workers:
        raise ValueError("the workers need a common session: set TF_CONFIG, or SLUICE_SESSION to 32 hexadecimal digits that are equal on all workers "
                         "and new for each run, or pass session_id")
    deadline = time.monotonic() + timeout
    digest = hashlib.sha256(json.dumps([place.size, place.workers]).encode()).hexdigest()[:16]
    if place.rank == 0:
        return _lead(place, digest, deadline, timeout)
    return _follow(place, digest, deadline, timeout)


def _tf_config(environment: Mapping[str, str]) -> dict[str, Any]:
    text = environment.get("TF_CONFIG", "")
    try:
        config = json.loads(text or "{}")
        listed = [address for addresses in config.get("cluster", {}).values() for address in addresses]
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"TF_CONFIG is not a JSON object with lists of addresses in \"cluster\": {error}") from None
    if not all(isinstance(address, str) for address in listed):
        raise ValueError("TF_CONFIG: an address in \"cluster\" is not a text")
    return dict(config)


def _place_of_config(config: Mapping[str, Any]) -> Optional[Place]:
    cluster, task = config.get("cluster"), config.get("task")
    if not cluster:
        return None
    if not isinstance(task, dict) or not isinstance(task.get("index"), int):
        raise ValueError("TF_CONFIG: \"task\" needs \"type\" and \"index\"")
    kind, index = task.get("type"), task["index"]
    if kind not in _WORKERS:
        raise ValueError(f"TF_CONFIG: task {kind} {index} does not train; a reducer is started by \"sluice reducer\" or \"sluice auto\"")
    count = len(cluster.get(kind, []))
    if not 0 <= index < count:
        raise ValueError(f"TF_CONFIG: index {index} is out of range: {kind} has {count} entries")
    workers = tuple(address for name in _WORKERS for address in cluster.get(name, []))
    before = _WORKERS[:_WORKERS.index(kind)]
    return Place(index + sum(len(cluster.get(name, [])) for name in before), len(workers), workers)


def _lead(place: Place, digest: str, deadline: float, timeout: float) -> bytes:
    """Waits for a connection of each other rank, then sends all the same new id."""
    session_id = os.urandom(16)
    arrived: dict[int, socket.socket] = {}
    with ExitStack() as opened:
        server = opened.enter_context(_listen(place.workers[0]))
        while len(arrived) < place.size - 1:
            server.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                connection = opened.enter_context(server.accept()[0])
            except socket.timeout:  # TimeoutError from Python 3.10 on
                missing = ", ".join(str(rank) for rank in range(1, place.size) if rank not in arrived)
                raise Timeout(f"rank {missing} did not come to {place.workers[0]} within {timeout:g} s") from None
            with suppress(OSError):
                connection.settimeout(_HELLO_S)
                words = _line(connection).rsplit(" ", 2)
                if len(words) != 3 or words[0] != _GREETING or not words[2].isdecimal():
                    connection.close()  # of another program
                elif words[1] != digest or not 0 < int(words[2]) < place.size:
                    connection.sendall(f"rank {words[2]} and rank 0 have different clusters in TF_CONFIG, or sizes\n".encode())
                    connection.close()
                else:
                    arrived[int(words[2])] = connection  # a rank that was restarted comes again
        for connection in arrived.values():
            with suppress(OSError):  # this rank has ended, which the session reports
                connection.sendall(f"{_GREETING} {session_id.hex()}\n".encode())
    return session_id


def _follow(place: Place, digest: str, deadline: float, timeout: float) -> bytes:
    """Connects to rank 0 as often as necessary, and waits for the id."""
    where, reason = place.workers[0], "it closed the connection"
    while (left := deadline - time.monotonic()) > 0:
        answer = ""
        try:
            with socket.create_connection(_split(where), left) as connection:
                connection.sendall(f"{_GREETING} {digest} {place.rank}\n".encode())
                answer = _line(connection)
        except OSError as error:
            reason = str(error)
        if answer.startswith(f"{_GREETING} "):
            return bytes.fromhex(answer.rpartition(" ")[2])
        if answer.startswith("rank "):
            raise Mismatch(answer)
        if answer:
            raise System(f"{where}, where rank 0 of TF_CONFIG should answer, is another program's; pass session_id")
        time.sleep(min(_PAUSE_S, left))
    raise Timeout(f"rank 0 did not answer at {where} within {timeout:g} s: {reason}")


def _listen(address: str) -> socket.socket:
    host, port = _split(address)
    try:
        # A host's own name may be 127.0.1.1 there, and a service's address is none of the host's: then at all addresses, as TensorFlow does.
        with suppress(ValueError):
            ipaddress.ip_address(host)
            try:
                return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise System(f"cannot listen at {address}, where the workers of TF_CONFIG meet: {error}; if a server of tf.distribute listens there, pass "
                     "session_id") from error


def _line(connection: socket.socket) -> str:
    text = b""
    while not text.endswith(b"\n") and len(text) < _LONGEST_LINE and (more := connection.recv(_LONGEST_LINE)):
        text += more
    return text.decode(errors="replace").strip()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"TF_CONFIG: {address}: expected host:port")
    return host.strip("[]"), int(port)
