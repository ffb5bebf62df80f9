"""Class RailedSession: the collectives of a session for tensors of a device with streams, of which the part within a host runs in a group of torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from ...completions import Operation
from ...errors import Error
from ...session import Session
from ..device import Device
from ..offload import Feedback
from .host_stage import HostStage
from .layout import Rail
from .monitor import Monitor, SteppedOperation

LEAST_BYTES = 1 << 16  # of a collective of several hosts; a smaller one takes fewer steps in a session of all ranks
_LINGER_S = 5.0  # of close(), as by default of a session
_OPERATORS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


class _AllReduce(NamedTuple):
    """A call of allreduce_async()."""

    x: torch.Tensor
    op: str
    residual: Optional[Feedback]
    stream: Any


class JoinedOperation:
    """The operations of RailedSession.group()."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def wait(self, timeout: Optional[float] = None) -> None:
        for operation in self.operations:
            operation.wait(timeout)

    def done(self) -> bool:
        return all(operation.done() for operation in self.operations)

    def error(self) -> Optional[Exception]:
        return next((error for operation in self.operations if (error := operation.error()) is not None), None)


class RailedSession:
    """Has the functions of Session that process groups use, in the order of one stream. Tensors are contiguous, of the device.

    The ranks of a host leave each rank its share of what the host has; the session of its rail reduces the share over the hosts; the
    host gathers the shares. With one host there is no rail. Averages divide each share once, by all ranks. What the host's group
    cannot reduce, and small operations of several hosts, run in a session of all ranks, which is opened at the first of them. All of
    this depends on what is equal on all ranks."""

    def __init__(self, device: Device, stream: Any, stage: HostStage, rail: Rail, session: Optional[Session], first: Session,
                 open_whole: Callable[[], Session], timeout: float) -> None:
        """stage, session (None with one host): owned. first: the process group's session. open_whole: collective, opens the session of all ranks.
        timeout: of a step within the host, in seconds."""
        self.rank, self.ranks = first.rank, first.ranks
        self._first = first
        self._device, self._stream, self._rail = device, stream, rail
        self._stage, self._group = stage, stage.group
        self._session = session
        self._open_whole = open_whole
        self._whole: Optional[Session] = None
        self._no_whole: Optional[Error] = None  # why it could not be opened
        self._monitor = Monitor(device, stream, stage.group, first, session, rail, timeout)
        self._grouped: Optional[list[_AllReduce]] = None  # what group() has collected
        self._close_callbacks: list[Callable[[], None]] = []

    @property
    def counted(self) -> Optional[Session]:
        """The session with the counters: of the rail, otherwise of all ranks, None while there is neither."""
        return self._session or self._whole

    def allreduce_async(self, x: torch.Tensor, op: str = "sum", *, stream: Any = None, residual: Optional[Feedback] = None) -> Operation:
        call = _AllReduce(x, op, residual, stream)
        if self._grouped is not None:
            self._grouped.append(call)
            return JoinedOperation()  # nobody asks for it
        return self._all_reduce([call]) if self._is_stepped(x, op) else self._all_reduce_whole([call])

    def reduce_async(self, x: torch.Tensor, op: str = "sum", *, root: int = 0, stream: Any = None) -> Operation:
        if not self._is_stepped(x, op):
            return self._of_all().reduce_async(x, op, root=root, stream=stream)
        whole, _ = self._divided(x)
        share, gathered = self._memory(whole[:whole.numel() // self._group.ranks]), whole
        if root != self.rank and whole.data_ptr() == x.data_ptr():  # only the root's tensor is written
            gathered = self._memory(whole)
        self._monitor.run(lambda: _fill(whole, x), lambda: self._group.reduce_scatter(share, whole, _OPERATORS[op]), lambda: self._divide(share, op))
        request = None if self._session is None else self._begin(self._session.reduce_async, share, _summed(op), root=self._host_of(root), stream=stream)
        if root in self._rail.own_host:
            self._monitor.run(lambda: self._group.all_gather(gathered, share), after=request)
        if root == self.rank:
            self._monitor.run(lambda: _empty(gathered, x))
        return self._monitor.operation(request)

    def broadcast_async(self, x: torch.Tensor, *, root: int = 0, stream: Any = None) -> Operation:
        if not self._is_stepped(x):
            return self._of_all().broadcast_async(x, root=root, stream=stream)
        x = self._movable(x)
        own_host = self._rail.own_host
        if root in own_host:
            self._monitor.run(lambda: self._group.broadcast(x, own_host.index(root)))
        if self._session is None:
            return self._monitor.operation(None)
        whole, share = self._divided(x)
        if root in own_host:
            self._monitor.run(lambda: _fill(whole, x))
        request = self._begin(self._session.broadcast_async, share, root=self._host_of(root), stream=stream)
        if root not in own_host:
            self._monitor.run(lambda: self._group.all_gather(whole, share), lambda: _empty(whole, x), after=request)
        return self._monitor.operation(request)

    def reduce_scatter_async(self, x: torch.Tensor, out: torch.Tensor, op: str = "sum", *, stream: Any = None,
                             residual: Optional[Feedback] = None) -> Operation:
        if not self._is_stepped(x, op):
            return self._of_all().reduce_scatter_async(x, out, op, stream=stream, residual=self._residual(residual, x))
        if self._session is None:
            self._monitor.run(lambda: self._group.reduce_scatter(out, x, _OPERATORS[op]), lambda: self._divide(out, op))
            return self._monitor.operation(None)
        share = self._kept(self._stage.share_of(x))
        self._monitor.run(lambda: self._stage.reduce(x, share, _OPERATORS[op]), lambda: self._divide(share, op))
        request = self._begin(self._session.reduce_scatter_async, share, out, _summed(op), stream=stream, residual=self._residual(residual, share))
        return self._monitor.operation(request)

    def all_gather_async(self, x: torch.Tensor, out: torch.Tensor, *, stream: Any = None) -> Operation:
        if not self._is_stepped(out):
            return self._of_all().all_gather_async(x, out, stream=stream)
        x, out = self._movable(x), self._movable(out)
        if self._session is None:
            self._monitor.run(lambda: self._group.all_gather(out, x))
            return self._monitor.operation(None)
        share = self._kept(self._stage.share_of(out))
        request = self._begin(self._session.all_gather_async, x, share, stream=stream)
        self._monitor.run(lambda: self._stage.gather(share, out), after=request)
        return self._monitor.operation(request)

    @contextmanager
    def group(self) -> Iterator[Operation]:
        """Merges the allreduces within the block, which start at its end."""
        joined, self._grouped = JoinedOperation(), []
        try:
            yield joined
            calls = self._grouped
        finally:
            self._grouped = None
        for are_stepped, start in (False, self._all_reduce_whole), (True, self._all_reduce):
            if chosen := [call for call in calls if self._is_stepped(call.x, call.op) == are_stepped]:
                joined.operations.append(start(chosen))

    def error(self) -> Optional[Error]:
        """Returns why the collectives have ended, or None."""
        return self._monitor.error()

    def abort(self, reason: str = "") -> None:
        self._monitor.abort(reason)

    def close(self) -> None:
        """Leaves the sessions, the first one too, and destroys the host's group. Waits for collectives as Session.close().

        All at once: a session may linger until other ranks leave it, and until this rank has left all of them the others wait for it, or cannot
        tell who has left."""
        has_finished = self._monitor.finish(_LINGER_S)
        self._monitor.stop()
        end_group = self._stage.close if has_finished else self._group.abort  # close() could wait for ever
        with _on_threads(end_group, *(session.close for session in (self._session, self._whole) if session is not None)):
            with suppress(Error):  # the operations of a failed session have raised its error
                self._first.close()  # here, because it joins the threads of its futures, of which this may be one
        while self._close_callbacks:
            self._close_callbacks.pop()()

    def _call_at_close(self, callback: Callable[[], None]) -> None:
        """As Session's, for the threads of futures."""
        self._close_callbacks.append(callback)

    def _is_stepped(self, x: torch.Tensor, op: Optional[str] = None) -> bool:
        """x: the tensor of the collective that has the parts of all ranks, if they have parts. op: None if it is only moved."""
        if op is not None and (x.dtype not in self._device.grouped_types or (op == "avg" and x.dtype == torch.float16)):
            return False  # the sum of a host may not fit into 16 bits
        return self._session is None or x.numel() * x.element_size() >= LEAST_BYTES

    def _of_all(self) -> Session:
        """Collective at the first call, as all ranks come to it with the same operation."""
        if self._whole is None and self._no_whole is None:
            try:
                self._whole = self._open_whole()
                self._monitor.add_session(self._whole)
            except Error as error:
                self._no_whole = error
        if self._whole is None:
            raise self._no_whole or Error()
        return self._whole

    def _all_reduce_whole(self, calls: Sequence[_AllReduce]) -> Operation:
        return _all_reduce_in(self._of_all(), [(each.x, each.op, self._residual(each.residual, each.x), each.stream) for each in calls])

    def _all_reduce(self, calls: Sequence[_AllReduce]) -> Operation:
        if self._session is None:
            for x, op, _, _ in calls:
                self._monitor.run(partial(self._group.all_reduce, x, _OPERATORS[op]), partial(self._divide, x, op))
            return self._monitor.operation(None)
        shared = [(call, *self._divided(call.x)) for call in calls]
        for call, whole, share in shared:
            self._monitor.run(partial(_fill, whole, call.x), partial(self._group.reduce_scatter, share, whole, _OPERATORS[call.op]),
                              partial(self._divide, share, call.op))
        request = self._begin(_all_reduce_in, self._session, [(share, _summed(call.op), self._residual(call.residual, share), call.stream)
                                                              for call, _, share in shared])
        for call, whole, share in shared:
            self._monitor.run(partial(self._group.all_gather, whole, share), partial(_empty, whole, call.x), after=request)
        return self._monitor.operation(request)

    def _begin(self, start: Callable[..., Operation], *arguments: Any, **options: Any) -> Operation:
        """Starts an operation of the rail. The other ranks have begun the collective, so one that cannot ends it for all."""
        try:
            return start(*arguments, **options)
        except Exception as error:
            if (failure := self._monitor.error()) is not None:
                raise failure from error
            self._monitor.abort(f"rank {self.rank} could not begin a collective: {error}")
            raise

    def _divided(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the tensor, or memory for a longer copy that has equal shares for the ranks of the host, and this rank's share of it."""
        part = -(-x.numel() // self._group.ranks)
        whole = x.view(-1) if part * self._group.ranks == x.numel() else self._kept(torch.empty(part * self._group.ranks, dtype=x.dtype, device=x.device))
        return whole, whole[part * self._group.rank:][:part]

    def _divide(self, share: torch.Tensor, op: str) -> None:
        if op == "avg":
            share.div_(self.ranks)

    def _memory(self, like: torch.Tensor) -> torch.Tensor:
        return self._kept(torch.empty_like(like))

    def _kept(self, tensor: torch.Tensor) -> torch.Tensor:
        self._device.keep(tensor, self._stream)
        return tensor

    def _movable(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.dtype in self._device.grouped_types else x.view(torch.uint8)

    def _residual(self, feedback: Optional[Feedback], reduced: torch.Tensor) -> Optional[torch.Tensor]:
        return None if feedback is None else self._kept(feedback(reduced))

    def _host_of(self, rank: int) -> int:
        return next(index for index, host in enumerate(self._rail.hosts) if rank in host)


def _all_reduce_in(session: Session, calls: Sequence[tuple[torch.Tensor, str, Optional[torch.Tensor], Any]]) -> Operation:
    """Starts allreduces of (tensor, operator, residual, stream), as one operation."""
    if len(calls) == 1:
        x, op, residual, stream = calls[0]
        return session.allreduce_async(x, op, stream=stream, residual=residual)
    with session.group() as request:
        for x, op, residual, stream in calls:
            session.allreduce_async(x, op, stream=stream, residual=residual)
    return request


@contextmanager
def _on_threads(*functions: Callable[[], object]) -> Iterator[None]:
    """Runs the functions on threads beside the block, or after it where no thread can start, as at the end of the interpreter. Raises their first
    exception, unless it is a sluice.Error."""
    failures: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except Error:  # the operations of a failed session have raised its error
            pass
        except BaseException as error:
            failures.append(error)

    threads, later = [], []
    for function in functions:
        thread = threading.Thread(target=run, args=(function,), name="sluice-rails-end", daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:
            later.append(function)
    try:
        yield
    finally:
        for function in later:
            run(function)
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _summed(op: str) -> str:
    return "sum" if op == "avg" else op


def _fill(whole: torch.Tensor, x: torch.Tensor) -> None:
    """Copies the tensor into longer memory."""
    if whole.data_ptr() != x.data_ptr():
        whole[:x.numel()].copy_(x.view(-1))
        whole[x.numel():].zero_()


def _empty(whole: torch.Tensor, x: torch.Tensor) -> None:
    """Copies the beginning of other memory into the tensor."""
    if whole.data_ptr() != x.data_ptr():
        x.view(-1).copy_(whole[:x.numel()])
