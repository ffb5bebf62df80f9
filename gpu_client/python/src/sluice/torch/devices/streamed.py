"""Class StreamedCollectives: the collectives of a process group whose tensors are on a device with streams; StreamedWork and MessageWork."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Optional, Protocol, Union

import torch
import torch.distributed as dist

from ...completions import CompletionThreads, Operation
from ...errors import Error, Unsupported
from ...session import Session
from ..device import Device
from ..offload import Feedback, Place, Started
from ..rails.railed_session import RailedSession
from ..releases import ReferencedWork, untraced
from ..timeouts import of_call
from .arguments import check_results


class Completions(Protocol):
    """CompletionThreads, or what has its function."""

    def future_of(self, request: Operation, value: Callable[[], Any]) -> torch.futures.Future[Any]: ...


class Step:
    """Operations of torch that are a part of a collective. Those that fail end the session, so that no undefined value is added there."""

    def __init__(self, session: Union[Session, RailedSession], work: Callable[[], object]) -> None:
        self.error: Optional[Exception] = None
        self._session = session
        self._work: Optional[Callable[[], object]] = work  # until it has run

    def __call__(self) -> None:
        work, self._work = self._work, None
        try:
            if work is not None:
                work()
        except Exception as error:
            self.error = error.with_traceback(None)  # its frames would keep the tensors alive
            self._session.abort(f"rank {self._session.rank} could not run a part of a collective: {error}")


class StreamedCollectives(Place):
    """The session for the memory of one device, and the stream on which its collectives run, in the order of the calls.

    As with NCCL: a call returns at once. Its collective runs after what the caller's current stream has then, and beside what follows there, until
    Work.wait() makes the current stream wait. After a failure streams go on, with undefined results, and the next call raises."""

    session: Union[Session, RailedSession]

    def __init__(self, device: Device, stream: Any, session: Union[Session, RailedSession]) -> None:
        """stream: of the device, for nothing else. A RailedSession runs on it."""
        super().__init__(session)
        self.device = device
        self._stream = stream
        self.arguments = {"stream": device.handle(self._stream)}
        self._lock = threading.Lock()  # the stream's work of one call is together
        self._open: deque[Operation] = deque()
        self._steps: list[Step] = []  # of the call
        self._completions = CompletionThreads("sluice-streams", session)

    def start(self, name: str, start: Callable[[Place], Started], results: list[torch.Tensor]) -> StreamedWork:
        """Raises sluice.Error, also for an earlier collective that has failed since the last call."""
        if self.device.is_capturing():
            raise Unsupported(f"{name} cannot be captured into a graph, because the host takes part in it; call it outside of the capture")
        with self._lock:
            self._raise_failure()
            self.device.follow(self._stream, self.device.current_stream())
            self._steps = []
            started = start(self)
            self._open.extend(started.requests)
            for tensor, buffer in started.copies:
                self.copy(tensor, buffer)
            return StreamedWork(started, results, self.device, self._stream, self._completions, self._steps)

    def run(self, work: Callable[[], object]) -> None:
        step = Step(self.session, work)
        self._steps.append(step)
        self.device.run(self._stream, step)
        if step.error is not None:  # at once on a GPU
            raise step.error

    def keep(self, tensor: torch.Tensor) -> None:
        self.device.keep(tensor, self._stream)

    def residual(self, feedback: Feedback, buffer: torch.Tensor) -> Any:
        return feedback if isinstance(self.session, RailedSession) else super().residual(feedback, buffer)

    @property
    def counted(self) -> Optional[Session]:
        """The session with the counters of the collectives, None while there is none."""
        return self.session.counted if isinstance(self.session, RailedSession) else self.session

    def finish(self) -> None:
        """Blocks until the current stream and all collectives so far are done."""
        self.device.follow(self._stream, self.device.current_stream())
        self.device.record(self._stream).synchronize()

    def error(self) -> Optional[Exception]:
        return self.session.error()

    def _raise_failure(self) -> None:
        failure: Optional[Exception] = self.session.error()
        while self._open and self._open[0].done():
            failure = failure or self._open[0].error()
            self._open.popleft()
        if failure is not None:
            raise failure


class _Ended:
    """The end of a collective, as an operation for CompletionThreads."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def wait(self, timeout: Optional[float] = None) -> None:
        self._event.synchronize()

    def done(self) -> bool:
        return bool(self._event.query())

    def error(self) -> Optional[Exception]:
        return None


@untraced
class StreamedWork(ReferencedWork):
    """A collective in stream order. Any thread may use it."""

    def __init__(self, started: Started, tensors: list[torch.Tensor], device: Device, stream: Any, completions: Completions,
                 steps: Sequence[Step]) -> None:
        """`tensors` are the caller's, with the result. `stream` has the collective as its last work, `steps` among it."""
        super().__init__()
        self._requests, self._tensors, self._steps = started.requests, tensors, steps
        self._device, self._stream, self._completions = device, stream, completions
        self._event = device.record(stream)
        self._future: Optional[torch.futures.Future[Any]] = None

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        """Lets the current stream wait for the result, and returns. Raises DistBackendError if the collective is known to have failed.

        The session's limit ends a collective; `timeout` has no effect, as with NCCL."""
        self._is_used()
        of_call(timeout)
        self._device.wait(self._device.current_stream(), self._event)
        if (error := self.exception()) is not None:
            raise dist.DistBackendError(str(error)) from error
        return True

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize

    def is_completed(self) -> bool:
        """Whether the result is in the tensors, or the collective has failed."""
        self._is_used()
        return bool(self._event.query())

    def is_success(self) -> bool:
        return self.is_completed() and self._end() is None

    def exception(self) -> Optional[Exception]:
        return self._failure_of_step() or next((error for request in self._requests if request.done() and (error := request.error()) is not None), None)

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the list of tensors. On a GPU it is complete, and who uses it waits in stream order."""
        self._is_used()
        if self._future is None:
            self._future = self._device.future(self._stream, self._tensors) or self._completions.future_of(_Ended(self._event), self._value)
        return self._future

    def _failure_of_step(self) -> Optional[Exception]:
        return next((step.error for step in self._steps if step.error is not None), None)

    def _end(self) -> Optional[Exception]:
        """Returns the error of a collective whose stream is past it, or None. The requests may end a little later."""
        for request in self._requests:
            try:
                request.wait()
            except Error as error:
                return self._failure_of_step() or error
        return self._failure_of_step()

    def _value(self) -> list[torch.Tensor]:
        if (error := self._end()) is not None:
            raise dist.DistBackendError(str(error)) from error
        return self._tensors


def message(device: Device, call: Callable[..., dist.Work], tensor: torch.Tensor, *arguments: Any, **options: Any) -> dist.Work:
    """Sends or receives a tensor of a device with streams through host memory. `call`: of gloo."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype)
    stream = device.current_stream()
    is_sent = call.__name__ == "send"
    if is_sent:
        device.run(stream, lambda: host.copy_(tensor.detach()))
    else:
        check_results(call.__name__, [tensor])
    device.record(stream).synchronize()  # also what still uses the memory that is received
    return MessageWork(call([host], *arguments, **options), device, tensor, None if is_sent else host)


@untraced
class MessageWork(ReferencedWork):
    """A message in gloo, whose end only wait() sees. The first wait copies what was received, on the current stream."""

    def __init__(self, work: dist.Work, device: Device, tensor: torch.Tensor, received: Optional[torch.Tensor]) -> None:
        super().__init__()
        self._work, self._device, self._tensor, self._received = work, device, tensor, received
        self._lock = threading.Lock()
        self._event: Any = None  # behind the copy

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        self._is_used()
        self._work.wait(timeout) if of_call(timeout) > timedelta() else self._work.wait()
        stream = self._device.current_stream()
        with self._lock:
            if self._event is None:
                if (host := self._received) is not None:
                    self._device.run(stream, lambda: self._tensor.detach().copy_(host))
                self._event = self._device.record(stream)
        self._device.wait(stream, self._event)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        self._is_used()
        return self._event is not None and bool(self._event.query())

    is_success = is_completed

    def exception(self) -> Any:
        return self._work.exception()

    def result(self) -> list[torch.Tensor]:
        return [self._tensor]

    def _source_rank(self) -> int:
        return int(self._work._source_rank())
