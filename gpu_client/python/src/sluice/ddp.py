"""Integration with torch.distributed: a session for a process group, and a DistributedDataParallel communication hook.

DDP compares the annotations of the hook with types, so this file must not use `from __future__ import annotations`."""

import atexit
import functools
import os
import queue
import threading
import weakref
from contextlib import suppress
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from .errors import Error
from .request import Request
from .session import Session

Hook = Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def session_from_torch(reducers: str, group: Optional[dist.ProcessGroup] = None, **options: Any) -> Session:
    """Implements sluice.session_from_torch."""
    session_id = [os.urandom(16)]  # overwritten with the first rank's on the others
    first = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast_object_list(session_id, src=first, group=group)
    return Session(reducers, session_id=session_id[0], rank=dist.get_rank(group), ranks=dist.get_world_size(group), **options)


def make_hook(session: Session, average: bool) -> Hook:
    """Implements sluice.ddp_hook."""
    op = "avg" if average else "sum"
    completions = _CompletionThread(session)
    session._call_at_close(completions.stop)
    comm_streams: dict[torch.device, torch.cuda.Stream] = {}

    def sluice_allreduce(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        # GPU streams continue after a failure, so the gradients of the last step may be undefined. Raises here, before
        # the next step uses them.
        error = session.error()
        if error is not None:
            raise error
        gradients = bucket.buffer()
        if gradients.device.type == "cuda":
            return _allreduce_on_comm_stream(session, gradients, op, comm_streams)
        return completions.future_of(session.allreduce_async(gradients, op))

    return sluice_allreduce


def _allreduce_on_comm_stream(session: Session, gradients: torch.Tensor, op: str,
                              comm_streams: dict[torch.device, torch.cuda.Stream]) -> torch.futures.Future[torch.Tensor]:
    """Runs the operation on a separate stream, so that it overlaps with the backward pass.

    Does not wait on the host: the future completes at once and records an event on the separate stream, for which torch
    makes the users of the value wait. Follows torch's documentation of Future; not yet tested on a GPU."""
    device = gradients.device
    if device not in comm_streams:
        comm_streams[device] = torch.cuda.Stream(device)
    stream = comm_streams[device]
    stream.wait_stream(torch.cuda.current_stream(device))
    gradients.record_stream(stream)
    session.allreduce_async(gradients, op, stream=stream)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[device])
    with torch.cuda.stream(stream):
        future.set_result(gradients)
    return future


class _CompletionThread:
    """A thread that waits for requests in the order of their operations and completes their futures.

    It starts with the first request and ends when the session is closed. The interpreter must not exit before that,
    because the thread runs functions of torch."""

    def __init__(self, session: Session) -> None:
        self._waiting: queue.SimpleQueue[Optional[tuple[Request, torch.futures.Future[Request]]]] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._at_exit = functools.partial(_stop_at_exit, weakref.ref(session), self)
        atexit.register(self._at_exit)

    def future_of(self, request: Request) -> torch.futures.Future[torch.Tensor]:
        """Returns a future for the result of the request, or for the exception of its wait."""
        if self._thread is None:
            self._thread = threading.Thread(target=_complete, args=(self._waiting,), name="sluice-ddp", daemon=True)
            self._thread.start()
        completed: torch.futures.Future[Request] = torch.futures.Future()
        # An exception of the callback becomes the error of the future that `then` returns, which DDP raises. With
        # set_exception, DDP would read the exception as the value, where it expects a tensor.
        result: torch.futures.Future[torch.Tensor] = completed.then(lambda future: future.value().wait())
        self._waiting.put((request, completed))
        return result

    def stop(self) -> None:
        """Completes all pending futures and ends the thread. May be called again."""
        self._waiting.put(None)
        if self._thread is threading.current_thread():
            return  # this thread dropped the last reference to the session and so closes it; _stop_at_exit joins it
        if self._thread is not None:
            self._thread.join()
        atexit.unregister(self._at_exit)


def _stop_at_exit(reference: "weakref.ref[Session]", completions: _CompletionThread) -> None:
    """Closes the session, which ends all waits, and joins the thread, which itself may be closing the session."""
    session = reference()
    if session is not None:
        with suppress(Error):
            session.close()
        del session
    completions.stop()


def _complete(waiting: "queue.SimpleQueue[Optional[tuple[Request, torch.futures.Future[Request]]]]") -> None:
    while True:
        item = waiting.get()
        if item is None:
            return
        request, completed = item
        try:
            request.wait()
        except Exception:  # the request stores its error and raises it again in the callback of the future
            pass
        completed.set_result(request)
        del item, request, completed  # releases the gradients while the thread is idle
