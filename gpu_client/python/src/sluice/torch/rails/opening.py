"""open_streams(): opens what the collectives of a device with streams need. The ranks agree through the process group's first session."""

from __future__ import annotations

import json
import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from ...errors import Error, System
from ...session import Session
from .. import group_session
from ..device import Device
from ..devices.streamed import StreamedCollectives
from ..group_session import OF_STREAMS, GroupSessions
from ..options import reduces_in_host
from .host_group import HostGroup
from .host_stage import HostStage
from .layout import HostName, Rail, counts_text, hosts_of, name_on_two_machines, own_host, rail_of
from .railed_session import RailedSession

_OF_RAIL = 1  # in what the members of a rail agree on
_LOOPBACK = "127.0.0.1"
_CHECK_INTERVAL_S = 0.002


class _Told(NamedTuple):
    """What a rank tells the others, as values of JSON."""

    failure: str  # why it cannot use its device
    own: list[Any]  # of group_session.announcement()
    host: HostName
    is_wanted: Optional[bool]  # reduces_in_host()
    has_findings: bool
    has_groups: bool


def open_streams(sessions: GroupSessions, device: Device, first: Session, timeout: timedelta) -> StreamedCollectives:
    """Collective over the group, in the order of the first session's operations. Raises a subclass of sluice.Error or DistBackendError, on all ranks alike.

    Opens the session for the device, or where hosts have several ranks each their groups and rails."""
    failure = group_session.failure_of(device)
    own = group_session.announcement(None)
    options = sessions.options
    told = [_Told(*each)._replace(host=HostName(*each[2])) for each in _values_of_all(first, _Told(
        str(failure or ""), own, own_host(own[1][0]), reduces_in_host(options.reduce_in_host), options.on_finding is not None, device.has_groups()), timeout)]
    if failure is not None:
        raise failure
    if failed := [rank for rank, each in enumerate(told) if each.failure]:
        raise System(f"rank {failed[0]} cannot use its device; see its error")
    stream = device.new_stream()
    rail = _rail(told, first.rank)
    railed = None if rail is None else _open_rails(sessions, device, stream, first, rail, told, timeout)
    return StreamedCollectives(device, stream, railed or _open_whole(sessions, device, first, timeout))


def _open_whole(sessions: GroupSessions, device: Device, first: Session, timeout: timedelta) -> Session:
    """Collective over the group. Opens the session of all ranks with the reducers that rank 0's sessions use now."""
    reducers = _values_of_all(first, group_session.present_reducers() if first.rank == 0 else None, timeout)[0]
    return sessions._replace(device_options=device.session_options).open(OF_STREAMS, timeout, reducers)


def _rail(told: list[_Told], rank: int) -> Optional[Rail]:
    """Returns where this rank is if the hosts reduce first, otherwise None. Equal on all ranks but for the place."""
    for other, each in enumerate(told):
        if each.is_wanted != told[0].is_wanted:
            raise dist.DistBackendError(f"backend sluice: ranks differ in reduce_in_host: {told[0].is_wanted} on rank 0, {each.is_wanted} on rank {other}")
    names = [each.host for each in told]
    hosts = hosts_of(names)
    is_wanted = told[0].is_wanted
    if is_wanted is None:
        is_wanted = not any(each.has_findings for each in told)
    if not is_wanted or len(hosts) == len(told):
        return None
    if text := name_on_two_machines(names, range(len(told))):
        raise dist.DistBackendError(f"backend sluice: {text}")
    if without := [other for other, each in enumerate(told) if not each.has_groups]:
        _warn(f"torch has no NCCL on rank {without[0]}")
        return None
    if counts := counts_text(hosts):
        _warn(f"the hosts have {counts} ranks of the group")
        return None
    return rail_of(hosts, rank)


def _warn(reason: str) -> None:
    warnings.warn(f"backend sluice: the ranks of a host do not reduce among themselves first: {reason}", RuntimeWarning, stacklevel=8)


def _open_rails(sessions: GroupSessions, device: Device, stream: Any, first: Session, rail: Rail, told: list[_Told],
                timeout: timedelta) -> Optional[RailedSession]:
    """Collective over the group. Returns None if the ranks of a host cannot form a group."""
    half = timeout / 2  # the ranks tell each other within the timeout what has failed
    begun = _on_all(first, timeout, lambda: _begin(first.rank, rail, told, half))
    if begun.failure:
        _warn(begun.failure)
        return None
    port = begun.told[rail.own_host[0]][1]
    grouped = _on_all(first, timeout, lambda: (_host_group(device, stream, rail.own_host.index(first.rank), len(rail.own_host), begun.own, port, half), None))
    if grouped.failure:
        if grouped.own is not None:
            grouped.own.abort()
        _warn(grouped.failure)
        return None
    stage = HostStage(grouped.own, rail.hosts, device.device)
    session: Optional[Session] = None
    if len(rail.members) > 1:
        options = replace(sessions.options, wire_min_count=-(-sessions.options.wire_min_count // len(rail.own_host)))  # of a share
        decided = group_session.sessions_of(begun.told[rail.members[0]][0], told[first.rank].own, rail.place, len(rail.members), options)
        opened = _on_all(first, timeout, lambda: (decided._replace(device_options=device.session_options).open(_OF_RAIL, timeout), None))
        session = opened.own
        if opened.failure:
            stage.group.abort()
            if session is not None:
                session.abort(opened.failure)
                with suppress(Error):
                    session.close()
            raise System(opened.failure)
    return RailedSession(device, stream, stage, rail, session, first, lambda: _open_whole(sessions, device, first, timeout), timeout.total_seconds())


class _Step(NamedTuple):
    own: Any  # None after a failure of this rank
    told: list[Any]  # by all ranks
    failure: str  # of the first rank that has one, with its number


def _on_all(first: Session, timeout: timedelta, work: Callable[[], tuple[Any, Any]]) -> _Step:
    """Collective over the group. `work` returns what this rank keeps, and what it tells the others, a value of JSON."""
    own, told, failure = None, None, ""
    try:
        own, told = work()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    answers = _values_of_all(first, [told, failure], timeout)
    failures = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(answers) if text]
    return _Step(own, [each for each, _ in answers], failures[0] if failures else "")


def _begin(rank: int, rail: Rail, told: list[_Told], timeout: timedelta) -> tuple[Optional[dist.Store], tuple[Any, int]]:
    """The first member of a rail decides for it, and the first rank of a host listens there for the others.

    torch would listen at all addresses; libuv of torch 2.4 takes no socket that listens."""
    decision = group_session.decide([told[member].own for member in rail.members]) if rank == rail.members[0] and len(rail.members) > 1 else None
    if rank != rail.own_host[0]:
        return None, (decision, 0)
    with socket.socket() as listener:
        listener.bind((_LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        store = dist.TCPStore(_LOOPBACK, port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=False)
    return store, (decision, port)


def _host_group(device: Device, stream: Any, place: int, ranks: int, store: Optional[dist.Store], port: int, timeout: timedelta) -> HostGroup:
    """Collective over the ranks of a host. Tries the group, since NCCL refuses ranks that share a GPU only then. store: of the first of them."""
    store = store or dist.TCPStore(_LOOPBACK, port, is_master=False, timeout=timeout, wait_for_workers=False, use_libuv=False)
    of_torch = device.new_group(store, place, ranks, timeout)
    group = HostGroup(of_torch, device.close_group, device.abort_group)
    count, failures = torch.ones(1, device=device.device), []

    def add() -> None:
        try:
            group.all_reduce(count, dist.ReduceOp.SUM)
        except Exception as error:  # the stream goes on
            failures.append(error)

    device.follow(stream, device.current_stream())
    device.run(stream, add)
    event, deadline = device.record(stream), time.monotonic() + timeout.total_seconds()
    while not event.query() and time.monotonic() < deadline:
        time.sleep(_CHECK_INTERVAL_S)
    if failures or not event.query() or count.item() != ranks:
        group.abort()
        raise failures[0] if failures else System(f"the ranks of the host could not add within {timeout.total_seconds():g} s")
    of_torch._set_default_timeout(4 * timeout)  # Monitor ends a step earlier, with a better text
    return group


def _values_of_all(session: Session, value: Any, timeout: timedelta) -> list[Any]:
    """Collective over the session. Returns the values of all ranks, as JSON has them."""
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    counts = torch.zeros(session.ranks, dtype=torch.int64)
    session.all_gather_async(torch.tensor([text.numel()]), counts).wait(timeout.total_seconds())
    whole = torch.empty(int(counts.sum()), dtype=torch.uint8)
    session.all_gather_async(text, whole, counts=counts.tolist()).wait(timeout.total_seconds())
    return [json.loads(bytes(part.tolist())) for part in whole.split(counts.tolist())]
