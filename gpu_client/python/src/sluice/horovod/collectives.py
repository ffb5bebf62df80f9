"""The collectives of horovod.torch, through reducers. Results carry no gradients."""

from __future__ import annotations

import enum
import io
import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union, cast

import torch

from ..placement import launchers
from ..request import Request
from ..residuals import Residuals, is_on
from ..session import Session
from .job import Job, Layout


class ReduceOp(enum.Enum):
    Average = "avg"
    Sum = "sum"
    Min = "min"
    Max = "max"
    Product = "prod"


Average, Sum, Min, Max, Product = ReduceOp


@dataclass(frozen=True)
class Compressor:
    """How float32 travels: the wire type of a session of its own, which opens at the first use. Other types travel as they are."""

    wire: Optional[str]


class Compression:
    none = Compressor(None)  # as SLUICE_WIRE says, f32 without
    fp16 = Compressor("f16")


class Handle:
    """An operation in progress, for poll() and synchronize()."""

    def __init__(self, request: Optional[Request], finish: Callable[[], Any]) -> None:
        """`finish` makes the result after the request has ended; None: nothing to wait for."""
        self._request, self._finish = request, finish
        self._is_finished, self._result = False, cast(Any, None)

    def poll(self) -> bool:
        return self._request is None or self._request.done()

    def synchronize(self) -> Any:
        if self._request is not None:
            self._request.wait()
        if not self._is_finished:
            self._is_finished, self._result = True, self._finish()
        return self._result


_job: Optional[Job] = None
_jobs = 0  # that this process has made


def init(comm: None = None) -> None:
    """Joins the other ranks, which the variables of the launcher name. Has no effect in a job that has begun."""
    global _job, _jobs
    if comm is not None:
        raise ValueError("sluice.horovod.init(comm=...) is not possible: all ranks of the launcher train together")
    if _job is None:
        _jobs += 1
        _job = Job(launchers.find(), _jobs)


def shutdown() -> None:
    global _job
    job, _job = _job, None
    if job is not None:
        job.close()


def is_initialized() -> bool:
    return _job is not None


def job() -> Job:
    if _job is None:
        raise ValueError("sluice.horovod is not initialized; call hvd.init()")
    return _job


def layout() -> Layout:
    return job().layout


def sessions() -> list[Session]:
    """Returns the sessions of this job, for their counters. Not in Horovod."""
    return job().sessions()


def synchronize(handle: Handle) -> Any:
    """Waits for the operation and returns its result. Raises a subclass of sluice.Error with the reason if it failed."""
    return handle.synchronize()


def poll(handle: Handle) -> bool:
    return handle.poll()


def allreduce_async(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[ReduceOp] = None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0, *, compression: Compressor = Compression.none) -> Handle:
    output = torch.empty_like(tensor, requires_grad=False)
    return _first(_reduced([tensor], [output], _operator(average, op), compression, prescale_factor, postscale_factor, name))


def allreduce_async_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[ReduceOp] = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Handle:
    return _first(_reduced([tensor], [tensor], _operator(average, op), Compression.none, prescale_factor, postscale_factor, name))


def allreduce(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None, compression: Compressor = Compression.none,
              op: Optional[ReduceOp] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    return allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor, compression=compression).synchronize()


def allreduce_(*arguments: Any, **options: Any) -> Any:
    return allreduce_async_(*arguments, **options).synchronize()


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None, op: Optional[ReduceOp] = None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0, *, compression: Compressor = Compression.none) -> Handle:
    outputs = [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]
    return _reduced(tensors, outputs, _operator(average, op), compression, prescale_factor, postscale_factor, name)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None, op: Optional[ReduceOp] = None,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Handle:
    return _reduced(tensors, tensors, _operator(average, op), Compression.none, prescale_factor, postscale_factor, name)


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
                      compression: Compressor = Compression.none, op: Optional[ReduceOp] = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0) -> Any:
    return grouped_allreduce_async(tensors, average, name, op, prescale_factor, postscale_factor, compression=compression).synchronize()


def grouped_allreduce_(*arguments: Any, **options: Any) -> Any:
    return grouped_allreduce_async_(*arguments, **options).synchronize()


def reduce_gradients(gradients: Sequence[torch.Tensor], op: ReduceOp, compression: Compressor, residuals: Residuals, name: str) -> Handle:
    """Reduces in place. `residuals`: for error feedback with wire types of 8 bits."""
    return _reduced(gradients, gradients, op, compression, 1.0, 1.0, name, residuals)


def reducescatter_async(tensor: torch.Tensor, name: Optional[str] = None, op: ReduceOp = Average, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0, *, compression: Compressor = Compression.none) -> Handle:
    """The first dimension is divided among the ranks; where it is not a multiple, the first ranks get a row more."""
    at, source = job(), tensor.detach().clone(memory_format=torch.contiguous_format)
    if source.dim() == 0:
        raise ValueError("reducescatter needs a tensor with a first dimension, which it divides among the ranks")
    if prescale_factor != 1.0:
        source.mul_(prescale_factor)
    rows = [len(source) // at.ranks + (rank < len(source) % at.ranks) for rank in range(at.ranks)]
    part = source.new_empty(rows[at.rank], *source.shape[1:])
    finish = _Finish([part], [part], op, postscale_factor, at.ranks)
    if at.ranks == 1:
        part.copy_(source)
        return _first(Handle(None, finish))
    counts = [count * math.prod(source.shape[1:]) for count in rows]
    session = at.session(source.device, _wire(compression))
    with at.issuing:
        request = session.reduce_scatter_async(source, part, finish.operator, counts=counts, name=name)
    return _first(Handle(request, finish))


def reducescatter(tensor: torch.Tensor, name: Optional[str] = None, compression: Compressor = Compression.none, op: ReduceOp = Average,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    return reducescatter_async(tensor, name, op, prescale_factor, postscale_factor, compression=compression).synchronize()


def allgather_async(tensor: torch.Tensor, name: Optional[str] = None) -> Handle:
    """Concatenates the tensors of all ranks, which may differ in their first dimension. Waits until all have told theirs."""
    at, part = job(), tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach().contiguous()
    width = math.prod(part.shape[1:]) * part.element_size()
    announced = at.gather(len(part), width)
    if any(other != width for _, other in announced):
        raise ValueError(f"allgather: the rows of the ranks have {', '.join(str(other) for _, other in announced)} bytes; expected tensors that differ only "
                         "in their first dimension")
    whole = part.new_empty(sum(rows for rows, _ in announced), *part.shape[1:])
    if at.ranks == 1 or whole.numel() == 0:
        return Handle(None, lambda: whole.copy_(part))
    counts = [rows * width for rows, _ in announced]
    with at.issuing:
        request = at.session(part.device).all_gather_async(_as_bytes(part), _as_bytes(whole), counts=counts, name=name)
    return Handle(request, lambda: whole)


def allgather(tensor: torch.Tensor, name: Optional[str] = None) -> Any:
    return allgather_async(tensor, name).synchronize()


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> Handle:
    return _first(broadcast_all([tensor], root_rank, name))


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> Any:
    return broadcast_async_(tensor, root_rank, name).synchronize()


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> Handle:
    return broadcast_async_(tensor.detach().clone(), root_rank, name)


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> Any:
    return broadcast_async(tensor, root_rank, name).synchronize()


def broadcast_all(tensors: Sequence[torch.Tensor], root_rank: int, name: Optional[str] = None) -> Handle:
    """Starts to copy the root's tensors into those of the others, which are all on one device."""
    at = job()
    if not 0 <= root_rank < at.ranks:
        raise ValueError(f"root_rank is {root_rank}; expected 0..{at.ranks - 1}")
    works = [tensor.detach().contiguous() for tensor in tensors]

    def finish() -> list[torch.Tensor]:
        for tensor, work in zip(tensors, works):
            if work.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(work)
        return list(tensors)

    if at.ranks == 1 or all(work.numel() == 0 for work in works):
        return Handle(None, finish)
    session = at.session(next(work for work in works if work.numel()).device)
    with at.issuing, session.group() as request:
        for work in works:
            if work.numel():
                session.broadcast_async(_as_bytes(work), root=root_rank, name=name)
    return Handle(request, finish)


def barrier() -> None:
    job().gather(0)


def broadcast_object(value: Any, root_rank: int = 0, name: Optional[str] = None) -> Any:
    """Returns the root's object, which pickle copies."""
    file = io.BytesIO()
    if job().rank == root_rank:
        torch.save(value, file)  # tensors too
    pickled = bytearray(file.getvalue())
    size = broadcast(torch.tensor([len(pickled)]), root_rank, name)
    data = torch.frombuffer(pickled, dtype=torch.uint8) if pickled else torch.empty(size.item(), dtype=torch.uint8)
    broadcast_(data, root_rank, name)
    return value if job().rank == root_rank else torch.load(io.BytesIO(data.numpy().tobytes()), map_location="cpu", weights_only=False)


def allgather_object(value: Any, name: Optional[str] = None) -> list[Any]:
    """Returns the objects of all ranks."""
    own = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
    sizes = [size for size, in job().gather(len(own))]
    return [pickle.loads(part.numpy().tobytes()) for part in allgather(own, name).split(sizes)]


class _Finish:
    """Makes the results of a reduction: divides where the session cannot, scales, and copies into outputs that are not contiguous."""

    def __init__(self, works: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], op: ReduceOp, scale: float, ranks: int) -> None:
        self._works, self._outputs, self._scale, self._ranks = works, outputs, scale, ranks
        self._has_integers = op is Average and any(not work.is_floating_point() for work in works)
        self.operator: str = "sum" if self._has_integers else op.value  # sessions average floats only

    def __call__(self) -> list[torch.Tensor]:
        for work, output in zip(self._works, self._outputs):
            if self._has_integers:
                work.div_(self._ranks, rounding_mode=None if work.is_floating_point() else "trunc")
            if self._scale != 1.0:
                work.mul_(self._scale)
            if work.data_ptr() != output.data_ptr():
                output.detach().copy_(work)
        return list(self._outputs)


def _reduced(tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], op: ReduceOp, compression: Compressor, prescale: float, postscale: float,
             name: Optional[str], residuals: Optional[Residuals] = None) -> Handle:
    """Starts to reduce the tensors, which are all on one device, into outputs that may be the tensors."""
    at, works = job(), []
    for tensor, output in zip(tensors, outputs):
        work = output.detach() if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format, requires_grad=False)
        if work.data_ptr() != tensor.data_ptr():
            work.copy_(tensor.detach())
        if prescale != 1.0:
            work.mul_(prescale)
        works.append(work)
    finish = _Finish(works, outputs, op, postscale, at.ranks)
    filled = [index for index, work in enumerate(works) if work.numel()]
    if at.ranks == 1 or not filled:
        return Handle(None, finish)
    session = at.session(works[filled[0]].device, _wire(compression))
    with at.issuing, session.group() as request:
        for index in filled:
            work = works[index]
            is_fed = residuals is not None and work.dtype == torch.float32 and is_on(None, session.wire_dtype)
            residual = residuals.of((name, index), work) if residuals is not None and is_fed else None
            session.allreduce_async(work, finish.operator, residual=residual, name=name)
    return Handle(request, finish)


def _first(handle: Handle) -> Handle:
    finish = handle._finish
    handle._finish = lambda: finish()[0]
    return handle


def _operator(average: Optional[bool], op: Optional[ReduceOp]) -> ReduceOp:
    if average is not None and op is not None:
        raise ValueError("average and op are both given; pass op only")
    chosen = op if op is not None else Sum if average is False else Average
    if not isinstance(chosen, ReduceOp):
        raise ValueError(f"op is {chosen!r}; expected hvd.Average, Sum, Min, Max or Product")
    return chosen


def _wire(compression: Union[Compressor, type]) -> Optional[str]:
    if not isinstance(compression, Compressor):
        raise TypeError(f"compression is {compression!r}; expected hvd.Compression.none or hvd.Compression.fp16, or set SLUICE_WIRE")
    return compression.wire


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A session moves bytes of any type."""
    return tensor.reshape(-1).view(torch.uint8)


def tensors_of(params: Union[dict[str, Any], Iterable[Any]]) -> list[torch.Tensor]:
    """Returns the tensors of a state_dict, of named parameters or of parameters, in the same order on all ranks."""
    values = [params[key] for key in sorted(params)] if isinstance(params, dict) else [each[1] if isinstance(each, tuple) else each for each in params]
    return [value for value in values if isinstance(value, torch.Tensor)]
