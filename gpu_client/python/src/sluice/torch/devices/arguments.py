"""The tensors among the arguments of a collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import torch

_OVERLAPS = 1  # of torch's answers: no, yes, unknown


def listed(tensors: Union[torch.Tensor, list[torch.Tensor]]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def first_tensor(values: Iterable[Any]) -> Optional[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)) and (found := first_tensor(value)) is not None:
            return found
    return None


def check_one_device(name: str, values: Iterable[Any]) -> None:
    """Raises ValueError that names the first tensor which is on another device than the tensors before it."""
    devices: list[torch.device] = []

    def visit(values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                devices.append(value.device)
                if value.device != devices[0]:
                    raise ValueError(f"backend sluice: the tensors of {name} are on several devices: tensor 0 on {devices[0]}, tensor {len(devices) - 1} "
                                     f"on {value.device}; pass tensors of one device")
            elif isinstance(value, (list, tuple)):
                visit(value)

    visit(values)


def check_results(name: str, results: Sequence[torch.Tensor]) -> None:
    """Raises RuntimeError that names the first tensor which cannot hold a result because elements share memory, as after expand().

    torch could tell that only when the result is there: too late for a device whose work runs later."""
    for place, tensor in enumerate(results):
        if torch._debug_has_internal_overlap(tensor) == _OVERLAPS:
            raise RuntimeError(f"backend sluice: result {place} of {name} has elements that share memory: strides {tuple(tensor.stride())} for shape "
                               f"{tuple(tensor.shape)}; pass a tensor that is non-overlapping and dense, such as a copy")
