"""Class Session: a group of ranks that reduces arrays through a pool of reducers. Wraps sluice.h and streams.h."""

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
from .buffers import Buffer, check_pair, stream_handle, view
from .collectives import Collectives, library_op, pointer
from .errors import Closed, Error, Timeout, error_for_status
from .findings import OnFinding
from .options import session_options, stream_options
from .request import FindingReader, Request
from .stats import Stats, StreamStats, struct_fields
from .unclosed import close_at_exit, close_collected

_LIST_BYTES = 1 << 16  # of a list of reducers


class Session(Collectives):
    """A group of ranks that reduce arrays together. Class Collectives has reduce-scatter, all-gather, reduce and broadcast.

    All ranks create the session with the same id, number of ranks and reducers, issue the same operations in the same
    order, and close the session. Any thread may use a session, but the caller must ensure that all ranks issue the
    operations in one order. In a child of fork() all calls raise sluice.Closed.

    Use it as a context manager, or call close(). A session that is collected without it warns, and closes on a thread."""

    _handle: Optional[int] = None  # a class attribute, because __del__ reads it even if __init__ failed
    _is_closing = False
    _closed_text = "the session is closed"

    def __init__(self, reducers: Optional[str], *, session_id: bytes, rank: int, ranks: int, device: object = None,
                 wire_dtype: Optional[str] = None, measure_error: Optional[bool] = None, staging_bytes: Optional[int] = None,
                 piece_bytes: Optional[int] = None, fusion_bytes: Optional[int] = None, always_staged: Optional[bool] = None,
                 job: Optional[str] = None, tenant: Optional[str] = None, key_file: Optional[Union[str, os.PathLike[str]]] = None,
                 token_file: Optional[Union[str, os.PathLike[str]]] = None, interface_address: Optional[str] = None, lanes: Optional[int] = None,
                 window_bytes: Optional[int] = None, slot_bytes: Optional[int] = None, progress_threads: Optional[int] = None,
                 payload_crc: Optional[bool] = None, keep_results: Optional[bool] = None, connect_timeout_ms: Optional[int] = None,
                 join_timeout_ms: Optional[int] = None, op_timeout_ms: Optional[int] = None, linger_ms: Optional[int] = None,
                 resume_timeout_ms: Optional[int] = None, rendezvous: Optional[str] = None, stochastic_rounding: Optional[bool] = None,
                 wire_strict: Optional[bool] = None, wire_min_count: Optional[int] = None, on_finding: OnFinding = None,
                 tls: Optional[str] = None, tls_ca: Optional[Union[str, os.PathLike[str]]] = None, tls_cert: Optional[Union[str, os.PathLike[str]]] = None,
                 tls_key: Optional[Union[str, os.PathLike[str]]] = None) -> None:
        """Connects to the reducers, joins, and waits until all ranks have joined.

        Blocks for at most connect_timeout_ms + join_timeout_ms + 5 s. Raises a subclass of sluice.Error, or TypeError or
        ValueError for an invalid argument.

        reducers: "host:port,host:port" or "@FILE", in the same order on all ranks, or "none"; None: SLUICE_REDUCERS, or
            those of the platform.
        session_id: 16 bytes, equal on all ranks and unique among the sessions of the pool.
        rank, ranks: this rank, 0..ranks-1, and the number of ranks.
        device: memory that operations use: "cpu" (the default), or "cuda", "cuda:N", N or a torch.device for a GPU.
        wire_dtype: the type in which sums and averages of float32 travel: "f32", "bf16", "f16", "mxfp8" or "int8"; None: the
            variable SLUICE_WIRE, otherwise "f32".
        on_finding: what happens when a reducer with --health finds a rank's contribution to an operation sick. "raise": the
            operation raises UnhealthyGradient when it has ended; a function: called with the Finding, on the thread that
            sees the end; None: nothing.

        job, key_file, token_file, tls, tls_ca, tls_cert, tls_key: None: the variables SLUICE_JOB, SLUICE_KEY_FILE and so on.
            An empty text switches off what the variable sets.

        The other arguments have the names, units and meanings of the fields of sluice_options and sluice_stream_options.
        None keeps the library's default."""
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._findings = FindingReader(on_finding)
        self._issued = 0
        self._uses = 0  # calls in progress; close waits for them
        self._open: dict[int, Request] = {}
        # Requests that are being started and not in _open yet. An exception may leave one here until the session is closed.
        self._starting: list[Request] = []
        self._group: Optional[Request] = None
        self._close_callbacks: list[Callable[[], None]] = []
        self.rank, self.ranks = rank, ranks
        self.remark = ""  # at the end of the session's errors
        self._library = library = _library.load()
        options = session_options(library, reducers, session_id, {
            "rank": rank, "ranks": ranks, "job": job, "tenant": tenant, "key_file": key_file, "token_file": token_file,
            "interface_address": interface_address, "lanes": lanes, "window_bytes": window_bytes, "slot_bytes": slot_bytes,
            "progress_threads": progress_threads, "payload_crc": payload_crc, "keep_results": keep_results, "connect_timeout_ms": connect_timeout_ms,
            "join_timeout_ms": join_timeout_ms, "op_timeout_ms": op_timeout_ms, "linger_ms": linger_ms, "resume_timeout_ms": resume_timeout_ms,
            "rendezvous": rendezvous, "tls": tls, "tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key})
        streams = stream_options(library, device, wire_dtype, {
            "measure_error": measure_error, "staging_bytes": staging_bytes, "piece_bytes": piece_bytes, "fusion_bytes": fusion_bytes,
            "always_staged": always_staged, "stochastic_rounding": stochastic_rounding, "wire_strict": wire_strict,
            "wire_min_count": wire_min_count})
        self.wire_dtype = next(name for name, number in _library.WIRE_DTYPES.items() if number == streams.wire_dtype)
        self._is_cuda = streams.device_kind == _library.DEVICE_CUDA
        created = ctypes.c_void_p()
        error = ctypes.create_string_buffer(_library.ERROR_BYTES)
        _library.check(library.sluice_session_create(ctypes.byref(options), ctypes.byref(created), error, len(error)), _text(error))
        status = library.sluice_session_open_streams(created, ctypes.byref(streams), error, len(error))
        if status != _library.OK:
            library.sluice_session_abort(created, f"rank {rank} cannot open streams: {_text(error)}".encode())  # the others have joined
            library.sluice_session_close(created)
            _library.check(status, _text(error))
        self._handle = created.value
        # At exit other threads still run. A thread that the interpreter stops inside a function of torch would abort the
        # process by std::terminate().
        self._at_exit = functools.partial(close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    def allreduce(self, x: Any, op: str = "sum", out: Any = None, *, stream: Any = None, residual: Any = None, name: Optional[str] = None) -> Any:
        """Reduces like allreduce_async, blocks until the result is in `out` (on a GPU too), and returns `out`."""
        if self._group is not None:
            raise RuntimeError("allreduce would block forever within a group, whose operations start at its end; use allreduce_async")
        return self.allreduce_async(x, op, out, stream=stream, residual=residual, name=name).wait()

    def allreduce_async(self, x: Any, op: str = "sum", out: Any = None, *, stream: Any = None, residual: Any = None,
                        name: Optional[str] = None) -> Request:
        """Starts the reduction of `x` over all ranks into `out` on all ranks, and returns without waiting.

        x: an array, contiguous in C order and aligned, of int8, uint8, int32, uint32, int64, uint64, float16, bfloat16,
            float32, float64, float8_e4m3fn or float8_e5m2.
        op: "sum", "prod", "min", "max" or "avg".
        out: an array of the same shape and type; None: the result overwrites `x`. It must not overlap `x` otherwise.
        stream: a stream of PyTorch or CuPy, or a handle. The operation runs after the stream's earlier work and before its
            later work. None: PyTorch's current stream for arrays on a GPU, no stream for arrays in host memory.
        residual: error feedback for the wire types "mxfp8" and "int8": a float32 array of as many elements as `x`, on the
            same device, zero before the first operation on a tensor. It is added to `x` before rounding and receives the
            rounding errors. Without effect with other wire types.
        name: the operation in findings, such as "bucket 12 at step 1041"; None: its number in the session, kind and size. A
            group has the name of its first operation that has one.

        Neither array may be written, and `out` not read, until the operation has ended. Within a group all operations
        return the group's request. Raises TypeError for an unsupported object or element type, ValueError for unsuitable
        memory or an unknown `op`."""
        operator = library_op(op)
        send = view(x)
        receive = send if out is None else view(out, "out")
        check_pair(send, receive)
        self._check_device(send, "x")
        self._check_device(receive, "out")
        feedback = self._residual_of(residual, send)
        arguments = (pointer(send), pointer(receive), send.count, _library.DTYPES[send.dtype], operator, feedback)
        return self._issue("sluice_allreduce_residual_on_stream", send, arguments, stream_handle_of=(stream, send, receive),
                           result=x if out is None else out, owners=(send.owner, receive.owner, residual), name=name)

    def _issue(self, function: str, whole: Buffer, arguments: tuple[Any, ...], *, stream_handle_of: tuple[Any, Buffer, Buffer], result: Any,
               owners: tuple[object, ...], name: Optional[str]) -> Request:
        """Starts an operation by a function of streams.h, whose last arguments are the stream and the request.

        `whole`: the array whose size is the operation's in findings. `owners` keep its memory alive."""
        handle = stream_handle(*stream_handle_of) if self._is_cuda or stream_handle_of[0] is not None else None
        with self._use() as (library, session):
            self._release_completed()
            group = self._group
            kind = function.removeprefix("sluice_").removesuffix("_on_stream").removesuffix("_residual")
            request = group or Request(self, result, self._next_name(kind, whole))
            if name is not None and (group is None or group._name is None):
                request._name = name
            request._buffers += owners
            request_id = ctypes.c_uint64()
            # Added before the call: a signal handler may raise right after the call, when the arrays are already in use.
            self._starting.append(request)
            status = getattr(library, function)(session, *arguments, handle, None if group else ctypes.byref(request_id))
            if status == _library.OK and group is None:
                self._add_request(request_id.value, request)
            self._starting.remove(request)
            if status != _library.OK:
                raise self._refusal(library, session, status)
        return request

    @contextmanager
    def group(self) -> Iterator[Request]:
        """Merges the operations within `with session.group() as request:`.

        The operations start at the end of the block; `request` ends when all of them have ended. If the block raises or an
        operation in it was refused, none of them runs. All ranks must form the same groups."""
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
            request_id = ctypes.c_uint64()
            self._starting.append(request)
            status = library.sluice_group_end(session, ctypes.byref(request_id))
            if status == _library.OK:
                self._add_request(request_id.value, request)
            self._starting.remove(request)
            if status != _library.OK:
                error = self._refusal(library, session, status)
                request._complete(error)
                raise error

    def stats(self) -> Stats:
        """Returns the counters of the session so far."""
        struct = _library.Stats(struct_size=ctypes.sizeof(_library.Stats))
        with self._use() as (library, session):
            _library.check(library.sluice_session_stats(session, ctypes.byref(struct)))
        return Stats(**struct_fields(struct))

    def stream_stats(self) -> StreamStats:
        """Returns the counters of the streams so far. With measure_error on a GPU it waits for the operations in flight."""
        struct = _library.StreamStats(struct_size=ctypes.sizeof(_library.StreamStats))
        with self._use() as (library, session):
            _library.check(library.sluice_session_stream_stats(session, ctypes.byref(struct)))
        return StreamStats(**struct_fields(struct))

    def error(self) -> Optional[Error]:
        """Returns the error with which the session ended, or None.

        GPU streams continue after a failure, so check this before results become permanent, for example in a
        checkpoint."""
        with self._use() as (library, session):
            return self._failure(library, session)

    def ended_by(self) -> Optional[int]:
        """Returns the rank that ended the session: that was lost, left while others went on, failed, aborted, called another
        operation or was waited for too long. None if no rank is known, such as when a reducer was lost, and while the session
        runs."""
        rank = ctypes.c_uint32(_library.NO_RANK)
        with self._use() as (library, session):
            _library.check(library.sluice_session_ended_by(session, ctypes.byref(rank)))
        return None if rank.value == _library.NO_RANK else rank.value

    def reducers(self) -> str:
        """Returns the dedicated reducers that serve the session now, for another session of the same ranks, or "none".

        While a reducer is lost, drains or is added, ranks may see different lists; let one rank tell the others its list."""
        text = ctypes.create_string_buffer(_LIST_BYTES)
        with self._use() as (library, session):
            _library.check(library.sluice_session_reducers(session, text, len(text)))
        return _text(text)

    def set_reducers(self, reducers: Optional[str]) -> None:
        """Replaces the list of reducers of the running session. None reads the watched file ("@FILE") now.

        Only the list of rank 0 takes effect, for all ranks. Returns before the change is complete."""
        error = ctypes.create_string_buffer(_library.ERROR_BYTES)
        with self._use() as (library, session):
            status = library.sluice_session_set_reducers(session, None if reducers is None else os.fsencode(reducers), error, len(error))
        _library.check(status, _text(error))

    def abort(self, reason: str = "") -> None:
        """Ends the session at once on all ranks, instead of leaving it.

        Open and later operations raise sluice.Closed with `reason` on this rank, and sluice.Lost on the others. Any thread
        may call it, also while others wait. Close the session afterwards. Has no effect on a session that has ended or is
        closed, or in a child of fork()."""
        with suppress(Closed), self._use() as (library, session):
            library.sluice_session_abort(session, reason.encode())

    def close(self) -> None:
        """Leaves and frees the session.

        Waits for open operations and until no other rank needs this one, together for at most linger_ms. Waits in other
        threads raise sluice.Closed. Raises the session's error if it failed. Has no effect if the session is already
        closed, or in a child of fork(). The interpreter closes sessions that are open when it exits."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._is_closing or self._handle is None:
                return
            self._is_closing = True
            if failure := self._failure(self._library, self._handle):
                self._closed_text += f": {failure}"  # for calls in other threads that an abort has interrupted
            self._lock.wait_for(lambda: self._uses == 0)
        failure = self._failure(self._library, self._handle)
        status = self._library.sluice_session_close(self._handle)
        for request in list(self._open.values()):
            request._complete(failure or Closed(self._closed_text))
        for callback in self._close_callbacks:
            callback()
        atexit.unregister(self._at_exit)
        late = "linger_ms ended before all open operations had, or before all ranks had left or finished" if status == Timeout.status else ""
        _library.check(status, str(failure or late))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.close()
        except Error:
            if value is None:  # otherwise the exception of the block is more useful
                raise

    def __del__(self) -> None:
        if self._handle is not None and not self._is_closing and os.getpid() == self._pid:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            close_collected(self)

    def __repr__(self) -> str:
        return f"<sluice.Session rank {self.rank} of {self.ranks}>"

    @contextmanager
    def _use(self) -> Iterator[tuple[ctypes.CDLL, int]]:
        """Returns the library and the session handle for one call. close() waits for the end of the call."""
        if os.getpid() != self._pid:
            raise Closed("the session belongs to the parent process; create a new one after fork()")
        with self._lock:
            if self._is_closing or self._handle is None:
                raise Closed(self._closed_text)
            self._uses += 1
        try:
            yield self._library, self._handle
        finally:
            with self._lock:
                self._uses -= 1
                self._lock.notify_all()

    def _call_at_close(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, on the thread that closes the session, after all requests have ended."""
        self._close_callbacks.append(callback)

    def _failure(self, library: ctypes.CDLL, session: int) -> Optional[Error]:
        text = ctypes.create_string_buffer(_library.ERROR_BYTES)
        status = library.sluice_session_error(session, text, len(text))
        return None if status == _library.OK else error_for_status(status, _text(text) + self.remark)

    def _reason(self, library: ctypes.CDLL, session: int) -> str:
        return str(self._failure(library, session) or "")

    def _refusal(self, library: ctypes.CDLL, session: int, status: int) -> Error:
        """Returns the exception for a function of streams.h that has just failed on this thread. If the session has
        failed, its reason is used, because it is more specific."""
        return error_for_status(status, self._reason(library, session) or library.sluice_refusal().decode(errors="replace"))

    def _check_device(self, buffer: Buffer, name: str) -> None:
        if buffer.device is not None and not self._is_cuda:
            raise ValueError(f"{name} is on cuda:{buffer.device}, but the session uses host memory; create it with device=\"cuda\"")

    def _residual_of(self, residual: Any, send: Buffer) -> Optional[int]:
        if residual is None:
            return None
        buffer = view(residual, "residual")
        self._check_device(buffer, "residual")
        if buffer.dtype != "float32" or buffer.count != send.count or buffer.is_readonly:
            raise ValueError(f"residual is {buffer.dtype} of {buffer.count} elements; expected writable float32 of {send.count}")
        return buffer.pointer or None

    def _abandon_group(self, request: Request) -> None:
        """Ends the group without running it: issues an invalid operation, which makes the end of the group fail."""
        self._group = None
        with self._use() as (library, session):
            library.sluice_allreduce_on_stream(session, None, None, 1, 0, 0, None, None)
            status = library.sluice_group_end(session, ctypes.byref(ctypes.c_uint64()))
            request._complete(self._refusal(library, session, status))

    def _next_name(self, kind: str, x: Buffer) -> str:
        self._issued += 1
        return f"operation {self._issued}, {kind} of {x.count} {x.dtype}"

    def _add_request(self, request_id: int, request: Request) -> None:
        request._id = request_id
        with self._lock:
            self._open[request_id] = request

    def _remove_request(self, request_id: int) -> None:
        with self._lock:
            self._open.pop(request_id, None)

    def _release_completed(self) -> None:
        """Releases the arrays of the oldest operations that have ended, because the caller may have dropped their
        requests."""
        while self._open:
            with self._lock:
                oldest = next(iter(self._open.values()), None)
            if oldest is None or not oldest.done():
                return


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return buffer.value.decode(errors="replace")
