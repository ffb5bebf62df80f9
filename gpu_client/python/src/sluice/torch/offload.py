"""Starts the collectives of a process group that reducers execute, with the tensors of torch as buffers of the session."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Protocol

import torch
import torch.distributed as dist

from ..completions import Operation

_ReduceOp = dist.ReduceOp.RedOpType

_OPS = {_ReduceOp.SUM: "sum", _ReduceOp.AVG: "avg", _ReduceOp.PRODUCT: "prod", _ReduceOp.MIN: "min", _ReduceOp.MAX: "max"}
_REDUCED = {torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn,
            torch.float8_e5m2}

Pairs = list[tuple[torch.Tensor, torch.Tensor]]
Feedback = Callable[[torch.Tensor], torch.Tensor]  # returns the residual of what is reduced: the tensor, or a share of it
Feedbacks = Sequence[Optional[Feedback]]  # empty: without error feedback


class Operator(NamedTuple):
    name: str  # of the session
    factor: Any = None  # PREMUL_SUM: every rank multiplies its tensor by it first


class Place:
    """Where an operation runs: a session, and the order in which torch's operations around it run. Here at once, on the caller's thread, for
    tensors in host memory. The caller waits for the requests, and then copies."""

    def __init__(self, session: Any) -> None:
        """session: a Session, or what has its functions."""
        self.session = session
        self.arguments: dict[str, Any] = {}  # of each operation of the session

    def run(self, work: Callable[[], object]) -> None:
        """Runs operations of torch, perhaps later."""
        work()

    def keep(self, tensor: torch.Tensor) -> None:
        """Keeps memory until the operations that use it have run."""

    def residual(self, feedback: Feedback, buffer: torch.Tensor) -> Any:
        """Returns what an operation of the session takes as the residual of the buffer."""
        residual = feedback(buffer)
        self.keep(residual)
        return residual

    def copy(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        self.run(lambda: tensor.detach().copy_(other))
        self.keep(tensor)
        self.keep(other)


class Gatherer(Protocol):
    """A Session, or a GatherSession."""

    def all_gather_async(self, x: torch.Tensor, out: torch.Tensor) -> Operation: ...


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
        factor = op.__getstate__()[1]
        return Operator("sum", factor) if are_floats and not (isinstance(factor, torch.Tensor) and factor.is_complex()) else None
    name = _OPS.get(kind)
    return None if name is None or (name == "avg" and not are_floats) else Operator(name)


def are_dense(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the session can copy the tensors: they are dense and on one device."""
    return all(tensor.layout == torch.strided and tensor.device == tensors[0].device and not tensor.is_quantized for tensor in tensors)


def all_reduce(place: Place, tensors: Sequence[torch.Tensor], op: Operator, feedbacks: Feedbacks = ()) -> Started:
    """`feedbacks`: None, or that of a tensor whose memory is reduced in place."""
    buffers = [_contribution(place, tensor, op) for tensor in tensors]
    used = _residuals(place, tensors, buffers, feedbacks)
    if len(buffers) == 1:
        request = place.session.allreduce_async(buffers[0], op.name, residual=used[0], **place.arguments)
    else:
        with place.session.group() as request:
            for buffer, residual in zip(buffers, used):
                place.session.allreduce_async(buffer, op.name, residual=residual, **place.arguments)
    return Started([request], _copies(tensors, buffers))


def reduce(place: Place, tensor: torch.Tensor, op: Operator, root: int) -> Started:
    buffer = _contribution(place, tensor, op)
    request = place.session.reduce_async(buffer, op.name, root=root, **place.arguments)
    return Started([request], _copies([tensor], [buffer]) if place.session.rank == root else [])


def broadcast(place: Place, tensor: torch.Tensor, root: int) -> Started:
    buffer = _dense(place, tensor)
    request = place.session.broadcast_async(movable(buffer), root=root, **place.arguments)
    return Started([request], _copies([tensor], [buffer]))


def reduce_scatter(place: Place, pairs: Pairs, op: Operator, feedbacks: Feedbacks = ()) -> Started:
    """`pairs`: (output, input with the parts of all ranks, in rank order). `feedbacks`: None, or that of an input whose memory is reduced."""
    outputs, wholes = [output for output, _ in pairs], [whole for _, whole in pairs]
    buffers, contributions = [_memory(place, output) for output in outputs], [_contribution(place, whole, op) for whole in wholes]
    requests = [place.session.reduce_scatter_async(contribution.view(-1), buffer.view(-1), op.name, residual=residual, **place.arguments)
                for buffer, contribution, residual in zip(buffers, contributions, _residuals(place, wholes, contributions, feedbacks))]
    return Started(requests, _copies(outputs, buffers))


def reduce_scatter_lists(place: Place, lists: Sequence[tuple[torch.Tensor, Sequence[torch.Tensor]]], op: Operator) -> Started:
    """`lists`: (output, a part for each rank), all of one shape."""
    pairs = []
    for output, parts in lists:
        whole = torch.empty((len(parts), *output.shape), dtype=output.dtype, device=output.device)
        for place_of_part, part in zip(whole.unbind(), parts):
            place.copy(place_of_part, part.detach())
        pairs.append((output, whole))
    return reduce_scatter(place, pairs, op)


def all_gather(place: Place, pairs: Pairs, gatherer: Optional[Gatherer] = None) -> Started:
    """`pairs`: (output for the parts of all ranks, in rank order, input)."""
    outputs = [output for output, _ in pairs]
    buffers = [_memory(place, output) for output in outputs]
    gather = functools.partial(place.session.all_gather_async, **place.arguments) if gatherer is None else gatherer.all_gather_async
    requests = [gather(movable(_dense(place, part)), movable(buffer)) for buffer, (_, part) in zip(buffers, pairs)]
    return Started(requests, _copies(outputs, buffers))


def all_gather_lists(place: Place, lists: Sequence[tuple[Sequence[torch.Tensor], torch.Tensor]], gatherer: Optional[Gatherer] = None) -> Started:
    """`lists`: (an output for each rank, input), all of one shape."""
    wholes = [torch.empty((place.session.ranks, *part.shape), dtype=part.dtype, device=part.device) for _, part in lists]
    started = all_gather(place, [(whole, part) for whole, (_, part) in zip(wholes, lists)], gatherer)
    return Started(started.requests, [pair for whole, (outputs, _) in zip(wholes, lists) for pair in zip(outputs, whole.unbind())])


def _residuals(place: Place, tensors: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor], feedbacks: Feedbacks) -> list[Any]:
    """Returns the residual of each buffer, None where it is a copy of the tensor."""
    if not feedbacks:
        return [None] * len(buffers)
    return [place.residual(feedback, buffer) if feedback is not None and buffer.data_ptr() == tensor.data_ptr() else None
            for tensor, buffer, feedback in zip(tensors, buffers, feedbacks)]


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _memory(place: Place, tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor's own memory, or other memory for a result."""
    buffer = tensor.detach() if _is_dense(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    place.keep(buffer)
    return buffer


def _dense(place: Place, tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor's own memory, or a contiguous copy."""
    buffer = _memory(place, tensor)
    if not _is_dense(tensor):
        place.copy(buffer, tensor.detach())
    return buffer


def _contribution(place: Place, tensor: torch.Tensor, op: Operator) -> torch.Tensor:
    if op.factor is None:
        return _dense(place, tensor)
    product = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    place.copy(product, tensor.detach())
    place.run(lambda: product.mul_(op.factor))
    return product


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory of a contiguous tensor, as bytes if the session does not know its type."""
    if tensor.dtype in _REDUCED:
        return tensor.view(-1)
    return torch.view_as_real(tensor).view(-1).view(torch.uint8) if tensor.is_complex() else tensor.view(-1).view(torch.uint8)


def _copies(tensors: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> Pairs:
    return [(tensor, buffer) for tensor, buffer in zip(tensors, buffers) if tensor.data_ptr() != buffer.data_ptr()]
