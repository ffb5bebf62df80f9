"""Class Handle owns a sluice_store, the client of one model, or of none. Wraps store.h.

Any thread may use it. In a child of fork() all calls raise sluice.Closed."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional

from .. import _library
from ..errors import Closed, error_for_status
from ..options import store_options


class Handle:
    _pointer: Optional[int] = None  # class attributes, because __del__ reads them even if __init__ failed
    _is_closing = False
    _is_freed_by_call = False  # the call in progress frees the client

    def __init__(self, reducers: Optional[str], options: Mapping[str, Any]) -> None:
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._text_lock = threading.Lock()
        self._users: list[int] = []  # the threads of the calls in progress, for which close() waits
        self._library = library = _library.load()
        struct = store_options(library, reducers, options)
        self.timeout_ms = int(struct.timeout_ms)
        opened = ctypes.c_void_p()
        error = ctypes.create_string_buffer(_library.ERROR_BYTES)
        status = library.sluice_store_open(ctypes.byref(struct), ctypes.byref(opened), error, len(error))
        _library.check(status, error.value.decode(errors="replace"))
        self._pointer = opened.value
        self._at_exit = functools.partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of the library with the handle and `arguments`. Raises the error that it returns."""
        with self._use() as pointer:
            status = getattr(self._library, function)(pointer, *arguments)
            if status != _library.OK:
                raise error_for_status(status, self._library.sluice_store_error().decode(errors="replace"))

    def text(self, function: str) -> str:
        """Calls a function that returns a text, which the library overwrites in the next such call."""
        text = ctypes.c_char_p()
        with self._text_lock, self._use():
            self.call(function, ctypes.byref(text))
            return (text.value or b"").decode()

    def is_open(self) -> bool:
        return self._pointer is not None and not self._is_closing and os.getpid() == self._pid

    def close(self) -> None:
        """Waits for the calls of other threads, and frees the client. Has no effect if the handle is closed, or in a child of fork().

        In a signal handler that interrupted a call of this thread, that call frees the client when it returns."""
        if not self.is_open():
            return
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            own = threading.get_ident()
            self._lock.wait_for(lambda: all(user == own for user in self._users))
            self._is_freed_by_call = bool(self._users)
        if self._is_freed_by_call:
            return
        self._free()

    def _free(self) -> None:
        self._library.sluice_store_close(self._pointer)
        atexit.unregister(self._at_exit)

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def _use(self) -> Iterator[int]:
        if os.getpid() != self._pid:
            raise Closed("the store belongs to the parent process; open a new one after fork()")
        with self._lock:
            if self._is_closing or self._pointer is None:
                raise Closed("the store is closed")
            self._users.append(threading.get_ident())
        try:
            yield self._pointer
        finally:
            with self._lock:
                self._users.remove(threading.get_ident())
                self._lock.notify_all()
                is_last = not self._users
            if is_last and self._is_freed_by_call:
                self._free()


def _close_at_exit(reference: weakref.ref[Handle]) -> None:
    handle = reference()
    if handle is not None:
        handle.close()
