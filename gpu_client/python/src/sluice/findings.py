"""Class Finding: what reducers with --health find wrong with the gradients of a rank (docs/guides/health.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Optional, Union


@dataclass(frozen=True)
class Finding:
    """The most severe finding of one operation, equal on all ranks. str() is one line for a log."""

    rank: int  # whose contribution it is; of several ranks the lowest
    kind: str  # "non_finite", "outlier" or "zeros"
    count: int  # of "non_finite": NaNs and infinities
    ratio: float  # of "outlier": the largest magnitude, divided by the median of the ranks' largest
    operation: str  # the `name` of the operation

    def __str__(self) -> str:
        text = {"non_finite": f"{self.count} NaN or infinite", "outlier": f"largest value {self.ratio:.3g} times the median of the ranks",
                "zeros": "only zeros"}.get(self.kind, self.kind)
        return f"rank {self.rank}: {text} in {self.operation}"


OnFinding = Union[None, Literal["raise"], Callable[[Finding], object]]
