"""Class Residuals: the rounding errors that error feedback carries from one reduction of a tensor to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Optional

import torch

_BLOCK_TYPES = ("mxfp8", "int8")


def is_on(error_feedback: Optional[bool], wire_dtype: str) -> bool:
    """Whether error feedback is used with this wire type: if not chosen, with 8-bit types."""
    return wire_dtype in _BLOCK_TYPES and error_feedback is not False


class Residuals:
    """Keeps one float32 tensor for each name, as large as the tensor that is reduced under that name, on its device.

    A tensor of another shape or with other `contents` begins with a residual of zeros. Beyond `limit` names the one used longest ago is forgotten,
    for callers whose names do not return. Not for concurrent calls."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._residuals: OrderedDict[Hashable, tuple[Hashable, torch.Tensor]] = OrderedDict()

    def of(self, name: Hashable, tensor: torch.Tensor, contents: Hashable = None) -> torch.Tensor:
        known, residual = self._residuals.pop(name, (None, None))
        if residual is None or known != contents or residual.numel() != tensor.numel() or residual.device != tensor.device:
            residual = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
        self._residuals[name] = (contents, residual)
        if len(self._residuals) > self._limit:
            self._residuals.popitem(last=False)
        return residual

    def clear(self) -> None:
        self._residuals.clear()

    def memory(self) -> int:
        """Returns the bytes that the residuals take."""
        return sum(residual.numel() * residual.element_size() for _, residual in self._residuals.values())
