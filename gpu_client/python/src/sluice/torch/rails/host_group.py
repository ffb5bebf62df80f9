"""Classes HostGroup and Disconnected: collectives of torch among the ranks of a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d  # has the options that torch.distributed does not export


class Disconnected(RuntimeError):
    """A collective that had begun has failed, as when another rank has ended."""


class HostGroup:
    """Owns a process group or a backend of torch. Its collectives are in order of torch's current stream, or block where there are no streams.

    All ranks of the host call them in one order. Tensors are contiguous; a part may be the caller's own part of the whole."""

    def __init__(self, group: Any, close: Callable[[Any], None], abort: Optional[Callable[[Any], None]] = None) -> None:
        """close: destroys the group. abort: the same, and ends collectives in progress; None for a caller that never aborts."""
        self._group = group
        self._close, self._abort = close, abort or close
        self.rank: int = group.rank()
        self.ranks: int = group.size()

    def all_reduce(self, tensor: torch.Tensor, op: Any) -> None:
        self._run("allreduce", [tensor], _with_operator(c10d.AllreduceOptions(), op))

    def reduce_scatter(self, part: torch.Tensor, whole: torch.Tensor, op: Any) -> None:
        self._run("_reduce_scatter_base", part, whole, _with_operator(c10d.ReduceScatterOptions(), op))

    def all_gather(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        self._run("_allgather_base", whole, part, c10d.AllgatherOptions())

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        options = c10d.BroadcastOptions()
        options.rootRank = root
        self._run("broadcast", [tensor], options)

    def close(self) -> None:
        """Later collectives raise DistBackendError. May be called again, by any thread."""
        self._end(self._close)

    def abort(self) -> None:
        """As close(), while collectives are in progress, whose results are undefined then."""
        self._end(self._abort)

    def _end(self, end: Callable[[Any], None]) -> None:
        group, self._group = self._group, None
        if group is not None:
            end(group)

    def _run(self, name: str, *arguments: Any) -> None:
        group = self._group  # which must live until the end of the wait, also if another thread ends it
        if group is None:
            raise dist.DistBackendError("the group of the host's ranks was destroyed")
        try:
            work = getattr(group, name)(*arguments)
        except dist.DistBackendError as error:  # NCCL's; another error is one of the arguments
            raise Disconnected(str(error)) from error
        try:
            work.wait()
        except RuntimeError as error:
            raise Disconnected(str(error)) from error


def _with_operator(options: Any, op: Any) -> Any:
    options.reduceOp = op
    return options
