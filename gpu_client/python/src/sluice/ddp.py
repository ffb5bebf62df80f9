"""torch.distributed: a session for a process group, and the hook for DistributedDataParallel.register_comm_hook.

DDP compares the hook's annotations with the types themselves, so this file has no `from __future__ import annotations`."""

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
    """A session of the ranks of a process group (None: of all), under an id that its first rank draws and tells the others. Collective.
    `options` are Session's."""
    session_id = [os.urandom(16)]  # the first rank's counts
    first = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast_object_list(session_id, src=first, group=group)
    return Session(reducers, session_id=session_id[0], rank=dist.get_rank(group), ranks=dist.get_world_size(group), **options)


def make_hook(session: Session, average: bool) -> Hook:
    """What sluice.ddp_hook returns; see there."""
    op = "avg" if average else "sum"
    endings = _Endings(session)
    session._at_close(endings.stop)
    side_streams: dict[torch.device, torch.cuda.Stream] = {}

    def sluice_allreduce(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        # A stream goes on when a session has failed, so that the gradients of the last step may be anything: say so before they are used again.
        error = session.error()
        if error is not None:
            raise error
        gradients = bucket.buffer()
        if gradients.device.type == "cuda":
            return _on_side_stream(session, gradients, op, side_streams)
        return endings.promise(session.allreduce_async(gradients, op))

    return sluice_allreduce


def _on_side_stream(session: Session, gradients: torch.Tensor, op: str,
                    side_streams: dict[torch.device, torch.cuda.Stream]) -> torch.futures.Future[torch.Tensor]:
    """The operation on a stream beside the one that backward computes on, so that the two overlap. Nothing waits on the host: the future is over at
    once, with an event of that stream for which torch lets those wait that use the value. Written to torch's documentation of Future; not yet seen on
    a GPU."""
    device = gradients.device
    if device not in side_streams:
        side_streams[device] = torch.cuda.Stream(device)
    side = side_streams[device]
    side.wait_stream(torch.cuda.current_stream(device))
    gradients.record_stream(side)
    session.allreduce_async(gradients, op, stream=side)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[device])
    with torch.cuda.stream(side):
        future.set_result(gradients)
    return future


class _Endings:
    """A thread that waits for requests one after the other, in the order of their operations, and completes their futures. It begins with the first
    and ends when the session is closed. No interpreter ends before it: it runs in torch's functions."""

    def __init__(self, session: Session) -> None:
        self._waiting: queue.SimpleQueue[Optional[tuple[Request, torch.futures.Future[Request]]]] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._at_exit = functools.partial(_end_at_exit, weakref.ref(session), self)
        atexit.register(self._at_exit)

    def promise(self, request: Request) -> torch.futures.Future[torch.Tensor]:
        """A future of the request's result, or of what wait raises."""
        if self._thread is None:
            self._thread = threading.Thread(target=_complete, args=(self._waiting,), name="sluice-ddp", daemon=True)
            self._thread.start()
        over: torch.futures.Future[Request] = torch.futures.Future()
        # What a callback raises becomes the error of the future that `then` returns, which DDP throws. set_exception would give DDP, which looks at
        # the bare value, an exception where it expects a tensor.
        result: torch.futures.Future[torch.Tensor] = over.then(lambda future: future.value().wait())
        self._waiting.put((request, over))
        return result

    def stop(self) -> None:
        """What was promised is kept before. Again is harmless."""
        self._waiting.put(None)
        if self._thread is threading.current_thread():
            return  # the last one to hold a request of the session closes it, and that may be this thread, which ends soon: left to _end_at_exit
        if self._thread is not None:
            self._thread.join()
        atexit.unregister(self._at_exit)


def _end_at_exit(reference: "weakref.ref[Session]", endings: _Endings) -> None:
    """Closes the session, so that no request is waited for any more, and sees the thread end, which may be closing it just then."""
    session = reference()
    if session is not None:
        with suppress(Error):
            session.close()
        del session
    endings.stop()


def _complete(waiting: "queue.SimpleQueue[Optional[tuple[Request, torch.futures.Future[Request]]]]") -> None:
    while True:
        item = waiting.get()
        if item is None:
            return
        request, over = item
        try:
            request.wait()
        except Exception:  # of the request, which keeps it for whoever asks; also of a session that was closed meanwhile
            pass
        over.set_result(request)
        del item, request, over  # no gradients are held while there is nothing to wait for
