"""Class Request tracks an operation of a session. Class FindingReader takes the findings of its operations from the library."""

from __future__ import annotations

import copy
import ctypes
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, Optional, Protocol

from . import _library
from ._library import INVALID_ARGUMENT, OK, TIMEOUT
from .errors import Error, Timeout, UnhealthyGradient, error_for_status
from .findings import Finding, OnFinding
from .options import seconds
from .stats import Stats

# A waiting thread returns to Python this often, to handle signals (Ctrl-C) and a close by another thread.
_POLL_INTERVAL_MS = 100
_KINDS = {1: "non_finite", 2: "outlier", 3: "zeros"}
_MAX_UNCLAIMED = 16384  # findings of operations that have not ended for the caller; more than can be in flight


class FindingReader:
    """Takes the findings of a session from the library and gives them to the operations that they belong to."""

    def __init__(self, on_finding: OnFinding) -> None:
        if not (on_finding is None or on_finding == "raise" or callable(on_finding)):
            raise ValueError(f"on_finding is {on_finding!r}; expected None, 'raise' or a function")
        self._on_finding = on_finding
        self._lock = threading.Lock()
        self._unclaimed: dict[int, _library.Finding] = {}

    def of_request(self, library: ctypes.CDLL, session: int, request_id: int, operation: str) -> Optional[Finding]:
        """Returns the finding of an operation that has just ended."""
        if self._on_finding is None:
            return None
        with self._lock:
            while True:
                struct = _library.Finding(struct_size=ctypes.sizeof(_library.Finding))
                if library.sluice_next_finding(session, ctypes.byref(struct)) != _library.OK:
                    break
                self._unclaimed[struct.request] = struct
                if len(self._unclaimed) > _MAX_UNCLAIMED:
                    del self._unclaimed[next(iter(self._unclaimed))]
            found = self._unclaimed.pop(request_id, None)
        if found is None:
            return None
        return Finding(found.rank, _KINDS.get(found.kind, f"kind {found.kind}"), found.count, found.ratio, operation)

    def error_for(self, finding: Optional[Finding]) -> Optional[UnhealthyGradient]:
        """Returns the error with which the operation of the finding ends, or None."""
        if finding is None or self._on_finding != "raise":
            return None
        error = UnhealthyGradient(str(finding))
        error.finding = finding
        return error

    def call(self, finding: Optional[Finding]) -> None:
        """Calls the caller's function."""
        if finding is not None and callable(self._on_finding):
            self._on_finding(finding)


class RequestOwner(Protocol):
    """What a request needs of its Session."""

    _findings: FindingReader

    def _use(self) -> AbstractContextManager[tuple[ctypes.CDLL, int]]: ...
    def _reason(self, library: ctypes.CDLL, session: int) -> str: ...
    def _remove_request(self, request_id: int) -> None: ...
    def stats(self) -> Stats: ...


class Request:
    """An operation, or a group of operations, that Session.allreduce_async or Session.group started.

    Any thread may use a request, also several at a time. The arrays of the operation are kept alive until it has ended,
    even if the request is dropped."""

    def __init__(self, session: RequestOwner, result: Any, name: Optional[str] = None) -> None:
        """For Session only. `result` is the value that wait returns."""
        self._session = session
        self._result = result
        self._name = name  # of the operation, in findings
        self._id = 0  # the sluice_request; 0 for a group that has not ended
        self._buffers: list[object] = []
        self._poll_lock = threading.Lock()  # one thread at a time polls: the library reports the end of a request once
        self._is_complete = False
        self._error: Optional[Error] = None

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Blocks until the operation has ended and returns the array with the result (None for a group).

        Waits for at most `timeout` seconds (None: no limit). Raises sluice.Timeout if the operation is still open; it
        then continues. Raises the operation's error if it failed."""
        if not self._is_complete and not self._id:
            raise RuntimeError("the group of this request has not ended; leave its with block first")
        deadline = None if timeout is None else time.monotonic() + seconds(timeout)
        while not self._is_complete:
            left_ms = _POLL_INTERVAL_MS
            if deadline is not None:
                left_ms = min(left_ms, max(0, int((deadline - time.monotonic()) * 1000)))
            if self._poll(left_ms):
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise Timeout(f"the operation did not end within {timeout:g} s{self.late_ranks()}")
        if self._error is not None:
            raise copy.copy(self._error)  # its traceback would keep this request, and the frames of its callers, alive
        return self._result

    def late_ranks(self) -> str:
        """For an error: whom the session waits for, as far as it knows."""
        try:
            stats = self._session.stats()
        except Error:  # it is closed
            return ""
        others = f" and {stats.missing_ranks - 1} more" if stats.missing_ranks > 1 else ""
        return f"; waiting for rank {stats.missing_rank}{others}" if stats.missing_ranks else ""

    def done(self) -> bool:
        """Returns whether the operation has ended, with or without an error. Does not block."""
        return self._is_complete or (bool(self._id) and self._poll(0))

    def error(self) -> Optional[Error]:
        """Returns the error of an operation that has ended, or None."""
        return self._error

    def _poll(self, wait_ms: int) -> bool:
        """Returns whether the operation has ended; waits for that for at most `wait_ms`. Raises sluice.Closed if the
        session is closed meanwhile."""
        if not self._poll_lock.acquire(timeout=wait_ms / 1000):
            return self._is_complete
        try:
            if self._is_complete:
                return True
            with self._session._use() as (library, session):
                status = library.sluice_wait(session, self._id, wait_ms) if wait_ms else TIMEOUT
                if status == TIMEOUT:
                    done = ctypes.c_int(0)
                    status = library.sluice_test(session, self._id, ctypes.byref(done))
                    if status == OK and not done.value:
                        return False
                    if status == INVALID_ARGUMENT and wait_ms:
                        status = TIMEOUT  # the operation exceeded op_timeout_ms, and sluice_wait reported its end
                text = "" if status == OK else self._session._reason(library, session)
                if status == OK:
                    findings = self._session._findings
                    finding = findings.of_request(library, session, self._id, self._name or "a group of operations")
                    self._complete(findings.error_for(finding))
                else:
                    finding = None
                    self._complete(error_for_status(status, text or library.sluice_status_string(status).decode()))
            self._session._findings.call(finding)
            return True
        finally:
            self._poll_lock.release()

    def _complete(self, error: Optional[Error]) -> None:
        """Ends the request and releases the arrays. The library no longer knows the request, or the session."""
        self._error = error
        self._is_complete = True
        self._buffers = []
        self._session._remove_request(self._id)
