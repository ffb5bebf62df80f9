"""Class Collectives: the collectives of a session other than allreduce."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Optional

from . import _library
from .buffers import Buffer, view
from .request import Request


class Collectives:
    """A base class of Session. Arrays, `stream`, `name` and groups are as in Session.allreduce_async.

    No array may be written, and no result read, until the operation has ended. The arrays of a call are all on the GPU or
    all in host memory, on all ranks alike."""

    rank: int
    ranks: int
    _issue: Callable[..., Request]  # Session's, as the next two
    _check_device: Callable[[Buffer, str], None]
    _residual_of: Callable[[Any, Buffer], Optional[int]]

    def reduce_scatter_async(self, x: Any, out: Any, op: str = "sum", *, counts: Optional[Sequence[int]] = None, stream: Any = None,
                             residual: Any = None, name: Optional[str] = None) -> Request:
        """Starts the reduction of `x` over all ranks; `out` receives this rank's part of the result.

        x: has one part for each rank, in rank order, of equal lengths or of the `counts` of elements, equal on all ranks.
        out: as long as this rank's part; it may be that part of `x`.
        residual: error feedback, as in Session.allreduce_async, with as many elements as `x`."""
        send, receive = self._view(x, "x"), self._view(out, "out", is_written=True)
        types = (_library.DTYPES[send.dtype], library_op(op), self._residual_of(residual, send))
        return self._start_parts("sluice_reduce_scatter_on_stream", send, receive, send, receive, counts, types, stream=stream, result=out,
                                 owners=(residual,), name=name)

    def all_gather_async(self, x: Any, out: Any, *, counts: Optional[Sequence[int]] = None, stream: Any = None,
                         name: Optional[str] = None) -> Request:
        """Starts to copy every rank's `x` into its part of `out` on all ranks.

        out: has one part for each rank, as `x` of reduce_scatter_async; `x` may be this rank's part of it."""
        send, receive = self._view(x, "x"), self._view(out, "out", is_written=True)
        return self._start_parts("sluice_all_gather_on_stream", send, receive, receive, send, counts, (_library.DTYPES[send.dtype],), stream=stream,
                                 result=out, owners=(), name=name)

    def reduce_async(self, x: Any, op: str = "sum", out: Any = None, *, root: int = 0, stream: Any = None, residual: Any = None,
                     name: Optional[str] = None) -> Request:
        """Starts the reduction of `x` over all ranks into `out` of rank `root`. None: the result overwrites `x` there.

        Other ranks' `out` is not used. residual: as in Session.allreduce_async."""
        self._check_root(root)
        is_root = self.rank == root
        result = x if out is None else out
        send = self._view(x, "x", is_written=is_root and out is None)
        receive = self._view(result, "out", is_written=True) if is_root else send
        if send.shape != receive.shape or send.dtype != receive.dtype:
            raise ValueError(f"x is {send.dtype} of shape {send.shape}, but out is {receive.dtype} of shape {receive.shape}")
        arguments = (pointer(send), pointer(receive), send.count, _library.DTYPES[send.dtype], library_op(op), root, self._residual_of(residual, send))
        return self._issue("sluice_reduce_on_stream", send, arguments, stream_handle_of=(stream, send, receive), result=result,
                           owners=(send.owner, receive.owner, residual), name=name)

    def broadcast_async(self, x: Any, *, root: int = 0, stream: Any = None, name: Optional[str] = None) -> Request:
        """Starts to copy rank `root`'s `x` into `x` of all other ranks."""
        self._check_root(root)
        buffer = self._view(x, "x", is_written=self.rank != root)
        arguments = (pointer(buffer), buffer.count, _library.DTYPES[buffer.dtype], root)
        return self._issue("sluice_broadcast_on_stream", buffer, arguments, stream_handle_of=(stream, buffer, buffer), result=x,
                           owners=(buffer.owner,), name=name)

    def _start_parts(self, function: str, send: Buffer, receive: Buffer, whole: Buffer, part: Buffer, counts: Optional[Sequence[int]],
                     types: tuple[Optional[int], ...], *, stream: Any, result: Any, owners: tuple[object, ...], name: Optional[str]) -> Request:
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
        arguments = (pointer(send), pointer(receive), 0, array, *types)
        return self._issue(function, whole, arguments, stream_handle_of=(stream, send, receive), result=result,
                           owners=(send.owner, receive.owner, *owners), name=name)

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.ranks:
            raise ValueError(f"root is {root}; expected a rank, 0 to {self.ranks - 1}")

    def _view(self, array: Any, name: str, *, is_written: bool = False) -> Buffer:
        buffer = view(array, name)
        self._check_device(buffer, name)
        if is_written and buffer.is_readonly:
            raise ValueError(f"{name} is read-only and cannot receive the result")
        return buffer


_EMPTY = ctypes.c_uint64()  # an address for empty arrays, which may have none


def pointer(buffer: Buffer) -> int:
    return buffer.pointer or ctypes.addressof(_EMPTY)


def library_op(op: str) -> int:
    if op not in _library.OPS:
        raise ValueError(f"op is {op!r}; expected one of {', '.join(_library.OPS)}")
    return _library.OPS[op]
