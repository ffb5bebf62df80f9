"""Memory of whatever exports DLPack, by Python's C functions for capsules; the structs are those of dlpack.h, version 1.

A capsule that is not taken over frees what it holds itself, so to keep it is to keep the memory."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Optional

_NEWEST = (1, 0)
_READ_ONLY = 1
_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
_CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", c_void_p), ("flags", c_uint64), ("tensor", _Tensor)]


@dataclass(frozen=True)
class Memory:
    """What an exporter says of its array. `strides` in elements. Valid while `capsule` lives."""

    pointer: int
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    dtype: str
    device: Optional[int]
    is_readonly: bool
    capsule: object


def view_of_dlpack(array: Any, name: str) -> Memory:
    """On a GPU nothing is waited for: the caller's stream orders what wrote the array. ValueError: it is where no reduction can be."""
    device_type, _ = array.__dlpack_device__()
    if device_type not in _HOST_DEVICES + _CUDA_DEVICES:
        raise ValueError(f"{name} is on a device of DLPack's type {device_type}, neither on the host nor on CUDA")
    stream = {} if device_type in _HOST_DEVICES else {"stream": -1}
    try:
        capsule = array.__dlpack__(max_version=_NEWEST, **stream)
    except TypeError:  # an exporter older than version 1, which has no way to say read-only
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
            raise ValueError(f"{name} exports DLPack {versioned.major}.{versioned.minor}; known is {_NEWEST[0]}")
        return versioned.tensor, bool(versioned.flags & _READ_ONLY)
    if is_valid(capsule, b"dltensor"):
        return ctypes.cast(get(capsule, b"dltensor"), POINTER(_Managed)).contents.tensor, False
    raise TypeError(f"{name} exports no DLPack capsule")


def _dtype_of(tensor: Any) -> str:
    word = _CODES.get(tensor.code, f"DLPack type {tensor.code} of ")
    if tensor.lanes != 1:
        return f"{word}{tensor.bits}x{tensor.lanes}"
    return word if word.startswith("float8") or word == "bool" else f"{word}{tensor.bits}"
