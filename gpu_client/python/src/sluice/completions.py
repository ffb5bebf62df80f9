"""Class CompletionThreads completes futures of torch for the requests of a session."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Optional, Protocol

import torch

from .unclosed import close_at_exit


class Operation(Protocol):
    """What a future needs of an operation. The methods are those of sluice.Request."""

    def wait(self, timeout: Optional[float] = None) -> Any: ...
    def done(self) -> bool: ...
    def error(self) -> Optional[Exception]: ...


class SessionOfFutures(Protocol):
    """What the threads need of a Session."""

    rank: int

    def abort(self, reason: str = "") -> None: ...
    def close(self) -> None: ...
    def _call_at_close(self, callback: Callable[[], None]) -> None: ...


class CompletionThreads:
    """Threads that wait for operations in the order of the calls of future_of(), and complete their futures.

    One thread at a time waits. Before it completes a future, whose callbacks may take long or wait for other futures of the
    session, it leaves the next operation to another thread, and starts one if all are in callbacks. So as many threads run
    as callbacks wait for one another. The first starts with the first future, and all end when the session is closed. The
    interpreter must not exit before that, because they run functions of torch."""

    _KEPT = 2  # threads that wait for more work; further ones end when they have no work

    def __init__(self, name: str, session: SessionOfFutures) -> None:
        self._name = name
        self._pid = os.getpid()
        self._changed = threading.Condition()  # guards all below
        self._waiting: deque[tuple[Operation, torch.futures.Future[None]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0  # threads without work, also one that has not begun to run: it will find the work
        self._is_led = False  # a thread waits for an operation
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
        """Returns False if the threads are stopped: the session is closed, and the operation has ended."""
        with self._changed:
            if self._is_stopped:
                return False
            self._waiting.append((request, ended))
            try:
                self._find_leader()
            except RuntimeError:  # no more threads
                self._waiting.pop()
                raise
        return True

    def _find_leader(self) -> None:
        """With the lock. Ensures that a thread waits for the first operation."""
        if not self._waiting or self._is_led:
            return
        if self._idle:
            self._changed.notify()
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        self._idle += 1
        try:
            thread.start()
        except BaseException:
            self._threads.discard(thread)
            self._idle -= 1
            raise

    def stop(self) -> None:
        """Completes all pending futures and ends the threads. May be called again."""
        joined: set[threading.Thread] = set()
        while True:  # the last callbacks may start threads
            with self._changed:
                self._is_stopped = True
                self._changed.notify_all()
                threads = self._threads - joined
            if threading.current_thread() in threads:
                return  # this thread dropped the last reference to the session and so closes it; _stop_at_exit joins it
            if not threads:
                return atexit.unregister(self._at_exit)
            for thread in threads:
                thread.join()
            joined |= threads

    def _run(self) -> None:
        while (item := self._next()) is not None:
            request, ended = item
            try:
                request.wait()
            except BaseException:  # the request stores its error and raises it again in the callback of the future
                pass
            with self._changed:
                self._is_led = False
                if self._is_stopped:
                    self._changed.notify_all()
                with suppress(RuntimeError):  # no more threads: this one goes on after the callbacks
                    self._find_leader()
            ended.set_result(None)
            del item, request, ended  # releases the gradients while the thread is idle
            with self._changed:
                self._idle += 1

    def _next(self) -> Optional[tuple[Operation, torch.futures.Future[None]]]:
        """Waits until this thread, which counts as idle, may wait for an operation, and returns it. Returns None at the end of the thread."""
        with self._changed:
            while self._is_led or not self._waiting:
                if self._is_stopped and not self._waiting:
                    return None
                if self._idle > self._KEPT:
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                    return None
                self._changed.wait()
            self._idle -= 1
            self._is_led = True
            return self._waiting.popleft()


def _stop_at_exit(reference: weakref.ref[Any], completions: CompletionThreads) -> None:
    """Closes the session, which ends all waits, and joins the threads, one of which may itself be closing the session."""
    close_at_exit(reference)
    if os.getpid() == completions._pid:  # a child of fork() has neither the threads nor the owner of their lock
        completions.stop()
