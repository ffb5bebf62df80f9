"""Opens the sessions of a process group of any backend: its ranks agree through the group's own collectives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from ...errors import Error
from ...session import Session
from .. import group_session
from ..device import Device
from ..options import Options
from ..rails.host_group import HostGroup
from ..rails.host_stage import HostStage
from ..rails.layout import HostName, counts_text, hosts_of, name_on_two_machines, own_host, rail_of
from .channel import Channel


class Announcement(NamedTuple):
    arguments: Mapping[str, Any]  # must be equal on all ranks
    own: list[Any]  # of group_session.announcement()
    host: HostName
    refusal: str  # why this rank cannot take part


def open_channels(group: dist.ProcessGroup, arguments: Mapping[str, Any], wires: Sequence[Optional[str]], options: Options, device: Optional[Device],
                  timeout: timedelta, stage_device: Optional[torch.device] = None) -> list[Channel]:
    """Collective over the group. Opens a session for each of `wires`, the types on the wire.

    arguments: what must be equal on all ranks, by the names for the error. device: as Channel's. stage_device: of the
    tensors, if ranks of a host shall first reduce among themselves; the sessions then have a rank of each host. Returns
    nothing if all ranks run on one host. Raises ValueError on all ranks if their arguments differ, DistBackendError if a
    session cannot be opened."""
    announced: list[Any] = [None] * group.size()
    dist.all_gather_object(announced, _announcement(arguments, options, device), group=group)
    ranks = dist.get_process_group_ranks(group)
    _check_equal(announced, ranks)
    hosts = [] if stage_device is None else _hosts(announced)
    if len(hosts) == 1:
        warnings.warn("fsdp.offload: all ranks of the model run on one host; torch reduces there by itself (SLUICE_HOSTS=off makes each rank a host)",
                      RuntimeWarning, stacklevel=5)
        return []
    hosts = [sorted(host, key=ranks.__getitem__) for host in hosts]  # the order in which torch's group has them
    own = rail_of(hosts, group.rank()) if hosts else None
    rail = own.members if own else list(range(group.size()))
    agreed: list[Any] = [None] * group.size()
    dist.all_gather_object(agreed, _decision([announced[rank] for rank in rail]) if group.rank() == rail[0] else None, group=group)
    if refusal := next((each for each in agreed if isinstance(each, str)), None):
        raise dist.DistBackendError(refusal)
    place = rail.index(group.rank())
    sessions = group_session.sessions_of(agreed[rail[0]], announced[group.rank()].own, place, len(rail), options)
    sessions = sessions._replace(device_options=device.session_options if device else {})
    stages: list[HostStage] = []
    channels: list[Channel] = []
    try:
        # A group for each session: torch's operations of one group follow one another, so a gather that waits for other hosts would
        # hold up the next reduction.
        if own and stage_device is not None:
            for _ in wires:
                stages.append(HostStage(_host_group([ranks[rank] for rank in own.own_host], timeout), hosts, stage_device))
        for index, wire in enumerate(wires):
            session: Session = sessions._replace(options=replace(options, wire_dtype=wire)).open(index, timeout)
            channels.append(Channel(session, [ranks[rank] for rank in rail], device, timeout, stages[index] if stages else None))
    except Exception as error:
        for channel in channels:
            channel.session.abort(f"rank {place} could not open another session")
            channel.close()
        for stage in stages:
            stage.close()
        if isinstance(error, Error):
            raise dist.DistBackendError(f"fsdp.offload: {error}") from error
        raise
    return channels


def _announcement(arguments: Mapping[str, Any], options: Options, device: Optional[Device]) -> Announcement:
    try:
        group_session.check_options(options, 0, 1)
        if device is not None and (failure := group_session.failure_of(device)) is not None:
            raise failure
        own = group_session.announcement(None)
        return Announcement(arguments, own, own_host(own[1][0]), "")
    except Exception as error:  # told to all ranks, which would wait for this one
        return Announcement(arguments, [], HostName("", "", "", ""), str(error))


def _host_group(ranks: list[int], timeout: timedelta) -> HostGroup:
    """Collective over the ranks of this host, by their numbers in the job."""
    def close(group: dist.ProcessGroup) -> None:
        with suppress(ValueError):  # torch has no groups any more
            dist.destroy_process_group(group)

    return HostGroup(dist.new_group(ranks, timeout=timeout, use_local_synchronization=True), close)


def _check_equal(announced: list[Announcement], ranks: Sequence[int]) -> None:
    for rank, other in zip(ranks, announced):
        if other.refusal:
            raise dist.DistBackendError(f"fsdp.offload: rank {rank}: {other.refusal}")
        for name, value in announced[0].arguments.items():
            if other.arguments.get(name) != value:
                raise ValueError(f"ranks differ in {name}: {value!r} on rank {ranks[0]}, {other.arguments.get(name)!r} on rank {rank}")
    if text := name_on_two_machines([each.host for each in announced], ranks):
        raise dist.DistBackendError(f"fsdp.offload: {text}")


def _hosts(announced: list[Announcement]) -> list[list[int]]:
    """Returns the ranks of each host, or nothing if each rank shall send by itself."""
    hosts = hosts_of([each.host for each in announced])
    if len(hosts) == len(announced) > 1:
        return []
    if counts := counts_text(hosts):
        warnings.warn(f"fsdp.offload: the hosts have {counts} ranks of the model; torch does not reduce within them, because the numbers differ",
                      RuntimeWarning, stacklevel=6)
        return []
    return hosts


def _decision(announced: list[Announcement]) -> Any:
    """Returns what all ranks need, or the text of an error."""
    try:
        return group_session.decide([each.own for each in announced])
    except dist.DistBackendError as error:
        return str(error)
