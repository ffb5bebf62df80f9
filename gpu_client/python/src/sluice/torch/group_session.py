"""Opens the sessions of a process group: its ranks agree through the group's store on ids and on where they meet."""

from __future__ import annotations

import json
import os
import socket
import threading
from datetime import timedelta
from typing import NamedTuple

import torch.distributed as dist

from ..session import Session
from .options import Options

_KEY = "sluice/session"
SESSIONS = 2  # that a group may open
_lock = threading.Lock()
# By address: the port of this process's co-located reducer, for all groups of which it is the first rank. The socket reserves it.
_ports: dict[str, socket.socket] = {}


class GroupSessions(NamedTuple):
    """What the ranks of a group must agree on before they open sessions."""

    ids: list[bytes]  # of the sessions that the group may open
    meeting_point: str
    rank: int
    ranks: int
    options: Options

    def open(self, index: int, timeout: timedelta) -> Session:
        """Collective over the group. Raises a subclass of sluice.Error.

        `timeout` limits the join and each later operation."""
        limit_ms = max(1, min(int(timeout.total_seconds() * 1000), (1 << 31) - 1))
        return Session(None, session_id=self.ids[index], rank=self.rank, ranks=self.ranks, rendezvous=self.meeting_point,
                       join_timeout_ms=limit_ms, op_timeout_ms=limit_ms, wire_dtype=self.options.wire_dtype,
                       wire_min_count=self.options.wire_min_count, on_finding=self.options.on_finding)


def agree(store: dist.Store, rank: int, ranks: int, options: Options) -> GroupSessions:
    """Collective over the group. Nothing uses the store later: a thread that waits for a key holds the store's lock."""
    if rank == 0:
        store.set(_KEY, json.dumps({"ids": [os.urandom(16).hex() for _ in range(SESSIONS)], "meeting_point": meeting_point()}))
    agreed = json.loads(store.get(_KEY))
    return GroupSessions([bytes.fromhex(text) for text in agreed["ids"]], agreed["meeting_point"], rank, ranks, options)


def meeting_point() -> str:
    """Returns host:port for this process's co-located reducer. Used only by groups without dedicated reducers."""
    address = _own_address()
    with _lock:
        if address not in _ports:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            holder = socket.socket(family, socket.SOCK_STREAM)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the reducer listens at the same port
            holder.bind((address, 0))
            _ports[address] = holder
        port = _ports[address].getsockname()[1]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _own_address() -> str:
    """Returns the address of this host on its route to the first rank of the job: other hosts reach this one at it, too."""
    host = os.environ.get("MASTER_ADDR") or socket.gethostname()
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as route:
            route.connect(target)  # chooses a route; a datagram socket sends nothing here
            return str(route.getsockname()[0])
    except OSError:
        return "127.0.0.1"  # as gloo does if the host name has no address
