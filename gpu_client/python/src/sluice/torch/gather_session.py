"""Class GatherSession: a second session of a process group, for large all-gathers beside the operations of the first."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Optional

import torch

from ..errors import Closed, Error, Timeout
from ..request import Request
from ..session import Session

_CHECK_INTERVAL_S = 0.1  # a waiting thread looks this often whether the announcement has failed
_LINGER_S = 5.0


class GatherRequest:
    """An all-gather of the second session, with its announcement in the first. It may begin later, when that session is open."""

    def __init__(self, announcement: Request) -> None:
        self._announcement = announcement
        self._is_decided = threading.Event()  # one of the next two is set
        self._gather: Optional[Request] = None
        self._refusal: Optional[Exception] = None

    def begin(self, session: Session, x: torch.Tensor, out: torch.Tensor) -> None:
        try:
            self._gather = session.all_gather_async(x, out)
        except Exception as error:  # raised by wait()
            self._refusal = error
        self._is_decided.set()

    def refuse(self, error: Exception) -> None:
        self._refusal = error
        self._is_decided.set()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Raises the error of the announcement too: the all-gather of a rank whose call differs would never end."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while not self._wait(max(0.0, min(_CHECK_INTERVAL_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise Timeout(f"the operation did not end within {timeout} s")
        if (error := self.error()) is not None:
            raise copy.copy(error)  # as Request.wait

    def done(self) -> bool:
        if self._announcement.done() and self._announcement.error() is not None:
            return True
        return self._is_decided.is_set() and (self._gather is None or self._gather.done())

    def error(self) -> Optional[Exception]:
        """As Request.error: None before the end."""
        if self._gather is not None and self._gather.done():
            return self._gather.error()
        return self._announcement.error() or self._refusal

    def _wait(self, seconds: float) -> bool:
        """Returns whether the operation has ended."""
        if not self._is_decided.wait(seconds):
            return self.done()
        if self._gather is not None:
            with suppress(Error):
                self._gather.wait(seconds)
        return self.done()


class GatherSession:
    """Runs large all-gathers beside the operations of the first session, which follow one another.

    A reduce-scatter fills the links to the reducers, and an all-gather those from them: in two sessions both run at a time.
    For each all-gather the first session gathers a byte of each rank. So a call that differs between the ranks fails on all
    of them, as in one session.

    The session opens at its first use, in a thread, because two groups that ranks use in different orders would wait for
    each other. The caller must ensure that all ranks gather in one order, also relative to the first session's operations."""

    LEAST_BYTES = 1 << 20  # of the whole result; smaller all-gathers gain nothing

    def __init__(self, first: Session, open_session: Callable[[], Session]) -> None:
        """`open_session` is collective; it is called on all ranks, or on none."""
        self.ranks = first.ranks
        self._first = first
        self._open_session = open_session
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._waiting: deque[tuple[GatherRequest, torch.Tensor, torch.Tensor]] = deque()  # until the session is open
        self._session: Optional[Session] = None
        self._failure: Optional[Exception] = None
        self._is_aborted = False

    def all_gather_async(self, x: torch.Tensor, out: torch.Tensor) -> GatherRequest:
        """As Session.all_gather_async, with equal parts."""
        with self._lock:
            request = GatherRequest(self._first.all_gather_async(torch.zeros(1, dtype=torch.uint8), torch.zeros(self.ranks, dtype=torch.uint8)))
            if self._failure is not None:
                request.refuse(self._failure)
            elif self._session is not None:
                request.begin(self._session, x, out)
            else:
                self._waiting.append((request, x, out))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._open, args=(request,), name="sluice-torch-open", daemon=True)
                    self._thread.start()
        return request

    def error(self) -> Optional[Error]:
        """As Session.error."""
        return None if self._session is None else self._session.error()

    def abort(self, reason: str) -> None:
        """Call it after the first session's."""
        with self._lock:
            self._is_aborted = True
        if self._session is not None:
            self._session.abort(reason)

    def close(self) -> None:
        """Call it before the first session's, on whose futures a thread may wait. May be called again."""
        if self._thread is not None and self._thread is not threading.current_thread() and not self._is_aborted:
            self._thread.join(_LINGER_S)
        self._end(Closed("the process group is closed"))
        if self._session is not None:
            with suppress(Error):
                self._session.close()

    def _end(self, error: Exception) -> None:
        with self._lock:
            self._failure = self._failure or error
            while self._waiting:
                self._waiting.popleft()[0].refuse(self._failure)

    def _open(self, request: GatherRequest) -> None:
        """Opens the session and begins what waits for it."""
        try:
            request._announcement.wait()  # then all ranks open the session
            session = self._open_session()
        except Error as error:
            self._end(error)
            return
        with self._lock:
            if self._failure is None:
                self._session = session
                while self._waiting:
                    waiting, x, out = self._waiting.popleft()
                    waiting.begin(session, x, out)
                return
        with suppress(Error):  # the group was closed meanwhile
            session.close()
