"""Class Alone: the collectives of a group of one rank, whose results are its own tensors. So it accepts what a group of several ranks accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch

from ...completions import Operation
from ..device import STREAMED, HostDevice
from ..offload import Place, Started
from .streamed import StreamedWork


class _Done:
    """An operation that has ended."""

    def wait(self, timeout: Optional[float] = None) -> None:
        pass

    def done(self) -> bool:
        return True

    def error(self) -> Optional[Exception]:
        return None


class _Completions:
    def future_of(self, request: Operation, value: Callable[[], Any]) -> torch.futures.Future[Any]:
        request.wait()  # of a stream of the host; a GPU has futures of its own
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(value())
        return future


class Alone(Place):
    """The place of one collective, with the functions of Session: operations of torch on the current stream of the tensors' device."""

    rank, ranks = 0, 1

    def __init__(self, device: torch.device) -> None:
        super().__init__(self)
        self._device = STREAMED.get(device.type, HostDevice)(device)
        self._stream = self._device.current_stream()

    def start(self, start: Callable[[Place], Started], results: list[torch.Tensor]) -> StreamedWork:
        for tensor, buffer in start(self).copies:
            self.copy(tensor, buffer)
        return StreamedWork(Started([], []), results, self._device, self._stream, _Completions(), ())

    def run(self, work: Callable[[], object]) -> None:
        self._device.run(self._stream, work)

    def allreduce_async(self, x: torch.Tensor, op: str, **options: Any) -> Operation:
        return _Done()

    reduce_async = allreduce_async

    def broadcast_async(self, x: torch.Tensor, **options: Any) -> Operation:
        return _Done()

    def reduce_scatter_async(self, x: torch.Tensor, out: torch.Tensor, op: str, **options: Any) -> Operation:
        self.copy(out, x)
        return _Done()

    def all_gather_async(self, x: torch.Tensor, out: torch.Tensor) -> Operation:
        self.copy(out, x)
        return _Done()

    @contextmanager
    def group(self) -> Iterator[Operation]:
        yield _Done()
