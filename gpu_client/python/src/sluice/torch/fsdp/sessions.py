"""Opens the sessions of a process group of any backend: its ranks agree through the group's own collectives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from ...errors import Error
from ...session import Session
from .. import group_session, meeting
from ..device import Device
from ..options import Options
from .channel import Channel
from .host_stage import HostStage, host_name, hosts_of, own_name


class Announcement(NamedTuple):
    arguments: Mapping[str, Any]  # must be equal on all ranks
    own: list[Any]  # of group_session.announcement()
    host: str  # host_name()
    name: str  # own_name()
    machine: str
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
    own_host = next((host for host in hosts if group.rank() in host), [])
    rail = [host[own_host.index(group.rank())] for host in hosts] or list(range(group.size()))
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
        if hosts and stage_device is not None:
            for _ in wires:
                stages.append(HostStage([ranks[rank] for rank in own_host], hosts, stage_device, timeout))
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
        return Announcement(arguments, group_session.announcement(None), host_name(), own_name(), meeting.machine_id(), "")
    except Exception as error:  # told to all ranks, which would wait for this one
        return Announcement(arguments, [], "", "", "", str(error))


def _check_equal(announced: list[Announcement], ranks: Sequence[int]) -> None:
    for rank, other in zip(ranks, announced):
        if other.refusal:
            raise dist.DistBackendError(f"fsdp.offload: rank {rank}: {other.refusal}")
        for name, value in announced[0].arguments.items():
            if other.arguments.get(name) != value:
                raise ValueError(f"ranks differ in {name}: {value!r} on rank {ranks[0]}, {other.arguments.get(name)!r} on rank {rank}")
    _check_names(announced, ranks)


def _check_names(announced: list[Announcement], ranks: Sequence[int]) -> None:
    named: dict[str, int] = {}
    for place, each in enumerate(announced):
        first = named.setdefault(each.name, place) if each.name else place
        if announced[first].machine != each.machine:  # their gradients would be added as those of one host
            two = " and ".join(f"rank {ranks[one]} ({announced[one].own[1][0]})" for one in (first, place))
            raise dist.DistBackendError(f"fsdp.offload: {two} have the same SLUICE_HOST_ID {each.name!r} on different machines")


def _hosts(announced: list[Announcement]) -> list[list[int]]:
    """Returns the ranks of each host, or nothing if each rank shall send by itself."""
    hosts = hosts_of([each.host for each in announced])
    if len(hosts) == len(announced) > 1:
        return []
    if len({len(host) for host in hosts}) > 1:
        counts = ", ".join(str(len(host)) for host in hosts)
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
