"""Class Collectives: the collectives of a session other than allreduce, on arrays in host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Optional

from . import _library
from .buffers import Buffer, view
from .request import Request


class Collectives:
    """A base class of Session. The arrays are as in Session.allreduce_async, in host memory; no call may be in a group.

    Neither array may be written, and no result read, until the operation has ended."""

    rank: int
    ranks: int
    _issue: Callable[..., Request]  # Session's

    def reduce_scatter_async(self, x: Any, out: Any, op: str = "sum", *, counts: Optional[Sequence[int]] = None) -> Request:
        """Starts the reduction of `x` over all ranks; `out` receives this rank's part of the result.

        x: has one part for each rank, in rank order, of equal lengths or of the `counts` of elements, equal on all ranks.
        out: as long as this rank's part; it may be that part of `x`."""
        send, receive = self._host_view(x, "x"), self._host_view(out, "out", is_written=True)
        return self._start_parts("sluice_reduce_scatter_async", out, send, receive, send, receive, counts, (library_op(op),))

    def all_gather_async(self, x: Any, out: Any, *, counts: Optional[Sequence[int]] = None) -> Request:
        """Starts to copy every rank's `x` into its part of `out` on all ranks.

        out: has one part for each rank, as `x` of reduce_scatter_async; `x` may be this rank's part of it."""
        send, receive = self._host_view(x, "x"), self._host_view(out, "out", is_written=True)
        return self._start_parts("sluice_all_gather_async", out, send, receive, receive, send, counts, ())

    def reduce_async(self, x: Any, op: str = "sum", out: Any = None, *, root: int = 0) -> Request:
        """Starts the reduction of `x` over all ranks into `out` of rank `root`. None: the result overwrites `x` there.

        Other ranks' `out` is not used."""
        self._check_root(root)
        is_root = self.rank == root
        result = x if out is None else out
        send = self._host_view(x, "x", is_written=is_root and out is None)
        receive = self._host_view(result, "out", is_written=True) if is_root else send
        if send.shape != receive.shape or send.dtype != receive.dtype:
            raise ValueError(f"x is {send.dtype} of shape {send.shape}, but out is {receive.dtype} of shape {receive.shape}")
        arguments = (_pointer(send), _pointer(receive), send.count, _library.DTYPES[send.dtype], library_op(op), root)
        return self._issue("sluice_reduce_async", send, arguments, result, (send.owner, receive.owner))

    def broadcast_async(self, x: Any, *, root: int = 0) -> Request:
        """Starts to copy rank `root`'s `x` into `x` of all other ranks."""
        self._check_root(root)
        buffer = self._host_view(x, "x", is_written=self.rank != root)
        arguments = (_pointer(buffer), buffer.count, _library.DTYPES[buffer.dtype], root)
        return self._issue("sluice_broadcast_async", buffer, arguments, x, (buffer.owner,))

    def _start_parts(self, function: str, result: Any, send: Buffer, receive: Buffer, whole: Buffer, part: Buffer,
                     counts: Optional[Sequence[int]], op: tuple[int, ...]) -> Request:
        if send.dtype != receive.dtype:
            raise TypeError(f"x is {send.dtype}, but out is {receive.dtype}")
        if counts is None:
            counts = [whole.count // self.ranks] * self.ranks
        if len(counts) != self.ranks or min(counts) < 0:
            raise ValueError(f"counts is {list(counts)}; expected {self.ranks} numbers of elements, one for each rank")
        if sum(counts) != whole.count or counts[self.rank] != part.count:
            raise ValueError(f"the arrays have {whole.count} and {part.count} elements; expected {sum(counts)} and {counts[self.rank]} for parts "
                             f"of {list(counts)}")
        array = (ctypes.c_size_t * self.ranks)(*counts)
        arguments = (_pointer(send), _pointer(receive), 0, array, _library.DTYPES[send.dtype], *op)
        return self._issue(function, whole, arguments, result, (send.owner, receive.owner))

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.ranks:
            raise ValueError(f"root is {root}; expected a rank, 0 to {self.ranks - 1}")

    def _host_view(self, array: Any, name: str, *, is_written: bool = False) -> Buffer:
        buffer = view(array, name)
        if buffer.device is not None:
            raise ValueError(f"{name} is on cuda:{buffer.device}; only allreduce runs on a GPU")
        if is_written and buffer.is_readonly:
            raise ValueError(f"{name} is read-only and cannot receive the result")
        return buffer


_EMPTY = ctypes.c_uint64()  # an address for empty arrays, which may have none


def _pointer(buffer: Buffer) -> int:
    return buffer.pointer or ctypes.addressof(_EMPTY)


def library_op(op: str) -> int:
    if op not in _library.OPS:
        raise ValueError(f"op is {op!r}; expected one of {', '.join(_library.OPS)}")
    return _library.OPS[op]
