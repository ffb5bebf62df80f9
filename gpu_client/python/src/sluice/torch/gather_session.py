"""Class GatherSession: a second session of a process group, for large all-gathers that run at the same time as operations of the first."""

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
from .group_session import present_reducers

_CHECK_INTERVAL_S = 0.1  # a waiting thread looks this often whether the first session has failed
_OPEN_LIMIT_S = 5.0  # how long close() waits for a session that is being opened
_LIST_BYTES = 1 << 16  # of the reducers in the first announcement


class GatherRequest:
    """An all-gather of the second session, and its announcement: the all-gather of one byte of each rank in the first session. In the
    first announcement, rank 0 has more bytes: the reducers of the second session.

    It may begin later, when the second session is open."""

    def __init__(self, first: Session, announcement: Request) -> None:
        self._first = first
        self._announcement = announcement
        self._is_decided = threading.Event()  # when it is set, one of the next two is not None
        self._gather: Optional[Request] = None
        self._refusal: Optional[Exception] = None

    def begin(self, session: Session, x: torch.Tensor, out: torch.Tensor) -> None:
        try:
            self._gather = session.all_gather_async(x, out)
            self._is_decided.set()
        except Exception as error:
            # The other ranks have begun this gather, and would take the next one of this rank for it.
            for failed in (session, self._first):
                failed.abort(f"rank {session.rank} could not begin an all-gather: {error}")
            self.refuse(error)

    def refuse(self, error: Exception) -> None:
        self._refusal = error.with_traceback(None)  # its frames would keep the arrays alive
        self._is_decided.set()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """As Request.wait. Raises the first session's error too: this rank's gather never ends if another rank's call differs."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while not self._wait(max(0.0, min(_CHECK_INTERVAL_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise Timeout(f"the operation did not end within {timeout:g} s{self._announcement.late_ranks()}")
        if (error := self.error()) is not None:
            raise copy.copy(error)  # as Request.wait

    def done(self) -> bool:
        if self._is_decided.is_set() and (self._gather is None or self._gather.done()):
            return True
        return self._failure_of_first() is not None

    def error(self) -> Optional[Exception]:
        """As Request.error: None before the end."""
        if self._gather is not None and self._gather.done():
            return self._gather.error()
        return self._refusal or self._failure_of_first()

    def _failure_of_first(self) -> Optional[Error]:
        if self._announcement.done() and (error := self._announcement.error()) is not None:
            return error
        if self._is_decided.is_set():
            return None  # the second session detects a lost rank itself
        try:
            return self._first.error()
        except Closed as error:
            return error

    def _wait(self, seconds: float) -> bool:
        """Returns whether the operation has ended."""
        if self._is_decided.wait(seconds) and self._gather is not None:
            with suppress(Error):
                self._gather.wait(seconds)
        return self.done()


class GatherSession:
    """Runs large all-gathers at the same time as operations of the first session, which follow one another.

    A reduce-scatter fills the links from the ranks to the reducers, and an all-gather those from the reducers to the ranks.

    For each all-gather, the ranks also gather one byte of each rank in the first session. So if the calls of the ranks
    differ, all ranks get an error, as in one session.

    A thread opens the session at its first use. If the caller's thread did, two groups that ranks use in different orders
    would wait for each other. The caller must ensure that all ranks gather in one order, also relative to the first
    session's operations.

    The session has the reducers that rank 0's sessions use when it is opened. If it cannot be opened there, for example because
    a reducer lacks memory, the ranks gather in one without dedicated reducers. They cannot gather in the first session then:
    it is known too late, at another point in the order of its operations on each rank."""

    LEAST_BYTES = 1 << 20  # of the whole result; smaller all-gathers gain nothing

    def __init__(self, first: Session, open_session: Callable[[Optional[str]], Session]) -> None:
        """`open_session` is collective; its argument: the reducers, "none", or None for those of the group. All ranks call it, unless one of them dies or fails first."""
        self.ranks = first.ranks
        self._first = first
        self._open_session = open_session
        # Reentrant, because the garbage collector may close a group on any thread.
        self._lock = threading.RLock()
        self._thread: Optional[threading.Thread] = None
        self._waiting: deque[tuple[GatherRequest, torch.Tensor, torch.Tensor]] = deque()  # until the session is open
        self._session: Optional[Session] = None
        self._failure: Optional[Exception] = None
        self._is_aborted = False
        self._is_listed = False  # the first announcement has begun
        self._listed = torch.empty(0, dtype=torch.uint8)  # its result

    def all_gather_async(self, x: torch.Tensor, out: torch.Tensor) -> GatherRequest:
        """As Session.all_gather_async, with equal parts."""
        with self._lock:
            announcement = self._announce()
            request = GatherRequest(self._first, announcement)
            if self._failure is not None:
                request.refuse(self._failure)
            elif self._session is not None:
                request.begin(self._session, x, out)
            else:
                self._waiting.append((request, x, out))
                if self._thread is None:
                    self._start_thread(announcement)
        return request

    def _announce(self) -> Request:
        if self._is_listed:
            return self._first.all_gather_async(torch.zeros(1, dtype=torch.uint8), torch.zeros(self.ranks, dtype=torch.uint8))
        self._is_listed = True
        counts = [_LIST_BYTES] + [1] * (self.ranks - 1)
        part = torch.zeros(counts[self._first.rank], dtype=torch.uint8)
        if self._first.rank == 0 and (text := (present_reducers() or "").encode()):
            part[:len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._listed = torch.zeros(sum(counts), dtype=torch.uint8)
        return self._first.all_gather_async(part, self._listed, counts=counts)

    def error(self) -> Optional[Exception]:
        """Returns the error with which the session ended or could not be opened, or None."""
        if self._session is not None:
            return self._session.error()
        return None if isinstance(self._failure, Closed) else self._failure

    def abort(self, reason: str) -> None:
        """Call it after the first session's."""
        with self._lock:
            self._is_aborted = True
            self._end(Closed(reason))
        if self._session is not None:
            self._session.abort(reason)

    def close(self) -> None:
        """Call it before the first session's. That one waits for the thread of its futures, which may wait for a gather."""
        if self._thread is not None and self._thread is not threading.current_thread() and not self._is_aborted:
            self._thread.join(_OPEN_LIMIT_S)
        self._end(Closed("the process group is closed"))
        if self._session is not None:
            with suppress(Error):
                self._session.close()

    def _end(self, error: Exception) -> None:
        with self._lock:
            self._failure = self._failure or error.with_traceback(None)
            while self._waiting:
                self._waiting.popleft()[0].refuse(self._failure)

    def _start_thread(self, announcement: Request) -> None:
        thread = threading.Thread(target=self._open, args=(announcement,), name="sluice-torch-open", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError as error:  # no more threads
            self._end(error)

    def _open_there(self, reducers: Optional[str]) -> Session:
        try:
            return self._open_session(reducers)
        except Error as error:
            if self._is_aborted or self._first.error() is not None:
                raise
            try:
                return self._open_session("none")
            except Error as without:
                raise type(error)(f"{error}; without dedicated reducers: {without}") from error

    def _open(self, announcement: Request) -> None:
        """Opens the session and begins the operations that wait for it."""
        try:
            announcement.wait()  # all ranks gather
            listed = bytes(self._listed[:_LIST_BYTES].tolist()).rstrip(b"\0").decode()
            session = self._open_there(listed or None)
        except Exception as error:
            self._end(error)
            return
        with self._lock:
            if self._failure is None:
                self._session = session
                while self._waiting:
                    waiting, x, out = self._waiting.popleft()
                    waiting.begin(session, x, out)
                return
        session.abort("the process group was closed")
        with suppress(Error):
            session.close()
