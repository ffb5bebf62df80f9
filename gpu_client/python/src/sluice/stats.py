"""Counters of a session. sluice.h and streams.h document the fields, which have the same names and units."""

from __future__ import annotations

import math
from ctypes import Array, Structure
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Stats:
    """The fields of sluice_stats."""

    operations: int
    payload_bytes_out: int
    payload_bytes_in: int
    wire_bytes_out: int
    wire_bytes_in: int
    send_calls: int
    receive_calls: int
    reducers: int
    lanes: int
    missing_ranks: int
    missing_rank: int
    waited_ms: int
    connections_resumed: int
    view_changes: int
    payload_bytes_resent: int
    stalled_us: int
    longest_stall_us: int
    stalls: tuple[int, ...]
    reducers_lost: int
    payload_bytes_copied: int
    rdma_lanes: int
    rdma_work_posted: int
    rdma_doorbells: int
    rdma_completions: int


@dataclass(frozen=True)
class StreamStats:
    """The fields of sluice_stream_stats."""

    operations: int
    rounds: int
    pieces: int
    bytes_staged_out: int
    bytes_staged_in: int
    pinned_bytes: int
    elements_cast: int
    cast_error_squares: float
    cast_value_squares: float

    @property
    def relative_error(self) -> Optional[float]:
        """The error of rounding to wire_dtype, relative to the Euclidean norm of this rank's contributions.

        None without measure_error, or if only zeros were sent."""
        return math.sqrt(self.cast_error_squares / self.cast_value_squares) if self.cast_value_squares > 0 else None


def struct_fields(struct: Structure) -> dict[str, Any]:
    """Returns the fields of a struct without struct_size; arrays become tuples."""
    values = ((name, getattr(struct, name)) for name, *_ in struct._fields_ if name != "struct_size")
    return {name: tuple(value) if isinstance(value, Array) else value for name, value in values}
