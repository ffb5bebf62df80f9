"""Opens the sessions of a process group: its ranks agree on ids, on reducers and on where they meet."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from .. import _library
from ..errors import Error, System, Unsupported
from ..options import session_options, stream_options
from ..request import FindingReader
from ..session import Session
from . import agreement, meeting
from .device import Device
from .options import Options, reduces_in_host

SESSIONS = 4  # that a group may open: for all operations, for large all-gathers, for these without dedicated reducers, and for a GPU
OF_STREAMS = 3
_SHARING_RANKS = 64  # of one host: libsluice's limit
_PROBED_BYTES = 1 << 18  # the least staging memory of a session
_REDUCERS = "SLUICE_REDUCERS"
_ANYWHERE = "127.0.0.1"  # the host of a meeting point, for a check
_PREFIX = "backend sluice: "
# The first sessions of the groups of this process that have dedicated reducers, and the list with which each was configured.
_pools: weakref.WeakKeyDictionary[Session, Optional[str]] = weakref.WeakKeyDictionary()
_pools_lock = threading.Lock()  # a thread may create a group while another gathers


class GroupSessions(NamedTuple):
    """What the ranks of a group must agree on before they open sessions."""

    ids: list[bytes]  # of the sessions that the group may open
    meeting_point: str
    rank: int
    ranks: int
    options: Options
    reducers: Optional[str] = None  # those that serve the process's other groups now; None: as configured
    may_share_memory: bool = False  # all ranks run on this host, and are not too many
    ranks_in_job: Sequence[int] = ()  # their numbers there; none: the same as here
    device_options: Mapping[str, Any] = MappingProxyType({})  # Session's, for tensors that are not in host memory

    def open(self, index: int, timeout: timedelta, reducers: Optional[str] = None) -> Session:
        """Collective over the group. Raises a subclass of sluice.Error.

        `timeout` limits the join and each later operation. `reducers`: None: those of the agreement."""
        limit_ms = max(1, min(int(timeout.total_seconds() * 1000), (1 << 31) - 1))
        reducers = reducers or self.reducers
        if self.may_share_memory and "none" in (reducers, os.environ.get(_REDUCERS, "none")):
            try:
                session = self._open(index, limit_ms, reducers, rendezvous="")  # without a pool: through shared memory
            except (Unsupported, System) as error:  # of all ranks alike
                warnings.warn(f"backend sluice: the ranks of this host cannot share memory: {error}", RuntimeWarning, stacklevel=2)
                session = self._open(index, limit_ms, reducers, self.meeting_point)
        else:
            session = self._open(index, limit_ms, reducers, self.meeting_point)
        if self.ranks_in_job and list(self.ranks_in_job) != list(range(self.ranks)):
            session.remark = f"; ranks of this group are ranks {', '.join(map(str, self.ranks_in_job))} of the job, in this order"
        configured = os.environ.get(_REDUCERS)
        if session.stats().reducers > 0:
            if index == 0:
                with _pools_lock:
                    _pools[session] = configured
            if self.rank == 0 and reducers not in (None, configured) and configured:
                with suppress(Error):  # keep_results is off: the session has these reducers to its end
                    session.set_reducers(configured)  # watches the file, and adds reducers that come back
        return session

    def _open(self, index: int, limit_ms: int, reducers: Optional[str], rendezvous: str) -> Session:
        o = self.options
        return Session(reducers, session_id=self.ids[index], rank=self.rank, ranks=self.ranks, rendezvous=rendezvous,
                       join_timeout_ms=limit_ms, op_timeout_ms=limit_ms, wire_dtype=o.wire_dtype, wire_min_count=o.wire_min_count,
                       on_finding=o.on_finding, job=o.job, tenant=o.tenant, key_file=o.key_file, token_file=o.token_file, tls=o.tls,
                       tls_ca=o.tls_ca, tls_cert=o.tls_cert, tls_key=o.tls_key, **self.device_options)


def failure_of(device: Device) -> Optional[Error]:
    """Returns why this process cannot open streams of the device, or None, also where a session needs reducers and so nothing can be tried."""
    try:
        with _place_alone() as rendezvous:
            if rendezvous is not None:
                Session("none", session_id=os.urandom(16), rank=0, ranks=1, rendezvous=rendezvous, staging_bytes=_PROBED_BYTES,
                        piece_bytes=_PROBED_BYTES // 4, **device.session_options).close()
    except Error as error:
        return error
    return None


@contextmanager
def _place_alone() -> Iterator[Optional[str]]:
    """Yields where a session of this rank alone meets, wherever its groups do, or None if SLUICE_HOSTS and SLUICE_COLOCATED allow no session
    without reducers."""
    if os.environ.get("SLUICE_HOSTS") != "off":
        yield ""  # in the host's memory
    elif os.environ.get("SLUICE_COLOCATED") == "off":
        yield None
    else:
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the reducer listens at the same port
            holder.bind((_ANYWHERE, 0))
            yield f"{_ANYWHERE}:{holder.getsockname()[1]}"


def check_options(options: Options, rank: int, ranks: int) -> None:
    """Raises what would keep this rank from joining a session of the group, such as a key file that cannot be read: a subclass of
    sluice.Error, ImportError without libsluice, TypeError or ValueError."""
    library, o = _library.load(), options
    read = session_options(library, present_reducers(), os.urandom(16), {  # a list that these replace may be gone
        "rank": rank, "ranks": ranks, "rendezvous": _ANYWHERE, "job": o.job, "tenant": o.tenant, "key_file": o.key_file, "token_file": o.token_file,
        "tls": o.tls, "tls_ca": o.tls_ca, "tls_cert": o.tls_cert, "tls_key": o.tls_key})
    stream_options(library, None, o.wire_dtype, {"wire_min_count": o.wire_min_count})
    FindingReader(o.on_finding)
    reduces_in_host(o.reduce_in_host)
    text = ctypes.create_string_buffer(_library.ERROR_BYTES)
    status = library.sluice_options_check(ctypes.byref(read), text, len(text))
    _library.check(status, text.value.decode(errors="replace"))


def agree(store: dist.Store, rank: int, ranks: int, options: Options, timeout: timedelta) -> tuple[str, GroupSessions, Optional[str]]:
    """Collective over the group. Returns a prefix for gloo's keys in the store, what the sessions need, and the address for gloo (None: its own choice).

    Raises on all ranks if one cannot join, which the others would wait for: there its own error, DistBackendError with its text on the others."""
    own, failure = [], None
    try:
        check_options(options, rank, ranks)
        own = announcement(store)
    except Exception as error:
        failure = error
    nonce, agreed = agreement.agree(store, rank, ranks, [own, "" if failure is None else str(failure)], _decide, timeout)
    if isinstance(agreed, str):
        agreement.leave(store, nonce, rank, ranks)
        if isinstance(failure, Error):
            raise dist.DistBackendError(f"backend sluice: {failure}") from failure
        raise failure or dist.DistBackendError(f"backend sluice: {agreed}")
    return nonce, sessions_of(agreed, own, rank, ranks, options), meeting.gloo_address(own[1]) if agreed["hosts"] > 1 else None


def _decide(announced: list[Any]) -> Any:
    """Returns decide() of what the ranks announce, or why one of them cannot join."""
    refusals = [f"rank {rank}: {refusal.removeprefix(_PREFIX)}" for rank, (_, refusal) in enumerate(announced) if refusal]
    try:
        return refusals[0] if refusals else decide([own for own, _ in announced])
    except dist.DistBackendError as error:
        return f"rank 0: {str(error).removeprefix(_PREFIX)}"


def announcement(store: Optional[dist.Store]) -> list[Any]:
    """Returns what the other ranks must know of this one, as values of JSON: its host, the host's addresses, whose memory it may share."""
    return [meeting.host_id(), meeting.own_addresses(store), meeting.memory_id()]


def decide(announced: list[Any]) -> dict[str, Any]:
    """Called on rank 0 with the announcements of all ranks. Returns what all need for sessions_of(), as values of JSON."""
    return {"ids": [os.urandom(16).hex() for _ in range(SESSIONS)], "reducers": present_reducers(),
            "meeting_point": meeting.meeting_point(_reachable(announced)), "hosts": len({host for host, *_ in announced}),
            "may_share_memory": announced[0][2] is not None and len({memory for _, _, memory in announced}) == 1 and len(announced) <= _SHARING_RANKS}


def sessions_of(agreed: dict[str, Any], own: list[Any], rank: int, ranks: int, options: Options) -> GroupSessions:
    """`agreed`: from decide() on rank 0; `own`: this rank's announcement()."""
    return GroupSessions([bytes.fromhex(text) for text in agreed["ids"]], meeting.with_own_scope(agreed["meeting_point"], own[1]), rank, ranks,
                         options, agreed["reducers"], agreed["may_share_memory"])


def present_reducers() -> Optional[str]:
    """Returns the reducers that serve this process's groups, or None if these have the configured ones, or there are no such groups."""
    with _pools_lock:
        pools = list(_pools.items())
    for session, configured in pools:
        try:
            if configured != os.environ.get(_REDUCERS) or session.error() is not None:
                continue
            stats, reducers = session.stats(), session.reducers()
        except Error:  # the session is closed
            continue
        if stats.view_changes or reducers.count(",") + 1 != stats.reducers:
            return None if reducers == "none" else reducers
        return None
    return None


def _reachable(announced: list[Any]) -> str:
    """Returns the first rank's address at which all ranks reach it. `announced`: the host and the addresses of each rank."""
    (own_host, own, _), *others = announced
    distant = [address for host, addresses, _ in others if host != own_host for address in addresses if not meeting.is_loopback(address)]
    if not meeting.is_loopback(own[0]) or all(host == own_host for host, *_ in others):
        return str(own[0])
    routes = [meeting.route_source(address) for address in distant if "%" not in address] + own
    return next((address for address in routes if address and not meeting.is_loopback(address)), str(own[0]))
