"""Closes sessions that nobody has closed: those that are collected as garbage, and those that are open when the interpreter exits."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import weakref
from contextlib import suppress
from typing import Protocol

from .errors import Error

_closing: set[_thread.LockType] = set()  # held by the threads of close_collected()
os.register_at_fork(after_in_child=_closing.clear)


class Closable(Protocol):
    """What is needed of a Session."""

    rank: int

    def abort(self, reason: str = "") -> None: ...
    def close(self) -> None: ...


def close_collected(session: Closable) -> None:
    """Closes a session that the interpreter collects, on a thread of its own. A collection interrupts any code, such as a
    training step, and close() may wait for the other ranks up to linger_ms. The interpreter's exit waits for the thread."""
    ended = _thread.allocate_lock()
    ended.acquire()

    def close() -> None:
        with suppress(Error):
            session.close()
        _closing.discard(ended)
        ended.release()

    _closing.add(ended)
    try:
        _thread.start_new_thread(close, ())  # threading.Thread takes locks that the interrupted code may hold
    except RuntimeError:  # no thread can start, as at the end of the interpreter
        close()


@atexit.register
def _await_collected() -> None:
    for ended in list(_closing):
        ended.acquire()


def close_at_exit(reference: weakref.ref[Closable]) -> None:
    """Closes the session. If an exception ends the program, as Ctrl-C does, aborts it first, because the other ranks would
    wait for operations that never come, and close for theirs."""
    session = reference()
    if session is not None:
        failure = getattr(sys, "last_type", None)
        if failure is not None and not hasattr(sys, "ps1"):  # an interpreter with a prompt keeps the last error
            session.abort(f"rank {session.rank} ended with {failure.__name__}")
        with suppress(Error):
            session.close()
