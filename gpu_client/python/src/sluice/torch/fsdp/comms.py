"""What FSDP2 calls in place of its own collectives: GradientScatter, ParameterGather and ReplicaAverage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist

from ...residuals import Residuals
from ..offload import movable, named_operator
from .channel import Channel


class _Comm:
    """FSDP allocates with it what it passes to the call."""

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class GradientScatter(_Comm):
    """For FSDPModule.set_custom_reduce_scatter: reduces the gradients of one module and leaves each rank its shard."""

    def __init__(self, channel: Channel, name: str, residuals: Optional[Residuals]) -> None:
        """name: of the module, in findings. residuals: None without error feedback."""
        self.channel = channel
        self._name = name
        self._residuals = residuals

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, op: Any,
                 async_op: bool = False) -> Optional[dist.Work]:
        """input_tensor: the shards of all ranks, in rank order; FSDP's own buffer, which a factor of `op` overwrites.

        output_tensor: as long as one shard. Raises DistBackendError, and TypeError for an operator that reducers lack."""
        operator = named_operator(op, input_tensor.is_floating_point())
        if operator is None:
            raise TypeError(f"{self._name}: reducers cannot reduce {input_tensor.dtype} by {op}")
        share, reduce_in_host = input_tensor.view(-1), None
        if operator.factor is not None:
            input_tensor.mul_(operator.factor)
        if (stage := self.channel.stage) is not None:
            share = stage.share_of(input_tensor)
            reduce_in_host = functools.partial(stage.reduce, input_tensor, share, dist.ReduceOp.AVG if operator.name == "avg" else dist.ReduceOp.SUM)
        residual = _residual(self._residuals, self._name, share)

        def begin(stream: Any) -> Any:
            return self.channel.session.reduce_scatter_async(share, output_tensor.view(-1), operator.name, stream=stream, residual=residual,
                                                             name=f"gradients of {self._name}")

        return self.channel.run(begin, (input_tensor, output_tensor, share, residual), async_op, before=reduce_in_host)


class ParameterGather(_Comm):
    """For FSDPModule.set_custom_all_gather: gathers the shards of a module's parameters, as they are."""

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self._name = name

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False) -> Optional[dist.Work]:
        """output_tensor: the shards of all ranks, in rank order; input_tensor may be this rank's part of it.

        With fewer ranks in `group` than in the session (reshard_after_forward=8), torch gathers itself."""
        stage = self.channel.stage
        if group.size() != (self.channel.session.ranks if stage is None else stage.ranks):
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
        share, gather_in_host = output_tensor, None
        if stage is not None:
            share = stage.share_of(output_tensor)
            gather_in_host = functools.partial(stage.gather, share, output_tensor)

        def begin(stream: Any) -> Any:
            return self.channel.session.all_gather_async(movable(input_tensor), movable(share), stream=stream, name=f"parameters of {self._name}")

        return self.channel.run(begin, (input_tensor, output_tensor, share), async_op, after=gather_in_host)


class ReplicaAverage:
    """For FSDPModule.set_all_reduce_hook: averages a shard of gradients over the replicas, in place."""

    def __init__(self, channel: Channel, name: str, residuals: Optional[Residuals], has_factor: Callable[[], bool]) -> None:
        """has_factor: whether the user's own factor divides the gradients, so that the replicas only add."""
        self.channel = channel
        self._name = name
        self._residuals = residuals
        self._has_factor = has_factor

    def __call__(self, reduce_output: torch.Tensor) -> None:
        op = "sum" if self._has_factor() else "avg"
        residual = _residual(self._residuals, self._name, reduce_output)

        def begin(stream: Any) -> Any:
            return self.channel.session.allreduce_async(reduce_output, op, stream=stream, residual=residual, name=f"gradients of {self._name}")

        self.channel.run(begin, (reduce_output, residual))


def _residual(residuals: Optional[Residuals], name: str, gradients: torch.Tensor) -> Optional[torch.Tensor]:
    return None if residuals is None or gradients.dtype != torch.float32 else residuals.of(name, gradients)
