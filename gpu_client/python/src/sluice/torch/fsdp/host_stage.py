"""Classes HostStage and RailOrder: the part of a collective that stays within a host, in a group of torch such as NCCL's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Optional

import torch
import torch.distributed as dist

from .. import meeting


def host_name() -> str:
    """Equal on the ranks that may reduce among themselves first: those of a network namespace of one machine, unless SLUICE_HOST_ID divides
    it into hosts, or SLUICE_HOSTS=off makes each rank one."""
    if os.environ.get("SLUICE_HOSTS") == "off":
        return f"process {os.getpid()} of {meeting.host_id()}"
    return f"{meeting.host_id()} {own_name()}"


def own_name() -> str:
    """Returns the name that divides this machine into hosts, or an empty text. Ranks of other machines must not have it."""
    return "" if os.environ.get("SLUICE_HOSTS") == "off" else os.environ.get("SLUICE_HOST_ID", "")


def hosts_of(names: Sequence[str]) -> list[list[int]]:
    """Returns the ranks of each host, in the order of their first ranks. `names`: of each rank's host_name()."""
    hosts: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        hosts.setdefault(name, []).append(rank)
    return list(hosts.values())


class RailOrder:
    """Brings the parts of all ranks from rank order into the order of rails, and back. A rail has a rank of each host."""

    def __init__(self, hosts: Sequence[Sequence[int]], device: torch.device) -> None:
        """hosts: the ranks of each, all as many."""
        self.ranks = len(hosts) * len(hosts[0])
        self._by_rails = torch.tensor([host[place] for place in range(len(hosts[0])) for host in hosts], device=device)
        self._by_ranks = self._by_rails.argsort()

    def to_rails(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.view(self.ranks, -1).index_select(0, self._by_rails).view(-1)

    def to_ranks(self, by_rails: torch.Tensor, whole: torch.Tensor) -> None:
        """Writes `whole`."""
        torch.index_select(by_rails.view(self.ranks, -1), 0, self._by_ranks, out=whole.view(self.ranks, -1))


class HostStage:
    """Reduces gradients within the host before, and gathers parameters there after, the session of this rank's rail.

    A rail has the ranks with the same place in their hosts. So each rank sends to other hosts its share of what its host
    has, and a host sends the whole once. The functions enqueue work of torch on its current stream."""

    def __init__(self, own_host: list[int], hosts: Sequence[Sequence[int]], device: torch.device, timeout: timedelta) -> None:
        """Collective over the ranks of this host. own_host: these, by their numbers in the job, in the order of `hosts`.

        hosts: the ranks of each, by their numbers in the group; all have as many. device: of the tensors."""
        self._group: Optional[dist.ProcessGroup] = dist.new_group(own_host, timeout=timeout, use_local_synchronization=True)
        self._shares = len(own_host)
        self._order = RailOrder(hosts, device)
        self.ranks = self._order.ranks

    def share_of(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns memory for this rail's part of the parts of all ranks."""
        return torch.empty(whole.numel() // self._shares, dtype=whole.dtype, device=whole.device)

    def reduce(self, whole: torch.Tensor, share: torch.Tensor, average: bool) -> None:
        """Reduces the rail's parts of `whole` over the host. whole: the parts of all ranks, in rank order; share: from share_of()."""
        dist.reduce_scatter_tensor(share, self._order.to_rails(whole), dist.ReduceOp.AVG if average else dist.ReduceOp.SUM, group=self._group)

    def gather(self, share: torch.Tensor, whole: torch.Tensor) -> None:
        """Gathers the shares of the host's rails into `whole`, which is as in reduce()."""
        by_rails = torch.empty_like(whole)
        dist.all_gather_into_tensor(by_rails, share, group=self._group)
        self._order.to_ranks(by_rails, whole)


    def close(self) -> None:
        """Destroys the group. Until then torch would keep its threads and connections. May be called again."""
        group, self._group = self._group, None
        if group is not None:
            with suppress(ValueError):  # torch has no groups any more
                dist.destroy_process_group(group)
