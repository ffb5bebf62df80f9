"""Class DeviceBackend: what torch asks of the backend of one device, for the devices whose collectives a process group runs itself."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


def _can_derive() -> bool:
    try:
        type("Derived", (c10d.Backend,), {})(0, 1)
    except TypeError:  # before torch 2.15
        return False
    return True


_Base: Any = c10d.Backend if _can_derive() else object


class DeviceBackend(_Base):  # type: ignore[misc]
    """A Backend of torch where Python can define one, else an object with its functions. Its collectives are those of the group.

    torch reads what it supports; before it coalesces, splits a group, or allocates memory."""

    supports_splitting = _Base is not object  # older releases would look for NCCL's options
    supports_coalescing = False

    def __init__(self, group: dist.ProcessGroup) -> None:
        if _Base is object:
            super().__init__()
        else:
            super().__init__(group.rank(), group.size())
        self._group = weakref.ref(group)  # which has this object

    def name(self) -> str:
        return str(self._of_group().name())

    getBackendName = name

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Collective: opens the session for the device, which the first collective would open."""
        self._of_group()._streams_of(device)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Ranks outside of a new group do nothing for it."""

    def shutdown(self) -> None:
        self._of_group().shutdown()

    def abort(self) -> None:
        self._of_group().abort()

    def _of_group(self) -> Any:
        group = self._group()
        if group is None:
            raise dist.DistBackendError("the process group of this backend was destroyed")
        return group


def _forward(name: str) -> Any:
    def call(self: DeviceBackend, *arguments: Any, **options: Any) -> Any:
        return getattr(self._of_group(), name)(*arguments, **options)

    call.__name__ = name
    return call


def add_collectives(names: frozenset[str]) -> None:
    for name in names:
        setattr(DeviceBackend, name, _forward(name))
