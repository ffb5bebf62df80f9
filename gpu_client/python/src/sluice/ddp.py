"""Integration with torch.distributed: a session for a process group, and a DistributedDataParallel communication hook.

DDP compares the annotations of the hook with types, so this file must not use `from __future__ import annotations`."""

import os
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from .completions import CompletionThreads
from .errors import UnhealthyGradient
from .request import Request
from .residuals import Residuals, is_on
from .session import Session

_MAX_BUCKETS = 1 << 16  # more than any model has

Hook = Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def session_from_torch(reducers: Optional[str], group: Optional[dist.ProcessGroup] = None, **options: Any) -> Session:
    """Implements sluice.session_from_torch."""
    session_id = [os.urandom(16)]  # overwritten with the first rank's on the others
    first = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast_object_list(session_id, src=first, group=group)
    return Session(reducers, session_id=session_id[0], rank=dist.get_rank(group), ranks=dist.get_world_size(group), **options)


def make_hook(session: Session, average: bool, error_feedback: Optional[bool]) -> Hook:
    """Implements sluice.ddp_hook."""
    op = "avg" if average else "sum"
    residuals = Residuals(limit=_MAX_BUCKETS) if is_on(error_feedback, session.wire_dtype) else None
    completions = CompletionThreads("sluice-ddp", session)
    comm_streams: dict[torch.device, torch.cuda.Stream] = {}
    on_gpu: list[Request] = []  # for whose end nobody waits
    step = 1

    def sluice_allreduce(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        nonlocal step
        # GPU streams continue after a failure, so the gradients of the last step may be undefined. Raises here, before
        # the next step uses them.
        error = session.error()
        if error is not None:
            raise error
        raise_findings(on_gpu)
        name = f"bucket {bucket.index()} at step {step}"
        step += bucket.is_last()
        gradients = bucket.buffer()
        residual = None
        if residuals is not None and gradients.dtype == torch.float32:
            # DDP reorders the parameters of its buckets once, after the first step.
            residual = residuals.of(bucket.index(), gradients, tuple(map(id, bucket.parameters())))
        if gradients.device.type == "cuda":
            request, future = _allreduce_on_comm_stream(session, gradients, op, residual, name, comm_streams)
            on_gpu.append(request)
            return future
        request = session.allreduce_async(gradients, op, residual=residual, name=name)
        return completions.future_of(request, request.wait)

    return sluice_allreduce


def raise_findings(requests: list[Request]) -> None:
    """Removes the requests that have ended. Raises the first of their findings with on_finding="raise"."""
    ended = [request for request in requests if request.done()]
    requests[:] = [request for request in requests if request not in ended]
    for request in ended:
        error = request.error()
        if isinstance(error, UnhealthyGradient):
            raise error


def _allreduce_on_comm_stream(session: Session, gradients: torch.Tensor, op: str, residual: Optional[torch.Tensor], name: str,
                              comm_streams: dict[torch.device, torch.cuda.Stream]) -> tuple[Request, torch.futures.Future[torch.Tensor]]:
    """Runs the operation on a separate stream, so that it overlaps with the backward pass.

    Does not wait on the host: the future completes at once and records an event on the separate stream, for which torch
    makes the users of the value wait, as torch's documentation of Future says."""
    device = gradients.device
    if device not in comm_streams:
        comm_streams[device] = torch.cuda.Stream(device)
    stream = comm_streams[device]
    stream.wait_stream(torch.cuda.current_stream(device))
    gradients.record_stream(stream)
    if residual is not None:
        residual.record_stream(stream)
    request = session.allreduce_async(gradients, op, stream=stream, residual=residual, name=name)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[device])
    with torch.cuda.stream(stream):
        future.set_result(gradients)
    return request, future
