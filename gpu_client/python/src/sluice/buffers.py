"""Views of arrays as pointer, shape and element type, without a copy; and the handles of their streams.

Supports PyTorch tensors and objects with __array_interface__ (NumPy), __cuda_array_interface__ (CuPy, Numba) or
__dlpack__. Imports neither NumPy nor PyTorch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Optional

from ._library import DTYPES
from .dlpack import view_of_dlpack

_TYPESTRS = {"i1": "int8", "u1": "uint8", "i4": "int32", "u4": "uint32", "i8": "int64", "u8": "uint64", "f2": "float16", "f4": "float32",
             "f8": "float64"}
_BYTES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2, "float32": 4, "float64": 8, "bfloat16": 2,
          "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True)
class Buffer:
    """The memory of an array, contiguous in C order. Valid while `owner` exists."""

    pointer: int
    shape: tuple[int, ...]
    dtype: str  # a key of _library.DTYPES
    device: Optional[int]  # ordinal of the GPU; None: host memory
    is_readonly: bool
    owner: object

    @property
    def count(self) -> int:
        return _product(self.shape)

    @property
    def bytes(self) -> int:
        return self.count * _BYTES[self.dtype]


def view(array: Any, name: str = "x") -> Buffer:
    """Returns the memory of `array`. The texts of exceptions start with `name`.

    Raises TypeError for an object that is not an array or has an unsupported element type, ValueError for an array that
    is not contiguous, not aligned, or in unsupported memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _view_of_tensor(array, name, torch)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _view_of_interface(array, interface, name, None)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _view_of_interface(array, interface, name, _device_of(array))
    if hasattr(array, "__dlpack__"):
        return _view_of_exporter(array, name)
    raise TypeError(f"{name} is a {type(array).__name__}; expected a torch tensor or an object with __array_interface__, "
                    "__cuda_array_interface__ or __dlpack__")


def check_pair(send: Buffer, receive: Buffer) -> None:
    """Raises unless the result of reducing `send` can be stored in `receive`: writable memory of the same shape and type
    that is the same as `send` or does not overlap it."""
    if receive.is_readonly:
        raise ValueError("out is read-only" if receive.pointer != send.pointer else
                         "x is read-only and cannot receive the result; pass a writable array as out=")
    if send.dtype != receive.dtype:
        raise TypeError(f"x is {send.dtype}, but out is {receive.dtype}")
    if send.shape != receive.shape:
        raise ValueError(f"x has shape {send.shape}, but out has shape {receive.shape}")
    distance = abs(send.pointer - receive.pointer)
    if 0 < distance < send.bytes:
        raise ValueError("x and out overlap")


def _view_of_tensor(tensor: Any, name: str, torch: Any) -> Buffer:
    dtype = _known_dtype(str(tensor.dtype).split(".")[-1], name)
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} has layout {tensor.layout}; expected torch.strided")
    if tensor.is_neg():
        raise ValueError(f"{name} is a negated view of other memory; pass a copy")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is not contiguous: strides {tuple(tensor.stride())} for shape {tuple(tensor.shape)}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name} is on device {tensor.device}; expected cpu or cuda")
    device = tensor.device.index if tensor.device.type == "cuda" else None
    return _checked(Buffer(tensor.data_ptr(), tuple(tensor.shape), dtype, device, False, tensor), name)


def _view_of_interface(array: Any, interface: dict[str, Any], name: str, device: Optional[int]) -> Buffer:
    typestr = interface["typestr"]
    dtype = _TYPESTRS.get(typestr[1:])
    if dtype is None or typestr[0] == (">" if sys.byteorder == "little" else "<"):
        # ml_dtypes' bfloat16 and fp8 are NumPy dtypes of kind V (void), so only their names identify them.
        dtype_name = str(getattr(getattr(array, "dtype", None), "name", typestr))
        dtype = _known_dtype(dtype_name if typestr[0] != ">" else f"big-endian {dtype_name}", name)
    shape = tuple(interface["shape"])
    if interface.get("mask") is not None:
        raise ValueError(f"{name} has a mask, which is not supported")
    _check_strides(interface.get("strides"), shape, _BYTES[dtype], name)
    data = interface.get("data")
    if data is None:
        raise ValueError(f"{name} has an array interface without a data pointer")
    pointer, is_readonly = data
    return _checked(Buffer(pointer or 0, shape, dtype, device, bool(is_readonly), array), name)


def _view_of_exporter(array: Any, name: str) -> Buffer:
    memory = view_of_dlpack(array, name)
    dtype = _known_dtype(memory.dtype, name)
    strides = None if memory.strides is None else tuple(stride * _BYTES[dtype] for stride in memory.strides)
    _check_strides(strides, memory.shape, _BYTES[dtype], name)
    return _checked(Buffer(memory.pointer, memory.shape, dtype, memory.device, memory.is_readonly, (array, memory.capsule)), name)


def _known_dtype(dtype: str, name: str) -> str:
    if dtype not in DTYPES:
        raise TypeError(f"{name} is {dtype}; supported types are {', '.join(DTYPES)}")
    return dtype


def _check_strides(strides: Optional[tuple[int, ...]], shape: tuple[int, ...], size: int, name: str) -> None:
    """Raises unless `strides`, in bytes, are those of a contiguous array. None means contiguous. Strides of dimensions of
    length 1 are ignored."""
    if strides is None or _product(shape) == 0:
        return
    expected = size
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            raise ValueError(f"{name} is not contiguous: strides {tuple(strides)} bytes for shape {shape}")
        expected *= length


def _checked(buffer: Buffer, name: str) -> Buffer:
    if buffer.pointer % _BYTES[buffer.dtype] != 0:
        raise ValueError(f"{name} is not aligned to its element size")
    return buffer


def _device_of(array: Any) -> int:
    """Returns the ordinal of the GPU if the array has it (CuPy), otherwise 0. The library checks the GPU of the pointer."""
    return int(getattr(getattr(array, "device", None), "id", 0))


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def stream_handle(stream: Any, send: Buffer, receive: Buffer) -> Optional[int]:
    """Returns the handle of a torch.cuda.Stream, a cupy.cuda.Stream, an object with __cuda_stream__, or an integer handle.

    None means torch's current stream on the GPU of the arrays. Without torch, or if both arrays are in host memory, it
    means the default stream, for which the function returns None."""
    if stream is None:
        device = send.device if send.device is not None else receive.device
        torch = sys.modules.get("torch")
        if device is None or torch is None or not torch.cuda.is_initialized():
            return None
        return int(torch.cuda.current_stream(device).cuda_stream) or None
    if isinstance(stream, int):
        return stream or None
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name)) or None
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1]) or None
    raise TypeError(f"stream is a {type(stream).__name__}; expected a handle or an object with cuda_stream, ptr or __cuda_stream__")
