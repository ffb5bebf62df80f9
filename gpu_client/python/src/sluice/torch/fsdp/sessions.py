"""Opens the sessions of a process group of any backend: its ranks agree through the group's own collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Optional

import torch.distributed as dist

from ...errors import Error
from ...session import Session
from .. import group_session
from ..device import Device
from ..options import Options
from .channel import Channel


class Announcement(NamedTuple):
    arguments: Mapping[str, Any]  # must be equal on all ranks
    own: list[Any]  # of group_session.announcement()
    refusal: str  # why this rank cannot take part


def open_channels(group: dist.ProcessGroup, arguments: Mapping[str, Any], wires: Sequence[Optional[str]], options: Options, device: Optional[Device],
                  timeout: timedelta) -> list[Channel]:
    """Collective over the group. Opens a session for each of `wires`, the types on the wire.

    `arguments`: what must be equal on all ranks, by the names for the error. device: as Channel's. Raises ValueError on all ranks if they
    differ, DistBackendError if a session cannot be opened."""
    announced: list[Any] = [None] * group.size()
    dist.all_gather_object(announced, _announcement(arguments), group=group)
    ranks = dist.get_process_group_ranks(group)
    _check_equal(announced, ranks)
    agreed: list[Any] = [_decision(announced) if group.rank() == 0 else None]
    dist.broadcast_object_list(agreed, src=ranks[0], group=group)
    if isinstance(agreed[0], str):
        raise dist.DistBackendError(agreed[0])
    own = announced[group.rank()].own
    sessions = group_session.sessions_of(agreed[0], own, group.rank(), group.size(), options)._replace(device_options=device.session_options if device else {})
    channels: list[Channel] = []
    try:
        for index, wire in enumerate(wires):
            session: Session = sessions._replace(options=replace(options, wire_dtype=wire)).open(index, timeout)
            channels.append(Channel(session, ranks, device, timeout))
    except Error as error:
        for channel in channels:
            channel.session.abort(f"rank {group.rank()} could not open another session")
            channel.close()
        raise dist.DistBackendError(f"fsdp.offload: {error}") from error
    return channels


def _announcement(arguments: Mapping[str, Any]) -> Announcement:
    try:
        return Announcement(arguments, group_session.announcement(None), "")
    except (dist.DistBackendError, OSError) as error:  # told to all ranks, which would wait for this one
        return Announcement(arguments, [], str(error))


def _check_equal(announced: list[Announcement], ranks: Sequence[int]) -> None:
    for rank, other in zip(ranks, announced):
        if other.refusal:
            raise dist.DistBackendError(f"fsdp.offload: rank {rank}: {other.refusal}")
        for name, value in announced[0].arguments.items():
            if other.arguments.get(name) != value:
                raise ValueError(f"ranks differ in {name}: {value!r} on rank {ranks[0]}, {other.arguments.get(name)!r} on rank {rank}")


def _decision(announced: list[Announcement]) -> Any:
    """Returns what all ranks need, or the text of an error."""
    try:
        return group_session.decide([each.own for each in announced])
    except dist.DistBackendError as error:
        return str(error)
