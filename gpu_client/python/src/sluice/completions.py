"""Class CompletionThread completes futures of torch for the requests of a session."""

from __future__ import annotations

import atexit
import functools
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Optional, Protocol

import torch

from .session import Session, _close_at_exit


class Operation(Protocol):
    """What a future needs of an operation. The methods are those of sluice.Request."""

    def wait(self, timeout: Optional[float] = None) -> Any: ...
    def done(self) -> bool: ...
    def error(self) -> Optional[Exception]: ...


_Item = Optional[tuple[Operation, "torch.futures.Future[None]"]]


class CompletionThread:
    """A thread that waits for operations in the order of the calls of future_of(), and completes their futures.

    It starts with the first future and ends when the session is closed. The interpreter must not exit before that,
    because the thread runs functions of torch."""

    def __init__(self, name: str, session: Session) -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._at_exit = functools.partial(_stop_at_exit, weakref.ref(session), self)
        atexit.register(self._at_exit)
        session._call_at_close(self.stop)

    def future_of(self, request: Operation, value: Callable[[], Any]) -> torch.futures.Future[Any]:
        """Returns a future for the result of `value`, or for its exception. Calls it when the request has ended.

        The future of a request that has ended is complete. torchft relies on that after a wait."""
        ended: torch.futures.Future[None] = torch.futures.Future()
        # An exception of the callback becomes the error of the future that `then` returns, which DDP raises. With
        # set_exception, DDP would read the exception as the value, where it expects a tensor.
        result: torch.futures.Future[Any] = ended.then(lambda _: value())
        if request.done() or not self._put(request, ended):
            ended.set_result(None)
        return result

    def _put(self, request: Operation, ended: torch.futures.Future[None]) -> bool:
        """Returns False if the thread is stopped: the session is closed, and the operation has ended."""
        with self._lock:
            if self._is_stopped:
                return False
            if self._thread is None:
                self._thread = threading.Thread(target=_complete, args=(self._waiting,), name=self._name, daemon=True)
                self._thread.start()
            self._waiting.put((request, ended))
        return True

    def stop(self) -> None:
        """Completes all pending futures and ends the thread. May be called again."""
        with self._lock:
            self._is_stopped = True
        self._waiting.put(None)
        if self._thread is threading.current_thread():
            return  # this thread dropped the last reference to the session and so closes it; _stop_at_exit joins it
        if self._thread is not None:
            self._thread.join()
        atexit.unregister(self._at_exit)


def _stop_at_exit(reference: weakref.ref[Session], completions: CompletionThread) -> None:
    """Closes the session, which ends all waits, and joins the thread, which itself may be closing the session."""
    _close_at_exit(reference)
    completions.stop()


def _complete(waiting: queue.SimpleQueue[_Item]) -> None:
    while True:
        item = waiting.get()
        if item is None:
            return
        request, ended = item
        try:
            request.wait()
        except Exception:  # the request stores its error and raises it again in the callback of the future
            pass
        ended.set_result(None)
        del item, request, ended  # releases the gradients while the thread is idle
