"""Class Monitor: the failures of collectives that run in several steps; class SteppedOperation."""

from __future__ import annotations

import copy
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Optional

import torch

from ...completions import Operation
from ...errors import Closed, Error, Lost, Timeout
from ...session import Session
from ..device import Device
from .host_group import Disconnected, HostGroup
from .layout import Rail

_CHECK_INTERVAL_S = 0.1
_NAMING_S = 2.0  # how long a failure waits for the group's first session, which names the lost rank by its number in the group
_ASKING_S = 0.1  # after this time it asks there who has left: a session tells that only to an operation


class _Steps:
    """Those of one collective."""

    are_undefined = False  # one of them has not run, or has failed


class SteppedOperation:
    """A collective of several steps, with the functions of sluice.Request. Any thread may use it."""

    def __init__(self, monitor: Monitor, steps: _Steps, event: Any, request: Optional[Operation]) -> None:
        """event: after the last step. request: of the rail, or None."""
        self._monitor = monitor
        self._steps = steps
        self._event = event
        self._request = request
        self._error: Optional[Error] = None

    def wait(self, timeout: Optional[float] = None) -> None:
        """Blocks until the operation has ended, whatever the timeout. Raises its error."""
        self._event.synchronize()
        if self._request is not None and self._error is None:
            try:
                self._request.wait(timeout)
            except Error:  # named below
                pass
        if (error := self.error()) is not None:
            raise copy.copy(error)

    def done(self) -> bool:
        return self._error is not None or (bool(self._event.query()) and (self._request is None or self._request.done()))

    def error(self) -> Optional[Exception]:
        """Returns the error of an operation that has ended, or None."""
        if self._error is None and self._request is not None and (error := self._request.error()) is not None:
            return self._monitor.named(error)
        if self._error is None and self._steps.are_undefined:  # the failure came when no step ran
            self._error = self._monitor.failure
        return self._error

    def fail(self, error: Error) -> None:
        if not self._event.query():
            self._error = error


class Monitor:
    """Runs the steps of collectives within the host, and ends all when one of the ranks fails.

    A group of torch may wait for a dead rank for ever, and its stream goes on with undefined values when it ends; ranks of other rails
    would not know either. So a failure here, of the rail, or of the process group's first session ends first the rail, so that no
    undefined value is added there, then the first session, which tells all ranks, and the group of the host."""

    def __init__(self, device: Device, stream: Any, group: HostGroup, first: Session, session: Optional[Session], rail: Rail, timeout: float) -> None:
        """first: of the process group, in host memory. session: of the rail, None without one. timeout: of a step, in seconds."""
        self._device, self._stream, self._group = device, stream, group
        self._first = first
        self._of_all = [first]  # whose errors have the process group's numbers
        self._session = session
        self._rail = rail
        self._timeout = timeout
        self._lock = threading.Lock()
        self._failure: Optional[Error] = None
        self._operations: deque[SteppedOperation] = deque()
        self._begun_steps = _Steps()  # of the collective that is being begun
        self._steps: deque[tuple[Any, Any]] = deque()  # events before and after a step
        self._begun: Optional[float] = None  # when the oldest step was seen to run
        self._is_stopped = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def add_session(self, session: Session) -> None:
        """Also ends this one, which is of all ranks."""
        self._of_all.append(session)

    @property
    def failure(self) -> Optional[Error]:
        return self._failure

    def run(self, *work: Callable[[], object], after: Optional[Operation] = None) -> None:
        """Runs a step in the order of the stream. Its collectives are those of the host's group.

        after: the rail's operation whose result it uses. On a GPU the step runs with what a failed one has left there."""
        steps = self._begun_steps

        def guarded() -> None:
            if after is not None and after.done() and (failed := after.error()) is not None:
                self.named(failed)
            if self._failure is None:
                try:
                    for each in work:
                        each()
                    return
                except Exception as error:
                    self._fail(error)
            steps.are_undefined = True

        before = self._device.record(self._stream)
        self._device.run(self._stream, guarded)
        self._steps.append((before, self._device.record(self._stream)))

    def operation(self, request: Optional[Operation]) -> SteppedOperation:
        """Returns the operation whose steps have been started, `request` among them."""
        steps, self._begun_steps = self._begun_steps, _Steps()
        operation = SteppedOperation(self, steps, self._device.record(self._stream), request)
        with self._lock:
            while self._operations and self._operations[0].done():
                self._operations.popleft()
            self._operations.append(operation)
            if self._failure is not None:
                operation.fail(self._failure)
            if self._thread is None:
                self._thread = threading.Thread(target=_watch, args=(weakref.ref(self), self._is_stopped), name="sluice-rails", daemon=True)
                self._thread.start()
        return operation

    def error(self) -> Optional[Error]:
        """Returns why the collectives have ended, or None. Ends them if a session has."""
        if self._failure is None and not self._is_stopped.is_set():
            try:
                failed = next(filter(None, (session.error() for session in self._of_all)), None)
                of_rail = None if self._session is None else self._session.error()
            except Error as error:  # this process has closed a session, perhaps at its exit
                return error
            if failed is not None or of_rail is not None:
                return self._fail(failed or of_rail or Error(), is_named=failed is not None)
        return self._failure

    def named(self, error: Exception) -> Exception:
        """Returns the error of the rail's request for this rank's caller."""
        if self._session is None or self._is_stopped.is_set():
            return error
        try:
            has_failed = self._session.error() is not None
        except Error:  # this process has closed it
            return error
        return self._fail(error) if has_failed else error  # of the operation only, such as a finding

    def finish(self, seconds: float) -> bool:
        """Waits at most so long for what the stream has. Returns whether that has ended without a failure."""
        event, deadline = self._device.record(self._stream), time.monotonic() + seconds
        while self._failure is None and not event.query() and time.monotonic() < deadline:
            time.sleep(_CHECK_INTERVAL_S / 100)
        return self._failure is None and bool(event.query())

    def stop(self) -> None:
        """No failure after this is one. Drops what refers to the stream, which ends with its last reference."""
        self._is_stopped.set()
        with self._lock:
            self._operations.clear()
            self._steps.clear()

    def abort(self, reason: str) -> None:
        self._fail(Closed(reason), is_named=True)

    def check(self) -> None:
        """For the thread of the monitor."""
        try:
            if self.error() is None and (overdue := self._overdue()) is not None:
                self._fail(overdue, is_named=True)
        except RuntimeError as failure:  # of the device
            self._fail(Lost(f"rank {self._first.rank}: {failure}"), is_named=True)

    def _overdue(self) -> Optional[Error]:
        while self._steps and self._steps[0][1].query():
            self._steps.popleft()
            self._begun = None
        if not self._steps or not self._steps[0][0].query():
            return None
        now = time.monotonic()
        self._begun = self._begun or now
        if now - self._begun < self._timeout:
            return None
        return Timeout(f"rank {self._first.rank}: a step within the host did not end within {self._timeout:g} s: one of the ranks "
                       f"{', '.join(map(str, self._rail.own_host))} has not called the collective, or called another one")

    def _fail(self, error: Exception, is_named: bool = False) -> Error:
        """is_named: the error has numbers of the process group, and needs no better one."""
        with self._lock:
            if self._failure is None:
                failure = self._failure = error if is_named and isinstance(error, Error) else self._name(error)
                for operation in self._operations:
                    operation.fail(failure)
                for session in (self._session, *reversed(self._of_all)):
                    if session is not None:
                        session.abort(str(failure))
                self._group.abort()
            return self._failure

    def _name(self, error: Exception) -> Error:
        began, has_asked = time.monotonic(), not isinstance(error, (Error, Disconnected))  # an error of this rank alone is nobody's end
        while True:
            try:
                told = self._first.error()
            except Error as closed:
                told = closed
            if told is not None:
                return told
            if isinstance(error, Closed) and (leaver := self._leaver_of_rail()) is not None:
                return Closed(f"rank {leaver} left the session; rank {self._first.rank} continued")  # as the first session's
            waited = time.monotonic() - began
            if isinstance(error, Timeout) or waited >= _NAMING_S:  # the first session has no operation that is late
                break
            if not has_asked and waited >= _ASKING_S:
                self._ask()
                has_asked = True
            time.sleep(_CHECK_INTERVAL_S / 10)
        if isinstance(error, Error):
            # At the beginning, because sessions tell other ranks a part of a long text.
            return type(error)(f"rail of ranks {', '.join(map(str, self._rail.members))}, in this order: {error}")
        return Lost(f"rank {self._first.rank} could not reduce within its host: {error}")

    def _leaver_of_rail(self) -> Optional[int]:
        """Returns the rank, numbered as in the process group, that left the rail's session while others went on."""
        if self._session is None:
            return None
        with suppress(Error):  # this process has closed it
            if isinstance(self._session.error(), Closed) and (rank := self._session.ended_by()) not in (None, self._session.rank):
                return self._rail.members[rank]
        return None

    def _ask(self) -> None:
        """Begins an operation of the first session, which ends with the name of a rank that has left. It is that of a barrier, in which another
        rank may be."""
        with suppress(Error):
            self._first.allreduce_async(torch.zeros(1, dtype=torch.uint8), "max")


def _watch(reference: weakref.ref[Monitor], is_stopped: threading.Event) -> None:
    while not is_stopped.wait(_CHECK_INTERVAL_S):
        if (monitor := reference()) is None or monitor._failure is not None:
            return
        monitor.check()
        del monitor
