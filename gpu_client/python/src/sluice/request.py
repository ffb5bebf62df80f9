"""An operation under way."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any, Optional

from ._library import INVALID_ARGUMENT, OK, TIMEOUT
from .errors import Error, Timeout, of_status

if TYPE_CHECKING:
    from .session import Session

# A thread that waits looks up this often, for signals (Ctrl-C) and for a session that another thread closes.
_LOOK_UP_MS = 100


class Request:
    """What allreduce_async and a group return. Any thread may ask it, several at a time as well. Its arrays are kept alive until it is over, whether
    or not somebody keeps the request."""

    def __init__(self, session: Session, result: Any) -> None:
        """`result` is what wait returns. Made by Session alone."""
        self._session = session
        self._result = result
        self._name = 0  # the sluice_request; 0 in a group that has not ended
        self._buffers: list[object] = []
        self._asking = threading.Lock()  # the library forgets a request once it has told its end, so one thread at a time asks
        self._is_over = False
        self._error: Optional[Error] = None

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Blocks until it is over, at most `timeout` seconds, and returns the array with the result (None for a group's). Raises why it failed;
        sluice.Timeout when the time was not enough, and then it goes on."""
        if not self._is_over and not self._name:
            raise RuntimeError("the group of this request has not ended")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_over:
            left_ms = _LOOK_UP_MS if deadline is None else min(_LOOK_UP_MS, max(0, int((deadline - time.monotonic()) * 1000)))
            if self._ask(left_ms):
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise Timeout(f"not over after {timeout} s")
        if self._error is not None:
            raise self._error
        return self._result

    def done(self) -> bool:
        """Whether it is over, well or not, which wait tells. Does not block."""
        return self._is_over or (bool(self._name) and self._ask(0))

    def _ask(self, wait_ms: int) -> bool:
        """Whether it is over; waits for that at most `wait_ms`. sluice.Closed when the session is closed meanwhile."""
        if not self._asking.acquire(timeout=wait_ms / 1000):
            return self._is_over
        try:
            if self._is_over:
                return True
            with self._session._use() as (library, session):
                status = library.sluice_wait(session, self._name, wait_ms) if wait_ms else TIMEOUT
                if status == TIMEOUT:
                    done = ctypes.c_int(0)
                    status = library.sluice_test(session, self._name, ctypes.byref(done))
                    if status == OK and not done.value:
                        return False
                    if status == INVALID_ARGUMENT and wait_ms:
                        status = TIMEOUT  # it was sluice_wait that told of the end, by op_timeout_ms
                text = "" if status == OK else self._session._reason(library, session)
                self._end(None if status == OK else of_status(status, text or library.sluice_status_string(status).decode()))
            return True
        finally:
            self._asking.release()

    def _end(self, error: Optional[Error]) -> None:
        """Lets go of the arrays. The library no longer knows the request, or the session."""
        self._error = error
        self._is_over = True
        self._buffers = []
        self._session._forget(self._name)
