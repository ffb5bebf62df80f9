"""Loads libsluice and declares its structs and functions, as in gpu_client/include/sluice/{sluice,streams,findings,store}.h.

ctypes releases the interpreter's lock during a call, so a function that blocks does not block other threads."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Optional

from ._version import __version__
from .errors import LibraryNotFound, error_for_status

FILE = "libsluice.so.0"
PACKAGE = Path(__file__).parent
ERROR_BYTES = 1024

OK, AGAIN, INVALID_ARGUMENT, TIMEOUT = 0, 1, 2, 5
NO_RANK = 0xFFFFFFFF
DEVICE_HOST, DEVICE_CUDA = 0, 1

# Values of sluice_dtype and sluice_op, as on the wire.
DTYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
          "bfloat16": 9, "float8_e4m3fn": 10, "float8_e5m2": 11}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}
WIRE_DTYPES = {"f32": -1, "f16": 6, "bf16": 9, "mxfp8": 12, "int8": 13}


class Options(Structure):
    _fields_ = [("struct_size", c_size_t), ("reducers", c_char_p), ("session_id", c_uint8 * 16), ("rank", c_uint32), ("ranks", c_uint32),
                ("job", c_char_p), ("key_file", c_char_p), ("token_file", c_char_p), ("lanes", c_uint32), ("window_bytes", c_uint32),
                ("slot_bytes", c_uint32), ("progress_threads", c_uint32), ("payload_crc", c_uint32), ("connect_timeout_ms", c_uint32),
                ("join_timeout_ms", c_uint32), ("op_timeout_ms", c_uint32), ("linger_ms", c_uint32), ("interface_address", c_char_p),
                ("keep_results", c_uint32), ("resume_timeout_ms", c_uint32), ("tenant", c_char_p), ("rendezvous", c_char_p), ("tls", c_char_p), ("tls_ca", c_char_p),
                ("tls_cert", c_char_p), ("tls_key", c_char_p)]


class Stats(Structure):
    _fields_ = [("struct_size", c_size_t), ("operations", c_uint64), ("payload_bytes_out", c_uint64), ("payload_bytes_in", c_uint64),
                ("wire_bytes_out", c_uint64), ("wire_bytes_in", c_uint64), ("send_calls", c_uint64), ("receive_calls", c_uint64),
                ("reducers", c_uint32), ("lanes", c_uint32), ("missing_ranks", c_uint32), ("missing_rank", c_uint32), ("waited_ms", c_uint32),
                ("connections_resumed", c_uint64), ("view_changes", c_uint64), ("payload_bytes_resent", c_uint64), ("stalled_us", c_uint64),
                ("longest_stall_us", c_uint64), ("stalls", c_uint32 * 5), ("reducers_lost", c_uint32), ("payload_bytes_copied", c_uint64),
                ("rdma_lanes", c_uint32), ("rdma_work_posted", c_uint64), ("rdma_doorbells", c_uint64), ("rdma_completions", c_uint64)]


class Finding(Structure):
    _fields_ = [("struct_size", c_size_t), ("request", c_uint64), ("kind", c_uint32), ("rank", c_uint32), ("count", c_uint64), ("ratio", c_double)]


class StreamOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("device_kind", c_int32), ("device", c_int32), ("staging_bytes", c_uint64),
                ("piece_bytes", c_uint32), ("wire_dtype", c_int32), ("measure_error", c_uint32), ("always_staged", c_uint32),
                ("fusion_bytes", c_uint64), ("stochastic_rounding", c_uint32), ("wire_strict", c_uint32), ("wire_min_count", c_uint64)]


class StreamStats(Structure):
    _fields_ = [("struct_size", c_size_t), ("operations", c_uint64), ("rounds", c_uint64), ("pieces", c_uint64),
                ("bytes_staged_out", c_uint64), ("bytes_staged_in", c_uint64), ("pinned_bytes", c_uint64), ("elements_cast", c_uint64),
                ("cast_error_squares", c_double), ("cast_value_squares", c_double)]


class StoreOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("reducers", c_char_p), ("job", c_char_p), ("tenant", c_char_p), ("key_file", c_char_p),
                ("token_file", c_char_p), ("timeout_ms", c_uint32), ("worker", c_uint64), ("tls", c_char_p), ("tls_ca", c_char_p),
                ("tls_cert", c_char_p), ("tls_key", c_char_p)]


_SESSION = c_void_p
_STORE = c_void_p
_REQUEST = c_uint64
HOST_WORK = CFUNCTYPE(None, c_void_p)
_TEXT = (POINTER(c_char), c_size_t)
# name: result, arguments
_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sluice_version": (c_char_p, ()),
    "sluice_status_string": (c_char_p, (c_int,)),
    "sluice_options_init_sized": (None, (POINTER(Options), c_size_t)),
    "sluice_options_check": (c_int, (POINTER(Options), *_TEXT)),
    "sluice_session_create": (c_int, (POINTER(Options), POINTER(_SESSION), *_TEXT)),
    "sluice_test": (c_int, (_SESSION, _REQUEST, POINTER(c_int))),
    "sluice_wait": (c_int, (_SESSION, _REQUEST, c_int)),
    "sluice_session_error": (c_int, (_SESSION, *_TEXT)),
    "sluice_session_ended_by": (c_int, (_SESSION, POINTER(c_uint32))),
    "sluice_session_stats": (c_int, (_SESSION, POINTER(Stats))),
    "sluice_next_finding": (c_int, (_SESSION, POINTER(Finding))),
    "sluice_session_reducers": (c_int, (_SESSION, *_TEXT)),
    "sluice_session_set_reducers": (c_int, (_SESSION, c_char_p, *_TEXT)),
    "sluice_session_abort": (c_int, (_SESSION, c_char_p)),
    "sluice_session_close": (c_int, (_SESSION,)),
    "sluice_stream_options_init_sized": (None, (POINTER(StreamOptions), c_size_t)),
    "sluice_session_open_streams": (c_int, (_SESSION, POINTER(StreamOptions), *_TEXT)),
    "sluice_allreduce_on_stream": (c_int, (_SESSION, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, POINTER(_REQUEST))),
    "sluice_allreduce_residual_on_stream": (c_int, (_SESSION, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p, POINTER(_REQUEST))),
    "sluice_reduce_scatter_on_stream": (c_int, (_SESSION, c_void_p, c_void_p, c_size_t, POINTER(c_size_t), c_int, c_int, c_void_p, c_void_p,
                                                POINTER(_REQUEST))),
    "sluice_all_gather_on_stream": (c_int, (_SESSION, c_void_p, c_void_p, c_size_t, POINTER(c_size_t), c_int, c_void_p, POINTER(_REQUEST))),
    "sluice_reduce_on_stream": (c_int, (_SESSION, c_void_p, c_void_p, c_size_t, c_int, c_int, c_uint32, c_void_p, c_void_p, POINTER(_REQUEST))),
    "sluice_broadcast_on_stream": (c_int, (_SESSION, c_void_p, c_size_t, c_int, c_uint32, c_void_p, POINTER(_REQUEST))),
    "sluice_group_begin": (c_int, (_SESSION,)),
    "sluice_group_end": (c_int, (_SESSION, POINTER(_REQUEST))),
    "sluice_refusal": (c_char_p, ()),
    "sluice_session_stream_stats": (c_int, (_SESSION, POINTER(StreamStats))),
    "sluice_host_stream_create": (c_int, (POINTER(c_void_p),)),
    "sluice_host_stream_submit": (c_int, (c_void_p, HOST_WORK, c_void_p)),
    "sluice_host_stream_synchronize": (c_int, (c_void_p,)),
    "sluice_host_stream_destroy": (c_int, (c_void_p,)),
    "sluice_store_options_init_sized": (None, (POINTER(StoreOptions), c_size_t)),
    "sluice_store_open": (c_int, (POINTER(StoreOptions), POINTER(_STORE), *_TEXT)),
    "sluice_store_close": (None, (_STORE,)),
    "sluice_store_error": (c_char_p, ()),
    "sluice_store_create": (c_int, (_STORE, c_char_p, POINTER(c_void_p), POINTER(c_int))),
    "sluice_store_model": (c_int, (_STORE, c_char_p)),
    "sluice_store_delete": (c_int, (_STORE, c_char_p)),
    "sluice_store_list": (c_int, (_STORE, POINTER(c_char_p))),
    "sluice_store_describe": (c_int, (_STORE, POINTER(c_char_p))),
    "sluice_store_push": (c_int, (_STORE, POINTER(c_void_p), c_uint64, c_float, c_int, c_uint32, POINTER(c_int), POINTER(c_uint64))),
    "sluice_store_pull": (c_int, (_STORE, POINTER(c_void_p), c_uint64, c_int, c_uint32, POINTER(c_uint64))),
    "sluice_store_push_pull": (c_int, (_STORE, POINTER(c_void_p), c_uint64, c_float, c_int, POINTER(c_void_p), c_int, c_uint32, POINTER(c_int),
                                       POINTER(c_uint64))),
    "sluice_store_wait": (c_int, (_STORE, c_uint64, c_uint32, POINTER(c_uint64))),
    "sluice_store_snapshot": (c_int, (_STORE, c_char_p, c_int, POINTER(c_uint64))),
    "sluice_store_restore": (c_int, (_STORE, c_char_p, c_char_p, c_int, POINTER(c_int))),
}

_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None


def library_candidates() -> list[str]:
    """Returns the files to try: only SLUICE_LIBRARY if set, otherwise the file of a wheel, then the dynamic linker's."""
    variable = os.environ.get("SLUICE_LIBRARY")
    return [variable] if variable else [str(PACKAGE / "lib" / FILE), FILE]


def packaged_file(name: str) -> str:
    """Returns the path of a file that a wheel contains beside the modules. Raises LibraryNotFound if it does not exist, as in a source tree."""
    path = PACKAGE / name
    if not path.is_file():
        raise LibraryNotFound(f"{path} does not exist: this package is not installed from a wheel; install it with pip")
    return str(path)


def load() -> ctypes.CDLL:
    """Returns the library with its prototypes. Loads it once per process and never unloads it. Raises LibraryNotFound."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _open()
        return _loaded


def _open() -> ctypes.CDLL:
    errors = []
    for file in library_candidates():
        try:
            library = ctypes.CDLL(file)
        except OSError as error:
            errors.append(str(error))
            continue
        _declare(library, file)
        return library
    raise LibraryNotFound(f"cannot load libsluice: {'; '.join(errors)}; set SLUICE_LIBRARY to its path")


def _declare(library: ctypes.CDLL, file: str) -> None:
    for name, (result, arguments) in _PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibraryNotFound(f"{file} has no function {name}: it is not libsluice, or older than this package ({__version__})") from None
        function.restype = result
        function.argtypes = arguments
    version = library.sluice_version().decode()
    # A library of the same major version supports older callers. A minor version may add fields to structs.
    if version.split(".")[0] != __version__.split(".")[0] or _minor(version) < _minor(__version__):
        raise LibraryNotFound(f"{file} has version {version}, which does not support version {__version__} of this package")


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def check(status: int, text: str = "") -> None:
    """Raises the exception for `status` unless it is OK. `text` is the reason, if known."""
    if status != OK:
        raise error_for_status(status, text or load().sluice_status_string(status).decode())
