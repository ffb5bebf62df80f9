"""Class Channel: a session that FSDP's collectives run in, in the order of FSDP's streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

from ...completions import CompletionThreads
from ...ddp import raise_findings
from ...errors import Error
from ...request import Request
from ...session import Session
from ..device import Device
from ..devices.streamed import Step
from ..offload import Started
from ..rails.host_stage import HostStage
from ..releases import ReferencedWork, untraced
from ..timeouts import of_call
from ..work import SessionWork

Begin = Callable[[Any], Request]
Work = Callable[[], object]


class Channel:
    """Owns its session and its stage. All ranks make the calls of a channel in one order, as FSDP does."""

    def __init__(self, session: Session, ranks: Sequence[int], device: Optional[Device], timeout: timedelta, stage: Optional[HostStage]) -> None:
        """ranks: those of the session, by their numbers in the job. device: None for host memory without streams. stage: None
        if the session has all ranks of the model."""
        self.session = session
        self.stage = stage
        self.ranks = list(ranks)
        self.is_closed = False
        self._device = device
        self._timeout = timeout
        self._completions = CompletionThreads("sluice-fsdp", session)
        self._side_stream: Any = None  # of calls with async_op, made at the first
        self._on_streams: list[Request] = []  # for whose end nobody waits

    def run(self, begin: Begin, tensors: Sequence[Optional[torch.Tensor]], async_op: bool = False, before: Optional[Work] = None,
            after: Optional[Work] = None) -> Optional[dist.Work]:
        """Runs an operation after what precedes on the current stream. Without `async_op`, what follows there sees the result.

        begin: starts the operation on the stream that it gets, and returns its request.
        tensors: all arrays of the operation; the caller keeps them until the current stream has the result.
        before, after: operations of torch that precede and follow it, in its order.

        On a device with streams it returns at once. Otherwise it waits, or without `after` returns a Work. Raises
        DistBackendError if the session has failed: with streams perhaps only in a later call."""
        try:
            if (error := self.session.error()) is not None:
                raise error
            raise_findings(self._on_streams)
            if self._device is not None:
                return self._enqueue(self._device, begin, tensors, async_op, before, after)
            if before is not None:
                before()
            work = _HostWork(self, begin(None), [tensor for tensor in tensors if tensor is not None])
        except Error as error:
            raise dist.DistBackendError(self.text(error)) from error
        if async_op and after is None:
            return work
        work.wait()
        if after is not None:
            after()
        return None

    def _enqueue(self, device: Device, begin: Begin, tensors: Sequence[Optional[torch.Tensor]], async_op: bool, before: Optional[Work],
                 after: Optional[Work]) -> Optional[dist.Work]:
        stream = current = device.current_stream()
        if async_op:
            if self._side_stream is None:
                self._side_stream = device.new_stream()
            stream = self._side_stream
            device.follow(stream, current)
        steps = [None if work is None else Step(self.session, work) for work in (before, after)]
        self._run(device, stream, steps[0])
        self._on_streams.append(begin(device.handle(stream)))
        self._run(device, stream, steps[1])
        if not async_op:
            return None
        for tensor in tensors:
            if tensor is not None:
                device.keep(tensor, stream)
        return _StreamWork(device, device.record(stream), tensors, [step for step in steps if step is not None])

    def _run(self, device: Device, stream: Any, step: Optional[Step]) -> None:
        if step is not None:
            device.run(stream, step)
            if step.error is not None:  # where it runs at once
                raise step.error

    def text(self, error: Exception) -> str:
        if self.ranks == list(range(dist.get_world_size() if dist.is_initialized() else len(self.ranks))):
            return str(error)
        return f"{error}; ranks of this session are ranks {', '.join(map(str, self.ranks))} of the job, in this order"

    def error(self) -> Optional[Exception]:
        """Returns the error with which the session ended, or None."""
        try:
            return self.session.error()
        except Error as error:  # the session is closed
            return error

    def close(self) -> None:
        self.is_closed = True
        with suppress(Error):
            self.session.close()
        self._side_stream = None
        if self.stage is not None:
            self.stage.close()


@untraced
class _HostWork(SessionWork):
    def __init__(self, channel: Channel, request: Request, tensors: list[torch.Tensor]) -> None:
        super().__init__(Started([request], []), tensors, channel._timeout, channel._completions)
        self._channel = channel

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        try:
            return super().wait(timeout)
        except dist.DistBackendError as error:
            raise dist.DistBackendError(self._channel.text(error)) from error.__cause__


@untraced
class _StreamWork(ReferencedWork):
    """The Work of an operation on a stream of its own: wait() lets the current stream wait, never the host."""

    def __init__(self, device: Device, event: Any, tensors: Sequence[Optional[torch.Tensor]], steps: Sequence[Step]) -> None:
        super().__init__()
        self._steps = steps
        self._device = device
        self._event = event
        self._tensors = [tensor for tensor in tensors if tensor is not None]

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        self._is_used()
        of_call(timeout)
        self._device.wait(self._device.current_stream(), self._event)
        if failed := [step.error for step in self._steps if step.error is not None]:
            raise dist.DistBackendError(str(failed[0])) from failed[0]
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        self._is_used()
        return bool(self._event.query())

    def result(self) -> list[torch.Tensor]:
        return self._tensors
