"""Allreduce of NumPy arrays, PyTorch tensors and other arrays, in host or GPU memory, through a pool of reducers.

    with sluice.Session("node1:7470,node2:7470", session_id=id, rank=rank, ranks=4) as session:
        session.allreduce(gradient)

    model.register_comm_hook(None, sluice.ddp_hook(session))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from . import _library
from ._version import __version__
from .errors import (Again, Closed, Error, Internal, InvalidArgument, LibraryNotFound, Lost, Mismatch, Protocol, Refused, System, Timeout,
                     UnhealthyGradient, Unsupported)
from .findings import Finding
from .request import Request
from .session import Session
from .stats import Stats, StreamStats

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from .ddp import Hook

__all__ = ["Again", "Closed", "Error", "Finding", "Internal", "InvalidArgument", "LibraryNotFound", "Lost", "Mismatch", "Protocol", "Refused", "Request",
           "Session", "Stats", "StreamStats", "System", "Timeout", "UnhealthyGradient", "Unsupported", "__version__", "ddp_hook", "library_version",
           "nccl_plugin_path", "session_from_torch"]


def library_version() -> str:
    """Returns the version of libsluice and loads the library if necessary. Raises LibraryNotFound."""
    return str(_library.load().sluice_version().decode())


def nccl_plugin_path() -> str:
    """Returns the path of the NCCL plugin in the wheel, the value of NCCL_NET_PLUGIN. Raises LibraryNotFound in a source tree."""
    return _library.packaged_file("lib/libnccl-net-sluice.so")


def ddp_hook(session: Session, *, average: bool = True, error_feedback: Optional[bool] = None) -> Hook:
    """Returns a hook for DistributedDataParallel.register_comm_hook(None, hook) that reduces gradients through `session`.

    The ranks of the session must be those of the model's process group. The hook averages gradients; with
    average=False it sums them. `error_feedback` adds what rounding loses to the same bucket of the next step; None: if
    the session's wire type has 8 bits. It takes as much memory as the gradients. If the session fails, the backward pass raises, in the same step or on a GPU in the
    next one. Requires torch."""
    from .ddp import make_hook

    return make_hook(session, average, error_feedback)


def session_from_torch(reducers: Optional[str], group: Optional[ProcessGroup] = None, **options: Any) -> Session:
    """Creates a Session for the ranks of a torch.distributed process group (None: all ranks).

    The group's first rank chooses the session id. Collective: all ranks of the group must call it. `options` are the
    keyword arguments of Session. Requires torch."""
    from . import ddp

    return ddp.session_from_torch(reducers, group, **options)
