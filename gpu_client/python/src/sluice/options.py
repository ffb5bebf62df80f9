"""Converts keyword arguments to the option structs of the C API. None keeps the library's default, which environment
variables may set."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any, Optional, Union

from ._library import DEVICE_CUDA, DEVICE_HOST, WIRE_DTYPES, Options, StoreOptions, StreamOptions

_SESSION_ID_BYTES = 16


def session_options(library: ctypes.CDLL, reducers: Optional[str], session_id: bytes, values: Mapping[str, Any]) -> Options:
    """Returns sluice_options. Raises TypeError or ValueError with the name of an option that does not fit its field; the
    library checks the rest."""
    options = Options()
    library.sluice_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
    options.reducers = None if reducers is None else os.fsencode(reducers)
    identity = bytes(session_id)
    if len(identity) != _SESSION_ID_BYTES:
        raise ValueError(f"session_id has {len(identity)} bytes; expected {_SESSION_ID_BYTES}")
    options.session_id = (ctypes.c_uint8 * _SESSION_ID_BYTES)(*identity)
    _fill(options, values)
    return options


def stream_options(library: ctypes.CDLL, device: object, wire_dtype: object, values: Mapping[str, Any]) -> StreamOptions:
    """Returns sluice_stream_options. `device` and `wire_dtype` are those of Session."""
    options = StreamOptions()
    library.sluice_stream_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
    options.device_kind, options.device = _device(device)
    if wire_dtype is not None:
        if wire_dtype not in WIRE_DTYPES:
            raise ValueError(f"wire_dtype is {wire_dtype!r}; expected None, 'f32', 'bf16', 'f16', 'mxfp8' or 'int8'")
        options.wire_dtype = WIRE_DTYPES[wire_dtype]
    _fill(options, values)
    return options


def store_options(library: ctypes.CDLL, reducers: Optional[str], values: Mapping[str, Any]) -> StoreOptions:
    """Returns sluice_store_options. Raises like session_options()."""
    options = StoreOptions()
    library.sluice_store_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
    options.reducers = None if reducers is None else os.fsencode(reducers)
    _fill(options, values)
    return options


def seconds(timeout: Any) -> float:
    """Returns the timeout. Raises TypeError unless it is a number, ValueError for a negative one or NaN."""
    if not isinstance(timeout, Real):
        raise TypeError(f"timeout is {timeout!r}; expected a number of seconds")
    value = float(timeout)
    if not value >= 0:
        raise ValueError(f"timeout is {timeout} s; expected 0 or more")
    return value


def _fill(options: Union[Options, StoreOptions, StreamOptions], values: Mapping[str, Any]) -> None:
    types = dict((name, kind) for name, kind, *_ in options._fields_)
    for name, value in values.items():
        if value is None:
            continue
        if types[name] is ctypes.c_char_p:
            setattr(options, name, os.fsencode(value))
            continue
        # Checked here, because ctypes silently truncates integers.
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} is {value!r}; expected an integer")
        maximum = (1 << 8 * ctypes.sizeof(types[name])) - 1
        if not 0 <= operator.index(value) <= maximum:
            raise ValueError(f"{name} is {value}; expected 0..{maximum}")
        setattr(options, name, operator.index(value))


def _device(device: object) -> tuple[int, int]:
    """Returns the device kind and the ordinal. "cuda" without an ordinal means torch's current GPU; without torch it means
    the GPU of the calling thread's context (-1)."""
    if device is None or str(device) == "cpu":
        return DEVICE_HOST, -1
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise ValueError(f"device is {device}; expected the ordinal of a GPU, 0 or greater")
        return DEVICE_CUDA, device
    kind, _, ordinal = str(device).partition(":")
    if kind != "cuda" or (ordinal and not ordinal.isdigit()):
        raise ValueError(f"device is {device!r}; expected 'cpu', 'cuda', 'cuda:N' or the ordinal of a GPU")
    if ordinal:
        return DEVICE_CUDA, int(ordinal)
    torch = sys.modules.get("torch")
    return DEVICE_CUDA, torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else -1
