"""Starts the collectives of a process group that reducers execute, with the tensors of torch as buffers of the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
import torch.distributed as dist

from ..completions import Operation
from ..session import Session
from .gather_session import GatherSession

_ReduceOp = dist.ReduceOp.RedOpType

_OPS = {_ReduceOp.SUM: "sum", _ReduceOp.AVG: "avg", _ReduceOp.PRODUCT: "prod", _ReduceOp.MIN: "min", _ReduceOp.MAX: "max"}
_REDUCED = {torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn,
            torch.float8_e5m2}

Pairs = list[tuple[torch.Tensor, torch.Tensor]]
ResidualOf = Callable[[torch.Tensor], Optional[torch.Tensor]]
Gatherer = Union[Session, GatherSession]


class Operator(NamedTuple):
    name: str  # of the session
    factor: Any = None  # PREMUL_SUM: every rank multiplies its tensor by it first


class Started(NamedTuple):
    """An operation of the session. When it has ended, the results are in the buffers."""

    requests: Sequence[Operation]
    copies: Pairs  # (tensor of the caller, other memory with its result)


def operator_of(op: Any, tensors: Sequence[torch.Tensor]) -> Optional[Operator]:
    """Returns the operator if reducers can reduce the tensors.

    Equal on all ranks, because they must pass equal operators and tensors of equal types."""
    if not tensors or not are_dense(tensors) or any(tensor.dtype not in _REDUCED for tensor in tensors):
        return None
    return named_operator(op, all(tensor.is_floating_point() for tensor in tensors))


def named_operator(op: Any, are_floats: bool) -> Optional[Operator]:
    """Returns the session's operator for one of torch, or None. `are_floats`: whether it reduces floats only."""
    kind = getattr(op, "op", op)
    if kind == _ReduceOp.PREMUL_SUM:
        return Operator("sum", op.__getstate__()[1]) if are_floats else None
    name = _OPS.get(kind)
    return None if name is None or (name == "avg" and not are_floats) else Operator(name)


def are_dense(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the session can copy the tensors: they are dense and in host memory."""
    return all(tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized for tensor in tensors)


def _no_residual(_: torch.Tensor) -> Optional[torch.Tensor]:
    return None


def all_reduce(session: Session, tensors: Sequence[torch.Tensor], op: Operator, residual_of: ResidualOf = _no_residual) -> Started:
    """`residual_of` returns the residual of a tensor whose memory is reduced in place, or None."""
    buffers = [_contribution(tensor, op) for tensor in tensors]
    residuals = [residual_of(buffer) if buffer.data_ptr() == tensor.data_ptr() else None for tensor, buffer in zip(tensors, buffers)]
    if len(buffers) == 1:
        request = session.allreduce_async(buffers[0], op.name, residual=residuals[0])
    else:
        with session.group() as request:
            for buffer, residual in zip(buffers, residuals):
                session.allreduce_async(buffer, op.name, residual=residual)
    return Started([request], _copies(tensors, buffers))


def reduce(session: Session, tensor: torch.Tensor, op: Operator, root: int) -> Started:
    buffer = _contribution(tensor, op)
    request = session.reduce_async(buffer, op.name, root=root)
    return Started([request], _copies([tensor], [buffer]) if session.rank == root else [])


def broadcast(session: Session, tensor: torch.Tensor, root: int) -> Started:
    buffer = _dense(tensor)
    request = session.broadcast_async(_movable(buffer), root=root)
    return Started([request], _copies([tensor], [buffer]))


def reduce_scatter(session: Session, pairs: Pairs, op: Operator) -> Started:
    """`pairs`: (output, input with the parts of all ranks, in rank order)."""
    outputs = [output for output, _ in pairs]
    buffers = [_dense(output) for output in outputs]
    requests = [session.reduce_scatter_async(_contribution(whole, op).view(-1), buffer.view(-1), op.name)
                for buffer, (_, whole) in zip(buffers, pairs)]
    return Started(requests, _copies(outputs, buffers))


def all_gather(session: Gatherer, pairs: Pairs) -> Started:
    """`pairs`: (output for the parts of all ranks, in rank order, input)."""
    outputs = [output for output, _ in pairs]
    buffers = [_dense(output) for output in outputs]
    requests = [session.all_gather_async(_movable(_dense(part)), _movable(buffer)) for buffer, (_, part) in zip(buffers, pairs)]
    return Started(requests, _copies(outputs, buffers))


def all_gather_lists(session: Gatherer, lists: Sequence[tuple[Sequence[torch.Tensor], torch.Tensor]]) -> Started:
    """`lists`: (an output for each rank, input), all of one shape."""
    wholes = [torch.empty((session.ranks, *part.shape), dtype=part.dtype) for _, part in lists]
    started = all_gather(session, [(whole, part) for whole, (_, part) in zip(wholes, lists)])
    return Started(started.requests, [pair for whole, (outputs, _) in zip(wholes, lists) for pair in zip(outputs, whole.unbind())])


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor's own memory, or a contiguous copy."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _contribution(tensor: torch.Tensor, op: Operator) -> torch.Tensor:
    return _dense(tensor) if op.factor is None else _dense(tensor) * op.factor


def _movable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory of a contiguous tensor, as bytes if the session does not know its type."""
    if tensor.dtype in _REDUCED:
        return tensor.view(-1)
    return torch.view_as_real(tensor).view(-1).view(torch.uint8) if tensor.is_complex() else tensor.view(-1).view(torch.uint8)


def _copies(tensors: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> Pairs:
    return [(tensor, buffer) for tensor, buffer in zip(tensors, buffers) if tensor.data_ptr() != buffer.data_ptr()]
