"""Allreduce through a pool of reducers, of numpy arrays, torch tensors and other arrays on the host or a GPU.

    with sluice.Session("node1:7470,node2:7470", session_id=id, rank=rank, ranks=4) as session:
        session.allreduce(gradient)

    model.register_comm_hook(None, sluice.ddp_hook(session))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from . import _library
from ._version import __version__
from .errors import (Again, Closed, Error, Internal, InvalidArgument, LibraryNotFound, Lost, Mismatch, Protocol, Refused, System, Timeout,
                     Unsupported)
from .request import Request
from .session import Session
from .stats import Stats, StreamStats

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from .ddp import Hook

__all__ = ["Again", "Closed", "Error", "Internal", "InvalidArgument", "LibraryNotFound", "Lost", "Mismatch", "Protocol", "Refused", "Request",
           "Session", "Stats", "StreamStats", "System", "Timeout", "Unsupported", "__version__", "ddp_hook", "library_version",
           "session_from_torch"]


def library_version() -> str:
    """Of libsluice, which is loaded if it was not. LibraryNotFound says why it can't be."""
    return str(_library.load().sluice_version().decode())


def ddp_hook(session: Session, *, average: bool = True) -> Hook:
    """For DistributedDataParallel.register_comm_hook(None, ...): gradients are reduced through `session`, whose ranks are those of the model's
    process group. average=False leaves their sum. Needs torch.

    A session that fails makes backward raise, in this step or, on a GPU, in the next one."""
    from .ddp import make_hook

    return make_hook(session, average)


def session_from_torch(reducers: str, group: Optional[ProcessGroup] = None, **options: Any) -> Session:
    """A Session for the ranks of a process group of torch.distributed (None: of all of them), which agree on its id. Collective. Needs torch."""
    from . import ddp

    return ddp.session_from_torch(reducers, group, **options)
