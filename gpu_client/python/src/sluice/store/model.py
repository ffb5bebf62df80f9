"""Class Model: pushes to and pulls from one model."""

from __future__ import annotations

import ctypes
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

from .. import _library
from ..buffers import Buffer
from ..errors import Timeout
from ..options import seconds
from .handle import Handle
from .specification import TYPES, host_view

_OUTCOMES = {0: "contained", 2: "late", 3: "stale"}
_WIRE_DTYPES = {**_library.WIRE_DTYPES, "f32": _library.DTYPES["float32"]}
_MAX_MS = (1 << 32) - 1
# A call that waits returns to Python this often, for signals and close().
_INTERVAL_MS = 500


class Pointers(NamedTuple):
    """The addresses of arrays for the library, in the order of a specification. Valid while this object exists."""

    addresses: ctypes.Array[ctypes.c_void_p]
    buffers: list[Buffer]


class Pulled(NamedTuple):
    """One version of a model."""

    version: int
    tensors: dict[str, Any]


class Pushed(NamedTuple):
    """What became of a push: "contained": a version contains it, "late": the step of its base was over, or "stale": its base was too old.
    Late and stale pushes do not count. `version` is the current one."""

    outcome: str
    version: int


class PushPulled(NamedTuple):
    """What became of a push, as in Pushed, and the version that it led to."""

    outcome: str
    version: int
    tensors: dict[str, Any]


class Model:
    """A model of a Store, which opens it. Any thread may use it. Pushes run one after another, and so do pulls and waits: for a thread that watches
    open another Model. Calls with `timeout`, in seconds, raise sluice.Timeout after it; None: that of the store."""

    def __init__(self, handle: Handle, is_creator: bool) -> None:
        self._handle = handle
        self.is_creator = is_creator  # whether this call of create() or restore() made the model
        self.specification: dict[str, Any] = self.describe()["spec"]
        self.name = str(self.specification["name"])

    def describe(self) -> dict[str, Any]:
        """Returns the specification "spec", the owners of the shards, "shards", and the current "version"."""
        described = json.loads(self._handle.text("sluice_store_describe"))
        assert isinstance(described, dict)
        return described

    def push(self, deltas: Mapping[str, Any], base: int, weight: float = 1.0, *, wire_dtype: str = "f32", timeout: Optional[float] = None) -> Pushed:
        """Pushes deltas, arrays by the names of the model's tensors, and waits until a version contains them, or none will.

        base: the version that they were computed from. weight: in the mean of a sync step, for example a number of samples. wire_dtype: "bf16" or
        "f16" halve the bytes, "mxfp8" or "int8" quarter them; rounding errors are not fed back. After a lost connection the push
        repeats itself without counting twice. After sluice.Timeout or sluice.Lost it may still count; call it again with the same deltas and base,
        and it counts once. Other deltas are another push."""
        pointers = pointers_to(self.specification, deltas, for_writing=False)
        outcome, version = ctypes.c_int(), ctypes.c_uint64()
        self._handle.call("sluice_store_push", pointers.addresses, base, weight, wire_dtype_number(wire_dtype), self._milliseconds(timeout), ctypes.byref(outcome),
                          ctypes.byref(version))
        return Pushed(_outcome_name(outcome), version.value)

    def pull(self, into: Optional[Mapping[str, Any]] = None, *, min_version: int = 0, wire_dtype: str = "f32", timeout: Optional[float] = None) -> Pulled:
        """Copies the current version, which must be at least `min_version`; waits for that one.

        into: writable arrays by the names of the model's tensors; None: those of empty(). wire_dtype: as in push()."""
        tensors = self.empty() if into is None else dict(into)
        pointers = pointers_to(self.specification, tensors, for_writing=True)
        if min_version > 0:
            self.wait(min_version, timeout)
        version = ctypes.c_uint64()
        self._handle.call("sluice_store_pull", pointers.addresses, min_version, wire_dtype_number(wire_dtype), self._milliseconds(timeout), ctypes.byref(version))
        return Pulled(version.value, tensors)

    def push_pull(self, deltas: Mapping[str, Any], base: int, weight: float = 1.0, into: Optional[Mapping[str, Any]] = None, *, wire_dtype: str = "f32",
                  pull_wire_dtype: str = "f32", timeout: Optional[float] = None) -> PushPulled:
        """Pushes like push(), and pulls the version that the push leads to, whether it counts or not.

        With sync steps both directions move at once: the step begins with the values that all workers of its quorum have sent, and its values are
        pulled while they are computed. So a worker counts from the beginning of its call, and the step waits for all that it pushes. `into` must not
        overlap `deltas`; after an exception it may hold parts of versions."""
        pointers = pointers_to(self.specification, deltas, for_writing=False)
        tensors = self.empty() if into is None else dict(into)
        targets = pointers_to(self.specification, tensors, for_writing=True)
        outcome, version = ctypes.c_int(), ctypes.c_uint64()
        self._handle.call("sluice_store_push_pull", pointers.addresses, base, weight, wire_dtype_number(wire_dtype), targets.addresses, wire_dtype_number(pull_wire_dtype),
                          self._milliseconds(timeout), ctypes.byref(outcome), ctypes.byref(version))
        return PushPulled(_outcome_name(outcome), version.value, tensors)

    def wait(self, min_version: int = 0, timeout: Optional[float] = None) -> int:
        """Waits until the current version is at least `min_version`, and returns it."""
        deadline = time.monotonic() + (self._handle.timeout_ms / 1000 if timeout is None else seconds(timeout))
        version = ctypes.c_uint64()
        while True:
            remaining = self._milliseconds(max(0.0, deadline - time.monotonic()))
            try:
                self._handle.call("sluice_store_wait", min_version, min(_INTERVAL_MS, remaining), ctypes.byref(version))
                return version.value
            except Timeout as error:
                if time.monotonic() >= deadline:
                    raise Timeout(f"model {self.name!r} did not reach version {min_version} before the timeout: {error}") from None

    def watch(self, after: int = -1, timeout: Optional[float] = math.inf) -> Iterator[int]:
        """Yields the current version, if it is above `after`, and then later ones. Skips versions that others replace meanwhile."""
        while True:
            after = self.wait(after + 1, timeout)
            yield after

    def snapshot(self, path: Union[str, os.PathLike[str]], *, resumable: bool = True) -> int:
        """Writes the current version to a safetensors file, and returns it.

        resumable: with the state of the rule, in f32, for Store.restore(); otherwise the parameters alone, in their types."""
        version = ctypes.c_uint64()
        self._handle.call("sluice_store_snapshot", os.fsencode(path), int(resumable), ctypes.byref(version))
        return version.value

    def empty(self, library: str = "numpy") -> dict[str, Any]:
        """Returns arrays for pull(), with undefined values: of "numpy", which has bfloat16 only with ml_dtypes, or of "torch"."""
        if library == "torch":
            import torch

            return {name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, dtype, shape in tensors_of(self.specification)}
        if library != "numpy":
            raise ValueError(f"library is {library!r}; expected 'numpy' or 'torch'")
        import numpy

        try:
            return {name: numpy.empty(shape, dtype=dtype) for name, dtype, shape in tensors_of(self.specification)}
        except TypeError as error:
            raise TypeError(f"model {self.name!r} has tensors of a type that NumPy lacks; pass into=model.empty('torch'): {error}") from error

    def close(self) -> None:
        """Calls of other threads end first; new ones raise sluice.Closed."""
        self._handle.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sluice.store.Model {self.name!r}>"

    def _milliseconds(self, timeout: Optional[float]) -> int:
        if timeout is None:
            return self._handle.timeout_ms
        return max(1, math.ceil(min(1000 * seconds(timeout), _MAX_MS)))


def _outcome_name(outcome: ctypes.c_int) -> str:
    return _OUTCOMES.get(outcome.value, f"outcome {outcome.value}")


def tensors_of(specification: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yields name, element type as arrays call it, and shape of each tensor."""
    of_arrays = {short: name for name, short in TYPES.items()}
    for tensor in specification["tensors"]:
        yield tensor["name"], of_arrays[tensor["dtype"]], tuple(tensor["shape"])


def pointers_to(specification: Mapping[str, Any], arrays: Mapping[str, Any], for_writing: bool) -> Pointers:
    """Returns the addresses of the arrays, of which a mapping may make new ones at each access, as numpy.load() does. Raises TypeError or ValueError for an array that does not
    fit its tensor."""
    names, buffers = set(), []
    for name, dtype, shape in tensors_of(specification):
        names.add(name)
        if name not in arrays:
            raise ValueError(f"there is no array for tensor {name!r}")
        buffer = host_view(arrays[name], name)
        if buffer.dtype != dtype:
            raise TypeError(f"tensor {name!r} is {buffer.dtype}; the model has {dtype}")
        if buffer.shape != shape:
            raise ValueError(f"tensor {name!r} has shape {buffer.shape}; the model has {shape}")
        if for_writing and buffer.is_readonly:
            raise ValueError(f"tensor {name!r} is read-only")
        buffers.append(buffer)
    if unknown := [name for name in arrays if name not in names]:
        raise ValueError(f"the model has no tensor {unknown[0]!r}")
    return Pointers((ctypes.c_void_p * len(buffers))(*(buffer.pointer for buffer in buffers)), buffers)


def wire_dtype_number(name: str) -> int:
    """Returns that of the library. Raises ValueError for an unknown type."""
    if name not in _WIRE_DTYPES:
        raise ValueError(f"wire_dtype is {name!r}; expected {', '.join(map(repr, _WIRE_DTYPES))}")
    return _WIRE_DTYPES[name]
