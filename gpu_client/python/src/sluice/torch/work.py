"""Class SessionWork: the torch.distributed.Work of an operation of a session."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

from ..completions import CompletionThreads
from ..errors import Error, Timeout
from .offload import Started
from .releases import ReferencedWork, untraced
from .timeouts import of_call

_REASON_TIME_S = 0.5  # after the time limit, for the session to end and say which rank is late


@untraced
class SessionWork(ReferencedWork):
    """A collective in progress. Any thread may wait. Keeps the tensors alive until it is dropped."""

    def __init__(self, started: Started, tensors: list[torch.Tensor], timeout: timedelta, completions: CompletionThreads) -> None:
        """`tensors` are the caller's, with the result."""
        super().__init__()
        self._requests = started.requests  # they end in this order
        self._tensors = tensors
        self._copies = started.copies
        self._lock = threading.Lock()  # the first wait copies
        self._default_timeout = timeout
        self._completions = completions
        self._future: Optional[torch.futures.Future[Any]] = None

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        """Blocks until the result is in the tensors. Raises DistBackendError with the session's reason.

        After `timeout` (0: the group's) it raises too; the operation continues."""
        self._is_used()
        limit = timeout if of_call(timeout) > timedelta() else self._default_timeout
        deadline = time.monotonic() + limit.total_seconds()
        grace = _REASON_TIME_S if limit == self._default_timeout else 0.0  # the session has the same limit
        try:
            for request in self._requests:
                request.wait(max(0.0, deadline + grace - time.monotonic()))
        except Timeout as error:  # with the words of gloo, by which programs recognize it
            waited = min(limit.total_seconds(), limit.total_seconds() + time.monotonic() - deadline)
            raise dist.DistBackendError(f"backend sluice: Timed out after {waited:.3g} s, the group's limit is {limit.total_seconds():g} s: {error}") from error
        except Error as error:
            raise dist.DistBackendError(str(error)) from error
        with self._lock:
            self._copy()
        return True

    def _copy(self) -> None:
        """With the lock."""
        for tensor, buffer in self._copies:
            tensor.detach().copy_(buffer)
        self._copies = []

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Whether the result is in the tensors, or the operation has failed. May copy the result there."""
        self._is_used()
        if not all(request.done() for request in self._requests) or not self._lock.acquire(blocking=False):
            return False  # a thread that has the lock copies
        try:
            if self.exception() is None:
                self._copy()
        finally:
            self._lock.release()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[Exception]:
        return next((error for request in self._requests if (error := request.error()) is not None), None)

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the list of tensors. The thread of the group completes it."""
        self._is_used()
        if self._future is None:
            self._future = self._completions.future_of(self._requests[-1], self._value)
        return self._future

    def _value(self) -> list[torch.Tensor]:
        self.wait()
        return self._tensors
