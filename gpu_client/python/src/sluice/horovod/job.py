"""Class Job: the ranks of this job and their sessions; what init() makes and shutdown() ends."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, NamedTuple, Optional

import torch

from ..errors import Error
from ..placement.launchers import Placement
from ..session import Session
from ..torch.meeting import host_id

_WIRE_MIN_COUNT = 8192  # with the wire type of SLUICE_WIRE, counters and losses keep their bits, as in sluice.torch


class Layout(NamedTuple):
    """Where this rank is. Cross ranks are those with the same local rank, on all hosts."""

    rank: int
    size: int
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    is_homogeneous: bool = True


class Job:
    """Collective: all ranks make their jobs, sessions and operations in one order. A job of one rank has no session."""

    def __init__(self, placement: Placement, number: int) -> None:
        """`number`: of the job in this process, equal on all ranks. Raises a subclass of sluice.Error."""
        self.rank, self.ranks = placement.rank, placement.ranks
        self._run = f"{placement.run} {number}"
        self._sessions: dict[tuple[str, Optional[str]], Session] = {}
        self.issuing = threading.RLock()  # held where operations start: a group would take those of other threads too
        self.layout = Layout(0, 1) if self.ranks == 1 else self._gather_layout(placement)

    def session(self, device: torch.device, wire: Optional[str] = None) -> Session:
        """Returns the session for memory of the device and a wire type (None: SLUICE_WIRE). Collective at the first call, which opens it."""
        where = "cpu" if device.type == "cpu" else str(device)
        with self.issuing:
            if (where, wire) not in self._sessions:
                # The ordinals of GPUs may differ between ranks.
                identity = hashlib.sha256(f"{self._run} {device.type} {wire}".encode()).digest()[:16]
                self._sessions[where, wire] = Session(None, session_id=identity, rank=self.rank, ranks=self.ranks, device=where, wire_dtype=wire,
                                                      wire_min_count=_WIRE_MIN_COUNT if wire is None else None)
            return self._sessions[where, wire]

    def sessions(self) -> list[Session]:
        return list(self._sessions.values())

    def gather(self, *values: int) -> list[list[int]]:
        """Returns the values of each rank."""
        own = torch.tensor(values, dtype=torch.int64)
        if self.ranks == 1:
            return [own.tolist()]
        everyone = torch.empty(self.ranks, len(values), dtype=torch.int64)
        with self.issuing:
            request = self.session(torch.device("cpu")).all_gather_async(own, everyone)
        request.wait()
        lists: list[list[int]] = everyone.tolist()
        return lists

    def close(self) -> None:
        """Leaves the sessions. Raises the error of the first one that failed."""
        failure: Any = None
        for session in self.sessions():
            try:
                session.close()
            except Error as error:
                failure = failure or error
        self._sessions.clear()
        if failure is not None:
            raise failure

    def _gather_layout(self, placement: Placement) -> Layout:
        host = int.from_bytes(hashlib.sha256(host_id().encode()).digest()[:7], "little")
        local, locals_ = placement.local_rank, placement.local_ranks
        announced = self.gather(host, -1 if local is None else local, -1 if locals_ is None else locals_)
        hosts = [each[0] for each in announced]
        local_ranks = [hosts[:rank].count(hosts[rank]) if each[1] < 0 else each[1] for rank, each in enumerate(announced)]
        local_sizes = [hosts.count(hosts[rank]) if each[2] < 0 else each[2] for rank, each in enumerate(announced)]
        own = local_ranks[self.rank]
        return Layout(self.rank, self.ranks, own, local_sizes[self.rank], local_ranks[:self.rank].count(own), local_ranks.count(own),
                      len(set(local_sizes)) == 1)
