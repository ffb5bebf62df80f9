"""A session: one group of ranks that reduces arrays through a pool of reducers. sluice.h and streams.h are the manual."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Optional, Union

from . import _library
from .buffers import Buffer, check_pair, view
from .errors import Closed, Error, of_status
from .options import session_options, stream_options
from .request import Request
from .stats import Stats, StreamStats, fields_of
from .streams import handle_of


class Session:
    """Every rank creates it with the same id, number of ranks and reducers, issues the same operations in the same order, and closes it.

    Threads may share it; that all ranks see one order of operations is the caller's business. A child of fork() gets sluice.Closed of it."""

    _handle: Optional[int] = None  # of the class, since __del__ asks, whatever went wrong before
    _is_closing = False

    def __init__(self, reducers: str, *, session_id: bytes, rank: int, ranks: int, device: object = None,
                 wire_dtype: Optional[str] = None, measure_error: Optional[bool] = None, staging_bytes: Optional[int] = None,
                 piece_bytes: Optional[int] = None, fusion_bytes: Optional[int] = None, always_staged: Optional[bool] = None,
                 job: Optional[str] = None, tenant: Optional[str] = None, key_file: Optional[Union[str, os.PathLike[str]]] = None,
                 token_file: Optional[Union[str, os.PathLike[str]]] = None, interface_address: Optional[str] = None, lanes: Optional[int] = None,
                 window_bytes: Optional[int] = None, slot_bytes: Optional[int] = None, progress_threads: Optional[int] = None,
                 payload_crc: Optional[bool] = None, keep_results: Optional[bool] = None, connect_timeout_ms: Optional[int] = None,
                 join_timeout_ms: Optional[int] = None, op_timeout_ms: Optional[int] = None, linger_ms: Optional[int] = None,
                 resume_timeout_ms: Optional[int] = None) -> None:
        """Connects, joins, and waits until all ranks have: at most connect_timeout_ms + join_timeout_ms + 5 s.

        `device`: "cpu" (None), "cuda", "cuda:N", N or a torch.device, whose arrays the session takes. `wire_dtype`: "bf16" or "f16", as which sums and averages of
        float32 travel. The others are those of sluice_options and sluice_stream_options, None as the library has it."""
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._uses = 0  # calls under way, which the library must not lose the session under
        self._open: dict[int, Request] = {}
        self._beginning: list[Request] = []  # not in _open yet; what an exception leaves here stays until the session is closed
        self._group: Optional[Request] = None
        self._followers: list[Callable[[], None]] = []
        self.rank, self.ranks = rank, ranks
        self._library = library = _library.load()
        options = session_options(library, reducers, session_id, {
            "rank": rank, "ranks": ranks, "job": job, "tenant": tenant, "key_file": key_file, "token_file": token_file,
            "interface_address": interface_address, "lanes": lanes, "window_bytes": window_bytes, "slot_bytes": slot_bytes,
            "progress_threads": progress_threads, "payload_crc": payload_crc, "keep_results": keep_results, "connect_timeout_ms": connect_timeout_ms,
            "join_timeout_ms": join_timeout_ms, "op_timeout_ms": op_timeout_ms, "linger_ms": linger_ms, "resume_timeout_ms": resume_timeout_ms})
        streams = stream_options(library, device, wire_dtype, {
            "measure_error": measure_error, "staging_bytes": staging_bytes, "piece_bytes": piece_bytes, "fusion_bytes": fusion_bytes,
            "always_staged": always_staged})
        self._is_cuda = streams.device_kind == _library.DEVICE_CUDA
        created = ctypes.c_void_p()
        error = ctypes.create_string_buffer(_library.ERROR_BYTES)
        _library.check(library.sluice_session_create(ctypes.byref(options), ctypes.byref(created), error, len(error)), _text(error))
        status = library.sluice_session_open_streams(created, ctypes.byref(streams), error, len(error))
        if status != _library.OK:
            library.sluice_session_close(created)
            _library.check(status, _text(error))
        self._handle = created.value
        # While threads still run: one that the interpreter stops in the midst of torch's functions is the end of the process, by terminate().
        self._at_exit = functools.partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    def allreduce(self, x: Any, op: str = "sum", out: Any = None, *, stream: Any = None) -> Any:
        """allreduce_async and Request.wait in one: returns when `out`, which is returned, holds the result, on a GPU as well."""
        if self._group is not None:
            raise RuntimeError("allreduce would wait for what begins with the end of the group: use allreduce_async")
        return self.allreduce_async(x, op, out, stream=stream).wait()

    def allreduce_async(self, x: Any, op: str = "sum", out: Any = None, *, stream: Any = None) -> Request:
        """Reduces x over all ranks into `out` (None: into x) on all ranks, by "sum", "prod", "min", "max" or "avg". Returns at once.

        Both arrays belong to the operation until it is over. `stream` (torch's, cupy's, or a handle): what it was given before is waited for, and
        what it is given later waits for the result; None is torch's current stream for arrays on a GPU, and no stream for others. In a group all
        operations have the group's request. TypeError: no array, or of a type that can't be reduced. ValueError: memory or `op`."""
        if op not in _library.OPS:
            raise ValueError(f"op is {op!r}; there are {', '.join(_library.OPS)}")
        send = view(x)
        receive = send if out is None else view(out, "out")
        check_pair(send, receive)
        self._check_device(send, "x")
        self._check_device(receive, "out")
        placeholder = ctypes.c_uint64()  # empty arrays may have no address, and the library wants one
        arguments = (send.pointer or ctypes.addressof(placeholder), receive.pointer or ctypes.addressof(placeholder), send.count,
                     _library.DTYPES[send.dtype], _library.OPS[op], handle_of(stream, send, receive) if self._is_cuda or stream is not None else None)
        with self._use() as (library, session):
            self._reap()
            group = self._group
            request = group or Request(self, x if out is None else out)
            request._buffers += (send.owner, receive.owner, placeholder)
            name = ctypes.c_uint64()
            # From before the call: a signal's exception may come between its return and the next line, and the arrays are in use by then.
            self._beginning.append(request)
            status = library.sluice_allreduce_on_stream(session, *arguments, None if group else ctypes.byref(name))
            if status == _library.OK and group is None:
                self._remember(name.value, request)
            self._beginning.remove(request)
            if status != _library.OK:
                raise self._refusal(library, session, status)
        return request

    @contextmanager
    def group(self) -> Iterator[Request]:
        """Operations within `with session.group() as request:` are put together, and begin with its end; `request` is over when all of them are. When
        the block raises, or an operation in it was refused, nothing of the group is done. All ranks make the same groups."""
        with self._use() as (library, session):
            status = library.sluice_group_begin(session)
            if status != _library.OK:
                raise self._refusal(library, session, status)
            self._group = request = Request(self, None)
        try:
            yield request
        except BaseException:
            with suppress(Error):
                self._abandon_group(request)
            raise
        with self._use() as (library, session):
            self._group = None
            name = ctypes.c_uint64()
            self._beginning.append(request)
            status = library.sluice_group_end(session, ctypes.byref(name))
            if status == _library.OK:
                self._remember(name.value, request)
            self._beginning.remove(request)
            if status != _library.OK:
                error = self._refusal(library, session, status)
                request._end(error)
                raise error

    def stats(self) -> Stats:
        struct = _library.Stats(struct_size=ctypes.sizeof(_library.Stats))
        with self._use() as (library, session):
            _library.check(library.sluice_session_stats(session, ctypes.byref(struct)))
        return Stats(**fields_of(struct))

    def stream_stats(self) -> StreamStats:
        """On a GPU with measure_error it waits for the copies under way."""
        struct = _library.StreamStats(struct_size=ctypes.sizeof(_library.StreamStats))
        with self._use() as (library, session):
            _library.check(library.sluice_session_stream_stats(session, ctypes.byref(struct)))
        return StreamStats(**fields_of(struct))

    def error(self) -> Optional[Error]:
        """Why the session ended, None while it stands. A GPU's streams go on when a session has failed, so ask before results are used for good."""
        text = ctypes.create_string_buffer(_library.ERROR_BYTES)
        with self._use() as (library, session):
            status = library.sluice_session_error(session, text, len(text))
        return None if status == _library.OK else of_status(status, _text(text))

    def set_reducers(self, reducers: Optional[str]) -> None:
        """Another list for a session that runs; None: the file that is watched ("@FILE") is read now."""
        error = ctypes.create_string_buffer(_library.ERROR_BYTES)
        with self._use() as (library, session):
            status = library.sluice_session_set_reducers(session, None if reducers is None else os.fsencode(reducers), error, len(error))
        _library.check(status, _text(error))

    def close(self) -> None:
        """Leaves, and waits up to linger_ms until nobody needs this rank any more; open operations are waited for within the same time. Other threads'
        waits end with sluice.Closed. Again, or in a child of fork(): nothing. The interpreter's end closes what is open then."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._is_closing or self._handle is None:
                return
            self._is_closing = True
            self._lock.wait_for(lambda: self._uses == 0)
        reason = self._reason(self._library, self._handle)
        status = self._library.sluice_session_close(self._handle)
        for request in list(self._open.values()):
            request._end(Closed("the session was closed"))
        for follower in self._followers:
            follower()
        atexit.unregister(self._at_exit)
        _library.check(status, reason)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.close()
        except Error:
            if value is None:  # what the block raises says more
                raise

    def __del__(self) -> None:
        if self._handle is not None and not self._is_closing and os.getpid() == self._pid:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            with suppress(Error):
                self.close()

    def __repr__(self) -> str:
        return f"<sluice.Session rank {self.rank} of {self.ranks}>"

    @contextmanager
    def _use(self) -> Iterator[tuple[ctypes.CDLL, int]]:
        """Library and session for one call, which close waits for."""
        if os.getpid() != self._pid:
            raise Closed("the session is that of the process which this one was forked from")
        with self._lock:
            if self._is_closing or self._handle is None:
                raise Closed("the session was closed")
            self._uses += 1
        try:
            yield self._library, self._handle
        finally:
            with self._lock:
                self._uses -= 1
                self._lock.notify_all()

    def _at_close(self, follower: Callable[[], None]) -> None:
        """Called once, by the thread that closes the session, when all requests are over."""
        self._followers.append(follower)

    def _reason(self, library: ctypes.CDLL, session: int) -> str:
        text = ctypes.create_string_buffer(_library.ERROR_BYTES)
        library.sluice_session_error(session, text, len(text))
        return _text(text)

    def _refusal(self, library: ctypes.CDLL, session: int, status: int) -> Error:
        """Of a function of streams.h that has just failed on this thread. The session's own end has more to say."""
        return of_status(status, self._reason(library, session) or library.sluice_refusal().decode(errors="replace"))

    def _check_device(self, buffer: Buffer, name: str) -> None:
        if buffer.device is not None and not self._is_cuda:
            raise ValueError(f"{name} is on cuda:{buffer.device}, and this session takes memory of the host: Session(device=\"cuda\")")

    def _abandon_group(self, request: Request) -> None:
        """A group that holds a refused operation is refused as a whole, so one is put in."""
        self._group = None
        with self._use() as (library, session):
            library.sluice_allreduce_on_stream(session, None, None, 1, 0, 0, None, None)
            status = library.sluice_group_end(session, ctypes.byref(ctypes.c_uint64()))
            request._end(self._refusal(library, session, status))

    def _remember(self, name: int, request: Request) -> None:
        request._name = name
        with self._lock:
            self._open[name] = request

    def _forget(self, name: int) -> None:
        with self._lock:
            self._open.pop(name, None)

    def _reap(self) -> None:
        """Lets go of the oldest operations' arrays, as far as they are over: nobody may ever ask those requests."""
        while self._open:
            with self._lock:
                oldest = next(iter(self._open.values()), None)
            if oldest is None or not oldest.done():
                return


def _close_at_exit(reference: weakref.ref[Session]) -> None:
    session = reference()
    if session is not None:
        with suppress(Error):
            session.close()


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return buffer.value.decode(errors="replace")
