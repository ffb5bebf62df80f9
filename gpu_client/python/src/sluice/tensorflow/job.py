"""The session of this process's job, which init() creates and the other functions of the package use."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any, Optional

from ..errors import Error
from ..session import Session
from .cluster import Place, agree_on_session, place_of_environment

_lock = threading.Lock()
_session: Optional[Session] = None


def init(reducers: Optional[str] = None, *, rank: Optional[int] = None, size: Optional[int] = None, session_id: Optional[bytes] = None,
         timeout: float = 60, **options: Any) -> Session:
    """Creates the session of the job and returns it. Collective: all workers call it.

    reducers: as of Session; None: SLUICE_REDUCERS, or those of the platform, which may be in TF_CONFIG.
    rank, size: None: SLUICE_RANK and SLUICE_WORKERS, or the place in TF_CONFIG.
    session_id: 16 bytes, equal on all workers; None: SLUICE_SESSION, or one on which the workers agree at the address of rank 0 in TF_CONFIG.
    timeout: seconds that the workers wait for each other to agree. options: the other keyword arguments of Session."""
    global _session
    with _lock:
        if _session is not None:
            raise RuntimeError("init() was called before; call shutdown() first")
        if (rank is None) != (size is None):
            raise ValueError("rank and size: pass both or none")
        place = place_of_environment() if rank is None or size is None else Place(rank, size)
        if place is None:
            raise ValueError("this process has no rank: set TF_CONFIG, or SLUICE_RANK and SLUICE_WORKERS, or pass rank and size")
        if session_id is None:
            session_id = _session_of_environment() or agree_on_session(place, timeout)
        _session = Session(reducers, session_id=session_id, rank=place.rank, ranks=place.size, **options)
        return _session


def session() -> Session:
    """Returns the session of the job. Raises RuntimeError before init()."""
    if _session is None:
        raise RuntimeError("call sluice.tensorflow.init() first")
    return _session


def rank() -> int:
    """Returns the rank of this worker, 0 to size() - 1."""
    return session().rank


def size() -> int:
    """Returns the number of workers."""
    return session().ranks


def shutdown() -> None:
    """Leaves the job; then init() may be called again. Has no effect before init(). The interpreter does it at exit."""
    global _session
    with _lock:
        left, _session = _session, None
    if left is not None:
        with suppress(Error):  # that of a failed session, which its operations have raised
            left.close()


def _session_of_environment() -> Optional[bytes]:
    text = os.environ.get("SLUICE_SESSION", "")
    try:
        session_id = bytes.fromhex(text)
    except ValueError:
        session_id = b""
    if text and len(session_id) != 16:
        raise ValueError(f"SLUICE_SESSION={text}: expected 32 hexadecimal digits")
    return session_id or None
