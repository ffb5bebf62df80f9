"""Reads DLPack capsules with Python's C functions. The structs are those of dlpack.h, version 1.

The capsule is not renamed to "used_dltensor", so it keeps the ownership: it frees the memory when it is destroyed."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Optional

_NEWEST = (1, 0)
_READ_ONLY = 1
_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
_CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_TYPE_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", c_void_p), ("flags", c_uint64), ("tensor", _Tensor)]


@dataclass(frozen=True)
class Memory:
    """The memory that an exporter describes. `strides` are in elements. Valid while `capsule` exists."""

    pointer: int
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    dtype: str
    device: Optional[int]
    is_readonly: bool
    capsule: object


def view_of_dlpack(array: Any, name: str) -> Memory:
    """Returns the memory of `array`. Raises ValueError for memory other than host and CUDA memory.

    Does not synchronize with a GPU: the caller's stream orders the earlier writes to the array."""
    device_type, _ = array.__dlpack_device__()
    if device_type not in _HOST_DEVICES + _CUDA_DEVICES:
        raise ValueError(f"{name} is on DLPack device type {device_type}; expected host or CUDA memory")
    stream = {} if device_type in _HOST_DEVICES else {"stream": -1}
    try:
        capsule = array.__dlpack__(max_version=_NEWEST, **stream)
    except TypeError:  # an exporter of DLPack before 1.0, which cannot mark arrays as read-only
        capsule = array.__dlpack__(**stream)
    tensor, is_readonly = _read(capsule, name)
    dimensions = range(tensor.ndim)
    return Memory((tensor.data or 0) + tensor.byte_offset, tuple(tensor.shape[i] for i in dimensions),
                  tuple(tensor.strides[i] for i in dimensions) if tensor.strides else None, _dtype_of(tensor),
                  tensor.device_id if tensor.device_type in _CUDA_DEVICES else None, is_readonly, capsule)


def _read(capsule: object, name: str) -> tuple[Any, bool]:
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(get(capsule, b"dltensor_versioned"), POINTER(_ManagedVersioned)).contents
        if versioned.major != _NEWEST[0]:
            raise ValueError(f"{name} exports DLPack {versioned.major}.{versioned.minor}; supported is major version {_NEWEST[0]}")
        return versioned.tensor, bool(versioned.flags & _READ_ONLY)
    if is_valid(capsule, b"dltensor"):
        return ctypes.cast(get(capsule, b"dltensor"), POINTER(_Managed)).contents.tensor, False
    raise TypeError(f"{name} did not export a DLPack capsule")


def _dtype_of(tensor: Any) -> str:
    kind = _TYPE_CODES.get(tensor.code, f"DLPack type code {tensor.code}, bits ")
    if tensor.lanes != 1:
        return f"{kind}{tensor.bits}x{tensor.lanes}"
    return kind if kind.startswith("float8") or kind == "bool" else f"{kind}{tensor.bits}"
