"""Class Device: what collectives in stream order need of a kind of device. All code above it is the same for GPUs and for the host.

A *stream* runs work in order, after the thread that enqueued it has gone on. An *event* marks a place in a stream.

CudaDevice is a GPU of torch. HostDevice is host memory with the host streams of libsluice: for tensors on CPUs, and to test without a GPU what runs
above a Device."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, Optional

import torch
import torch.distributed as dist

from .. import _library
from .forked import keep_in_children
from .releases import abort_gloo

Work = Callable[[], object]


class Device(ABC):
    """Streams and events are of the type that the device returns. Any thread may call any function.

    Collectives of a session run on `handle(stream)`. A session for the device's memory takes the options `session_options`."""

    # What new_group() can reduce.
    grouped_types: ClassVar = frozenset((torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64))

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.session_options: dict[str, Any] = {}

    @abstractmethod
    def current_stream(self) -> Any:
        """Returns the stream on which the calling thread's operations of torch run."""

    @abstractmethod
    def new_stream(self) -> Any:
        """Returns a stream that does not wait for others."""

    @abstractmethod
    def handle(self, stream: Any) -> int:
        """Returns the stream for the argument `stream` of a session's collectives."""

    @abstractmethod
    def run(self, stream: Any, work: Work) -> None:
        """Runs operations of torch in the order of the stream. Their tensors must live until then, see keep().

        A GPU calls `work` at once, and the host later on another thread: it must read nothing that changes, and its exception is raised by
        the next run()."""

    @abstractmethod
    def record(self, stream: Any) -> Any:
        """Returns an event that happens when the stream has done all work that it has now.

        It has query(), which returns whether it has happened, and synchronize(), which blocks until then."""

    @abstractmethod
    def wait(self, stream: Any, event: Any) -> None:
        """Lets the stream's later work wait for the event. Does not block, except on the host where `stream` is the calling thread."""

    @abstractmethod
    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """Lets nobody reuse the tensor's memory before the stream has done all work that it has now."""

    @abstractmethod
    def future(self, stream: Any, value: Any) -> Optional[torch.futures.Future[Any]]:
        """Returns a future that is complete now, and whose users wait in stream order for the work that `stream` has now.

        None: the device has no such futures; complete one when an event has happened."""

    @abstractmethod
    def is_capturing(self) -> bool:
        """Whether the current stream's work is recorded into a graph instead of run."""

    @abstractmethod
    def has_groups(self) -> bool:
        """Whether new_group() may work in this process."""

    @abstractmethod
    def new_group(self, store: dist.Store, rank: int, ranks: int, timeout: timedelta) -> Any:
        """Collective over some ranks of this host. Returns a backend of torch, whose collectives of the device's tensors take the order of run().

        After the loss of a rank or `timeout` its collectives may go on for ever, until abort_group()."""

    @abstractmethod
    def close_group(self, group: Any) -> None:
        """Ends a group whose collectives have ended."""

    @abstractmethod
    def abort_group(self, group: Any) -> None:
        """Ends collectives in progress of a group, whose results are undefined then."""

    def follow(self, stream: Any, other: Any) -> None:
        """Lets the stream's later work wait for the work that `other` has now."""
        self.wait(stream, self.record(other))


class CudaDevice(Device):
    """A GPU. Streams are torch.cuda.Stream, events torch.cuda.Event."""

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        super().__init__(torch.device("cuda", index))
        self.session_options = {"device": self.device}

    def current_stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    def new_stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    def handle(self, stream: torch.cuda.Stream) -> int:
        return int(stream.cuda_stream)

    def run(self, stream: torch.cuda.Stream, work: Work) -> None:
        with torch.cuda.stream(stream):
            work()

    def record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        return stream.record_event()

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        stream.wait_event(event)

    def keep(self, tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
        tensor.record_stream(stream)

    def future(self, stream: torch.cuda.Stream, value: Any) -> torch.futures.Future[Any]:
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[self.device])
        with torch.cuda.stream(stream):
            future.set_result(value)
        return future

    def is_capturing(self) -> bool:
        return bool(torch.cuda.is_current_stream_capturing())

    def has_groups(self) -> bool:
        return bool(dist.is_nccl_available())

    def new_group(self, store: dist.Store, rank: int, ranks: int, timeout: timedelta) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        variable = "TORCH_NCCL_ASYNC_ERROR_HANDLING"  # read by the constructor: by default torch ends the process when a rank is lost
        before = os.environ.get(variable)
        os.environ[variable] = "0"
        try:
            return dist.ProcessGroupNCCL(store, rank, ranks, options)
        finally:
            os.environ.pop(variable) if before is None else os.environ.update({variable: before})

    def close_group(self, group: Any) -> None:
        (getattr(group, "shutdown", None) or group._shutdown)()  # the latter in torch 2.4

    def abort_group(self, group: Any) -> None:
        (getattr(group, "abort", None) or group._shutdown)()


class HostEvent:
    def __init__(self) -> None:
        self._happened = threading.Event()

    def happen(self) -> None:
        self._happened.set()

    def query(self) -> bool:
        return self._happened.is_set()

    def synchronize(self) -> None:
        self._happened.wait()


class CallingThread:
    """The stream of a thread that uses no other: its work is done when a call returns."""

    handle = 0

    def submit(self, work: Work) -> None:
        work()

    def check(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


class HostStream:
    """A thread of libsluice that runs work in order. Ends when it is dropped, after all its work."""

    def __init__(self) -> None:
        self._library = library = _library.load()
        stream = ctypes.c_void_p()
        _library.check(library.sluice_host_stream_create(ctypes.byref(stream)))
        self.handle = int(stream.value or 0)
        self._failure: list[BaseException] = []
        weakref.finalize(self, _destroy, library, self.handle)  # at the latest when the interpreter exits

    def submit(self, work: Work) -> None:
        failure = self._failure  # not self, which the work would keep alive
        key = next(_keys)

        def run() -> None:
            try:
                work()
            except BaseException as error:
                failure.append(error)

        _submitted[key] = run
        status = self._library.sluice_host_stream_submit(self.handle, _RUN, key)
        if status != _library.OK:
            del _submitted[key]
            _library.check(status)

    def check(self) -> None:
        """Raises the first exception of work that has been done since the last one was raised. The stream goes on after one."""
        if self._failure:
            failure = self._failure[0]
            self._failure.clear()
            raise failure

    def synchronize(self) -> None:
        """Blocks until all work so far is done. Raises as check()."""
        _library.check(self._library.sluice_host_stream_synchronize(self.handle))
        self.check()


_keys = itertools.count(1)
_submitted: dict[int, Work] = {}  # by the argument of _RUN


_in_stream = threading.local()


def _run(key: int) -> None:
    _in_stream.is_set = True
    _submitted.pop(key)()


def _destroy(library: ctypes.CDLL, handle: int) -> None:
    """Waits for the thread of the stream, unless it is this one, which has dropped the last reference with its work."""
    if getattr(_in_stream, "is_set", False):
        threading.Thread(target=library.sluice_host_stream_destroy, args=(handle,), daemon=True).start()
    else:
        library.sluice_host_stream_destroy(handle)


_RUN = _library.HOST_WORK(_run)


def _in_inference_mode(work: Work) -> Work:
    """The mode is the calling thread's, and only in it torch writes tensors that were made there."""
    def run() -> None:
        with torch.inference_mode():
            work()

    return run


class HostDevice(Device):
    """Host memory. The session stages it as it does GPU memory."""

    _current = threading.local()

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.session_options = {"always_staged": True}

    @classmethod
    @contextmanager
    def use(cls, stream: Any) -> Iterator[None]:
        """Makes the stream the calling thread's current one, as torch.cuda.stream() does on GPUs. Operations of torch do not run on it: run() does that."""
        before = getattr(cls._current, "stream", None)
        cls._current.stream = stream
        try:
            yield
        finally:
            cls._current.stream = before

    def current_stream(self) -> Any:
        return getattr(self._current, "stream", None) or CallingThread()

    def new_stream(self) -> HostStream:
        return HostStream()

    def handle(self, stream: Any) -> int:
        return int(stream.handle)

    def run(self, stream: Any, work: Work) -> None:
        stream.check()
        stream.submit(_in_inference_mode(work) if torch.is_inference_mode_enabled() else work)

    def record(self, stream: Any) -> HostEvent:
        event = HostEvent()
        stream.submit(event.happen)
        return event

    def wait(self, stream: Any, event: HostEvent) -> None:
        stream.submit(event.synchronize)

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        stream.submit(tensor.size)  # holds it until the stream is there

    def future(self, stream: Any, value: Any) -> None:
        return None

    def is_capturing(self) -> bool:
        return False

    def has_groups(self) -> bool:
        return True

    def new_group(self, store: dist.Store, rank: int, ranks: int, timeout: timedelta) -> Any:
        options = dist.ProcessGroupGloo._Options()
        options._devices, options._timeout = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")], timeout
        group = dist.ProcessGroupGloo(store, rank, ranks, options)
        keep_in_children(group)
        return group

    def close_group(self, group: Any) -> None:
        pass  # it ends when it is dropped

    def abort_group(self, group: Any) -> None:
        abort_gloo(group)


# By the type of a torch.device: those whose collectives run in stream order. Tests add "cpu".
STREAMED: dict[str, type[Device]] = {"cuda": CudaDevice}
