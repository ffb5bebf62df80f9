"""Which ranks share a host, and which are on one rail."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from .. import meeting


class HostName(NamedTuple):
    """Where a rank runs, for the other ranks, as values of JSON."""

    host: str  # equal on the ranks that may reduce among themselves first
    name: str  # what divides this machine into hosts, or an empty text; ranks of other machines must not have it
    machine: str
    address: str  # for errors


class Rail(NamedTuple):
    """Where a rank is, by numbers of ranks in the group. All hosts have as many ranks."""

    hosts: list[list[int]]  # the ranks of each
    own_host: list[int]
    members: list[int]  # of the rail, one of each host
    place: int  # of this rank among them, which is the place of its host


def own_host(address: str) -> HostName:
    """Ranks share a host if they are in a network namespace of one machine, unless SLUICE_HOST_ID divides it into hosts, or SLUICE_HOSTS=off
    makes each rank one."""
    if os.environ.get("SLUICE_HOSTS") == "off":
        return HostName(f"process {os.getpid()} of {meeting.host_id()}", "", meeting.machine_id(), address)
    name = os.environ.get("SLUICE_HOST_ID", "")
    return HostName(f"{meeting.host_id()} {name}", name, meeting.machine_id(), address)


def hosts_of(names: Sequence[HostName]) -> list[list[int]]:
    """Returns the ranks of each host, in the order of their first ranks. `names`: of each rank."""
    hosts: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        hosts.setdefault(name.host, []).append(rank)
    return list(hosts.values())


def name_on_two_machines(names: Sequence[HostName], ranks: Sequence[int]) -> str:
    """Returns the error of ranks whose data would be added as that of one host, or an empty text. ranks: their numbers for the text."""
    named: dict[str, int] = {}
    for place, each in enumerate(names):
        first = named.setdefault(each.name, place) if each.name else place
        if names[first].machine != each.machine:
            two = " and ".join(f"rank {ranks[one]} ({names[one].address})" for one in (first, place))
            return f"{two} have the same SLUICE_HOST_ID {each.name!r} on different machines"
    return ""


def rail_of(hosts: list[list[int]], rank: int) -> Rail:
    host = next(host for host in hosts if rank in host)
    members = [other[host.index(rank)] for other in hosts]
    return Rail(hosts, host, members, members.index(rank))


def counts_text(hosts: Sequence[Sequence[int]]) -> str:
    """Returns the numbers of ranks if the hosts have different ones, for a warning, or an empty text."""
    return ", ".join(str(len(host)) for host in hosts) if len({len(host) for host in hosts}) > 1 else ""
