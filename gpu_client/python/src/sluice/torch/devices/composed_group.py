"""Class ComposedGroup: a process group in which other backends may run the collectives of some kinds of devices."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Optional

import torch
import torch.distributed as dist

from ..device import STREAMED
from ..releases import GlooBackedGroup, ReferencedWork, plain_group, untraced
from ..timeouts import of_call
from . import device_map
from .arguments import check_one_device, first_tensor
from .device_backend import DeviceBackend, add_collectives
from .streamed import message

COLLECTIVES = frozenset((
    "allreduce", "allreduce_coalesced", "reduce", "broadcast", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "allgather", "allgather_coalesced", "_allgather_base", "all_gather_single",
    "all_gather_single_coalesced", "allgather_into_tensor_coalesced", "all_to_all_single", "alltoall", "alltoall_base", "gather", "gather_into_tensor",
    "gather_single", "recv", "recv_anysource", "scatter", "send"))
add_collectives(COLLECTIVES)

# Collectives that always run in gloo. Each is defined here and not inherited: torch's C++ would call an inherited one with
# the interpreter's lock held, and then wait for a lock of gloo that gloo's thread holds while it waits for the
# interpreter's.
_IN_GLOO = ("all_to_all_single", "alltoall", "alltoall_base", "gather", "gather_into_tensor", "gather_single", "monitored_barrier",
              "recv", "recv_anysource", "scatter", "send")
_MESSAGES = ("send", "recv", "recv_anysource")


class ComposedGroup(GlooBackedGroup):
    """The group runs the collectives of tensors on its own kinds of devices; the rest of the map is a plain group of torch, as torch composes it.

    So what the rest does, and how it fails, is torch's: another backend, tensors of a device without backend, meta tensors."""

    _pid: int  # of the process that made the group
    _map: Mapping[str, str] = MappingProxyType({})  # the name of the backend by type of device; empty until _compose()
    _own: frozenset[str] = frozenset()  # the types of devices that the group serves itself
    _is_checked = False
    _coalesced: Optional[list[dist.Work]] = None  # those begun since _start_coalescing()

    def _compose(self, backends: dict[str, str], own: frozenset[str], others: Any, timeout: timedelta) -> None:
        """`others`: the group of torch for the other devices, or its backends by type of device, None for the group's gloo."""
        self._map, self._own = backends, own
        self._own_backend = DeviceBackend(self)
        if isinstance(others, dist.ProcessGroup):
            self._rest = others
            return
        self._rest = plain_group(self._store, self.rank(), self.size(), timeout)
        for kind, backend in others.items():
            of_type = dist.Backend.backend_type_map.get(backends[kind], dist.ProcessGroup.BackendType.CUSTOM)
            self._rest._register_backend(torch.device(kind), of_type, self._gloo if backend is None else backend)
            if hasattr(self._rest, "_set_default_backend"):
                self._rest._set_default_backend(of_type)

    def _get_backend(self, device: torch.device) -> Any:
        """As torch's. For host memory of the group itself: its gloo, which runs what reducers do not."""
        kind = torch.device(device).type
        if kind not in self._own:
            return self._rest._get_backend(torch.device(device))
        return self._gloo if kind == "cpu" else self._own_backend

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in self._map]

    def _others(self) -> Optional[dist.ProcessGroup]:
        """Returns the rest of the map, or None if there is none."""
        return self._rest if len(self._own) < len(self._map) else None

    def _set_group_name(self, name: str) -> None:
        super()._set_group_name(name)
        if (others := self._others()) is not None:
            others._set_group_name(name)

    def _set_group_desc(self, description: str) -> None:
        super()._set_group_desc(description)
        if (others := self._others()) is not None:
            others._set_group_desc(description)

    def _start_coalescing(self, device: torch.device) -> None:
        """Collectives and messages of the group's own devices start at once; _end_coalescing() returns the Work of all."""
        if torch.device(device).type in self._own:
            self._coalesced = []
        else:
            self._rest._start_coalescing(device)

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        if torch.device(device).type not in self._own:
            return self._rest._end_coalescing(device)
        works, self._coalesced = self._coalesced or [], None
        return JoinedWork(works)

    def _check_process(self) -> None:
        """Raises in a child of fork(), which has no threads of the sessions and of gloo."""
        if os.getpid() != self._pid:
            raise dist.DistBackendError("the process group belongs to the parent process; create a new one after fork()")

    def _gloo_work(self, name: str, *arguments: Any, **options: Any) -> Any:
        self._check_process()
        check_one_device(name, arguments)
        if name in _MESSAGES and arguments[0] and arguments[0][0].device.type in STREAMED:
            tensor = arguments[0][0]
            return message(STREAMED[tensor.device.type](tensor.device), getattr(self._gloo, name), tensor, *arguments[1:], **options)
        return getattr(self._gloo, name)(*arguments, **options)

    def _check_map(self) -> None:
        """Raises DistBackendError if the group was made for other devices than the user wants."""
        self._is_checked = device_map.check(self, self._map)


@untraced
class JoinedWork(ReferencedWork):
    """The Work of several works."""

    def __init__(self, works: list[dist.Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        self._is_used()
        return all([work.wait(timeout) if of_call(timeout) > timedelta() else work.wait() for work in self._works])

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        self._is_used()
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> list[torch.Tensor]:
        return [tensor for work in self._works for tensor in work.result()]


def routed(kind: type[ComposedGroup]) -> None:
    """Lets the collectives that the class defines go to the rest of the map where their tensors belong to it."""
    for name in COLLECTIVES:
        function: Any = getattr(kind, name, None)
        if function is not getattr(dist.ProcessGroup, name, None):
            setattr(kind, name, _routed(name, function))


def _routed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: ComposedGroup, *arguments: Any, **options: Any) -> Any:
        if not self._is_checked:
            self._check_map()
        tensor = first_tensor(arguments) if not options else first_tensor((*arguments, *options.values()))
        if tensor is not None and tensor.device.type not in self._own:
            self._check_process()
            # torch chooses a kernel by all tensors of a call: with one of "meta" it does nothing, and reports success.
            check_one_device(name, (*arguments, *options.values()))
            return getattr(self._rest, name)(*arguments, **options)
        work = function(self, *arguments, **options)
        if self._coalesced is not None and work is not None:
            self._coalesced.append(work)
        return work

    return call


def _forward(name: str) -> Callable[..., Any]:
    def call(self: ComposedGroup, *arguments: Any, **options: Any) -> Any:
        # Process groups and backends have other names for the tensors of these, and a backend's timeout is not None.
        tensors = [options.pop(key) for side in ("output", "input") for key in (side, f"{side}_tensor", f"{side}_tensors")
                   if "all" in name and key in options]
        return self._gloo_work(name, *arguments, *tensors, **{key: value for key, value in options.items() if value is not None})

    call.__name__ = name
    return call


for _name in _IN_GLOO:
    if hasattr(dist.ProcessGroup, _name) and hasattr(dist.ProcessGroupGloo, _name):
        setattr(ComposedGroup, _name, _forward(_name))
