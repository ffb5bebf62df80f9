"""Which backend runs the collectives of which kind of device: the map of a process group, such as "cpu:sluice,cuda:nccl"."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

NAME = "sluice"
_MAKER = ("torch.distributed.distributed_c10d", "_new_process_group_helper")


class Wanted(NamedTuple):
    """What the caller of init_process_group or new_group wants."""

    backends: dict[str, str]  # the name of the backend by type of device, in the order of the map
    device: Optional[torch.device]  # device_id=
    begun: Optional[dist.ProcessGroup]  # with the backends of the devices that the map names before this one

    def own(self) -> frozenset[str]:
        """Returns the types of devices that this backend serves. Raises DistBackendError for others."""
        found = [kind for kind, name in self.backends.items() if name == NAME]
        for kind in found:
            if kind not in served():
                raise dist.DistBackendError(f"backend sluice: cannot serve device type {kind!r}; it serves {' and '.join(served())}, so name another "
                                            f"backend for it, such as '{served()[0]}:sluice,{kind}:{dist.Backend.default_device_backend_map.get(kind, 'gloo')}'")
        return frozenset(found)

    def others(self) -> dict[str, str]:
        return {kind: name for kind, name in self.backends.items() if name != NAME}


def served() -> tuple[str, ...]:
    from ..device import STREAMED  # not before sluice.torch has looked at the release of torch

    return ("cpu", *(kind for kind in STREAMED if kind != "cpu"))


def wanted() -> Wanted:
    """Returns the map of the group that torch is making.

    torch tells it to no backend, and takes a backend that is a ProcessGroup as the whole group. So it is read from torch's function that makes
    groups. Where there is none, somebody else makes the group, for all devices; check() finds a torch whose function has another name."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == _MAKER:
            backend, device = frame.f_locals["backend"], frame.f_locals.get("device_id")
            backends = dict(dist.distributed_c10d.BackendConfig(dist.Backend(str(backend))).get_device_backend_map())
            return Wanted(backends, device, frame.f_locals.get("pg"))
        frame = frame.f_back
    return Wanted(dict.fromkeys(served(), NAME), None, None)


def check(group: dist.ProcessGroup, backends: Mapping[str, str]) -> bool:
    """Returns whether torch knows the group, and so could tell its map. Raises DistBackendError if that is not `backends`."""
    known = dist.distributed_c10d._world.pg_backend_config.get(group)
    if known is None:
        return False
    made = ",".join(f"{kind}:{name}" for kind, name in backends.items())
    if known != made:
        raise dist.DistBackendError(f"backend sluice: the group was made as {made!r}, but torch {torch.__version__} wants {known!r}; "
                                    "this release of sluice cannot read the device map of this torch: use a newer sluice, or only 'sluice' as backend")
    return True


def other_backends(wanted_map: Wanted, options: Any, pg_options: Any) -> dict[str, Any]:
    """Collective. Makes the backends of the other devices as torch would. None: gloo, of which the group has one.

    `options`: what torch passed for this backend. Raises DistBackendError for a backend that cannot be a part of a group."""
    store, made = options.store, {}
    begun = wanted_map.begun
    for kind, name in wanted_map.others().items():
        device = torch.device(kind)
        if begun is not None and device in begun._device_types:
            made[kind] = begun._get_backend(device)
        elif name == dist.Backend.GLOO:
            made[kind] = None
        else:
            options.store = dist.PrefixStore(f"{kind}/", store.underlying_store if isinstance(store, dist.PrefixStore) else store)
            try:
                made[kind] = _made(name, options, pg_options)
            finally:
                options.store = store
            if isinstance(made[kind], dist.ProcessGroup) or made[kind] is None:
                raise dist.DistBackendError(f"backend sluice: cannot share a group with backend {name!r} for {kind}, which makes whole groups only")
    return made


def _made(name: str, options: Any, pg_options: Any) -> Any:
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is not None:
        if plugin.extended_api:
            return plugin.creator_fn(options, pg_options)
        return plugin.creator_fn(options.store, options.group_rank, options.group_size, options.timeout)
    if name == dist.Backend.NCCL and dist.is_nccl_available():  # of old releases, in which it is no plugin
        of_nccl = pg_options if isinstance(pg_options, dist.ProcessGroupNCCL.Options) else dist.ProcessGroupNCCL.Options()
        of_nccl._timeout, of_nccl.global_ranks_in_group, of_nccl.group_name = options.timeout, options.global_ranks_in_group, options.group_id
        return dist.ProcessGroupNCCL(options.store, options.group_rank, options.group_size, of_nccl)
    raise dist.DistBackendError(f"backend sluice: this torch ({torch.__version__}) has no backend {name!r} that can share a group")
