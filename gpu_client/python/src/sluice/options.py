"""Keyword arguments as sluice.h's structs of options. What is None stays as the library has it, variables of the environment included."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
from collections.abc import Mapping
from typing import Any, Union

from ._library import DEVICE_CUDA, DEVICE_HOST, WIRE_DTYPES, Options, StreamOptions

_SESSION_ID_BYTES = 16


def session_options(library: ctypes.CDLL, reducers: str, session_id: bytes, values: Mapping[str, Any]) -> Options:
    """TypeError and ValueError name the option; the rest is checked by the library."""
    options = Options()
    library.sluice_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
    options.reducers = os.fsencode(reducers)
    identity = bytes(session_id)
    if len(identity) != _SESSION_ID_BYTES:
        raise ValueError(f"session_id has {len(identity)} bytes, not {_SESSION_ID_BYTES}")
    options.session_id = (ctypes.c_uint8 * _SESSION_ID_BYTES)(*identity)
    _fill(options, values)
    return options


def stream_options(library: ctypes.CDLL, device: object, wire_dtype: object, values: Mapping[str, Any]) -> StreamOptions:
    """The same of sluice_stream_options. `device` and `wire_dtype` as Session takes them."""
    options = StreamOptions()
    library.sluice_stream_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
    options.device_kind, options.device = _device(device)
    if wire_dtype not in WIRE_DTYPES:
        raise ValueError(f"wire_dtype is {wire_dtype!r}, not None, 'bf16' or 'f16'")
    options.wire_dtype = WIRE_DTYPES[wire_dtype]
    _fill(options, values)
    return options


def _fill(options: Union[Options, StreamOptions], values: Mapping[str, Any]) -> None:
    types = dict((name, kind) for name, kind, *_ in options._fields_)
    for name, value in values.items():
        if value is None:
            continue
        if types[name] is ctypes.c_char_p:
            setattr(options, name, os.fsencode(value))
            continue
        # ctypes would cut off what does not fit.
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} is {value!r}, not a whole number")
        most = (1 << 8 * ctypes.sizeof(types[name])) - 1
        if not 0 <= operator.index(value) <= most:
            raise ValueError(f"{name} is {value}, which is not in 0..{most}")
        setattr(options, name, operator.index(value))


def _device(device: object) -> tuple[int, int]:
    """Kind and ordinal. Of "cuda" without an ordinal, torch's current GPU, or else that of the calling thread's context (-1)."""
    if device is None or str(device) == "cpu":
        return DEVICE_HOST, -1
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise ValueError(f"device is {device}, which is no GPU's ordinal")
        return DEVICE_CUDA, device
    kind, _, ordinal = str(device).partition(":")
    if kind != "cuda" or (ordinal and not ordinal.isdigit()):
        raise ValueError(f"device is {device!r}, not 'cpu', 'cuda', 'cuda:N' or a GPU's ordinal")
    if ordinal:
        return DEVICE_CUDA, int(ordinal)
    torch = sys.modules.get("torch")
    return DEVICE_CUDA, torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else -1
