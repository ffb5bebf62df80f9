"""Classes HostStage and RailOrder: the part of a collective that stays within a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .host_group import HostGroup


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
    """Reduces within the host before, and gathers there after, the session of this rank's rail.

    A rail has the ranks with the same place in their hosts. So each rank sends to other hosts its share of what its host
    has, and a host sends the whole once. The functions enqueue work of torch on its current stream."""

    def __init__(self, group: HostGroup, hosts: Sequence[Sequence[int]], device: torch.device) -> None:
        """group: of the ranks of this host, in the order of `hosts`; the stage owns it.

        hosts: the ranks of each, by their numbers in the group; all have as many. device: of the tensors."""
        self.group = group
        self._order = RailOrder(hosts, device)
        self.ranks = self._order.ranks

    def share_of(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns memory for this rail's part of the parts of all ranks."""
        return torch.empty(whole.numel() // self.group.ranks, dtype=whole.dtype, device=whole.device)

    def reduce(self, whole: torch.Tensor, share: torch.Tensor, op: Any) -> None:
        """Reduces the rail's parts of `whole` over the host. whole: the parts of all ranks, in rank order; share: from share_of()."""
        self.group.reduce_scatter(share, self._order.to_rails(whole), op)

    def gather(self, share: torch.Tensor, whole: torch.Tensor) -> None:
        """Gathers the shares of the host's rails into `whole`, which is as in reduce()."""
        by_rails = torch.empty_like(whole)
        self.group.all_gather(by_rails, share)
        self._order.to_ranks(by_rails, whole)

    def close(self) -> None:
        """Destroys the group. Until then torch would keep its threads and connections. May be called again."""
        self.group.close()
