"""Class HostCopy: the values of a module's tensors, as f32 in host memory, as models hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch

_TYPES = (torch.float32, torch.float16, torch.bfloat16)
# Wire types that may overflow where f32 is finite. Blocks have scales.
_NARROW_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def trained_parameters(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the parameters that require gradients. Raises TypeError for a type that models do not support."""
    found: dict[str, torch.Tensor] = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    _check(found)
    return found


def floating_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the parameters and buffers of floating point, such as BatchNorm's means, but not its counter of batches."""
    found = {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    _check(found)
    return found


def _check(tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES:
            raise TypeError(f"tensor {name!r} is {tensor.dtype}; expected float32, float16 or bfloat16")
    if not tensors:
        raise ValueError("there are no tensors of floating point")


def shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def check_finite(deltas: Mapping[str, torch.Tensor], wire_dtype: str) -> None:
    """Raises ValueError for a tensor with an infinity or NaN in that type. No later delta could turn it into a number again."""
    for name, values in deltas.items():
        if not values.to(_NARROW_TYPES.get(wire_dtype, torch.float32)).isfinite().all():
            raise ValueError(f"tensor {name!r} has values, or changes, that are not finite in {wire_dtype}; not pushed")


class HostCopy:
    """f32 copies of tensors, which may be on GPUs, in host memory. They do not change with the tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self.values = {name: torch.empty(tensor.shape, dtype=torch.float32) for name, tensor in tensors.items()}

    def read(self, tensors: Optional[Mapping[str, torch.Tensor]] = None) -> HostCopy:
        """Copies the tensors here, or `tensors`, which replace them."""
        self._tensors = self._tensors if tensors is None else tensors
        with torch.no_grad():
            for name, value in self.values.items():
                value.copy_(self._tensors[name])
        return self

    def write(self) -> None:
        """Copies the values to the tensors, rounded to their types."""
        with torch.no_grad():
            for name, value in self.values.items():
                self._tensors[name].copy_(value)

    def set_zero(self) -> None:
        for value in self.values.values():
            value.zero_()
