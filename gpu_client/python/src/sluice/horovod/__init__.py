"""Runs scripts for horovod.torch through reducers: replace `import horovod.torch as hvd` by

    import sluice.horovod as hvd

and start them with mpirun, srun, torchrun or horovodrun. SLUICE_REDUCERS and the other variables of libsluice choose the
reducers. All ranks must call the collectives in one order; Horovod sorts them by names. docs/guides/frameworks.md says
what else differs."""

from __future__ import annotations

from typing import Any

from ..errors import Error as HorovodInternalError
from . import elastic
from .collectives import (Average, Compression, Max, Min, Product, Sum, allgather, allgather_async, allgather_object, allreduce, allreduce_, allreduce_async,
                          allreduce_async_, barrier, broadcast, broadcast_, broadcast_async, broadcast_async_, broadcast_object, grouped_allreduce,
                          grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_, init, is_initialized, layout, poll, reducescatter,
                          reducescatter_async, sessions, shutdown, synchronize)
from .optimizer import DistributedOptimizer, broadcast_optimizer_state, broadcast_parameters

__all__ = ["Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "Max", "Min", "Product", "Sum", "allgather", "allgather_async",
           "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "barrier", "broadcast", "broadcast_", "broadcast_async",
           "broadcast_async_", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "cross_rank", "cross_size", "elastic",
           "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "init", "is_homogeneous", "is_initialized",
           "local_rank", "local_size", "poll", "rank", "reducescatter", "reducescatter_async", "sessions", "shutdown", "size", "synchronize"]

_NO_SETS = "all ranks train together; give ranks that reduce among themselves a sluice.Session, or use torch.distributed.new_group"
_OTHER_RANKS = "the backend sluice of torch.distributed has it"
_TIMELINE = "SLUICE_TRACE=FILE records the operations of each rank, and sluice trace summary reads them"
_ABSENT = {
    "join": "give all ranks as many steps; a rank without data calls optimizer.step() without a backward pass, which counts as gradients of zero",
    "Adasum": "use Average or Sum", "SyncBatchNorm": _OTHER_RANKS, "alltoall": _OTHER_RANKS, "alltoall_async": _OTHER_RANKS,
    "grouped_allgather": "call allgather for each tensor", "grouped_allgather_async": "call allgather_async for each tensor",
    "grouped_reducescatter": "call reducescatter for each tensor", "grouped_reducescatter_async": "call reducescatter_async for each tensor",
    "sparse_allreduce_async": "pass sparse_as_dense=True to DistributedOptimizer", "ProcessSet": _NO_SETS, "add_process_set": _NO_SETS,
    "remove_process_set": _NO_SETS, "global_process_set": _NO_SETS, "start_timeline": _TIMELINE, "stop_timeline": _TIMELINE,
    "run": "start the processes by mpirun, srun or torchrun",
}
# Questions about libraries of which none is here.
_BUILT_WITH = ("mpi_built", "mpi_enabled", "mpi_threads_supported", "gloo_built", "gloo_enabled", "nccl_built", "ddl_built", "ccl_built", "cuda_built",
               "rocm_built")


def rank() -> int:
    return layout().rank


def size() -> int:
    return layout().size


def local_rank() -> int:
    """The rank among those of this host: what the launcher says, otherwise by the order of ranks."""
    return layout().local_rank


def local_size() -> int:
    return layout().local_size


def cross_rank() -> int:
    """The rank among those with the same local rank, on all hosts."""
    return layout().cross_rank


def cross_size() -> int:
    return layout().cross_size


def is_homogeneous() -> bool:
    return layout().is_homogeneous


def __getattr__(name: str) -> Any:
    if name in _BUILT_WITH:
        return lambda: False
    if name in _ABSENT:
        raise AttributeError(f"sluice.horovod has no {name}: {_ABSENT[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
