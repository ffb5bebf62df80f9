"""Creates the process groups of the backend for torch.distributed."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .devices import device_map
from .options import Options, inherit, options_of
from .process_group import SluiceGroup
from .timeouts import limit


def create(options: Any, pg_options: object) -> SluiceGroup:
    """Creates a process group for the whole device map; torch.distributed calls it on all ranks of the group, for the first device that is ours.

    `pg_options`: Options or None; in a map with other backends also theirs."""
    limit(options.timeout)  # raises
    wanted = device_map.wanted()
    own, others = wanted.own(), wanted.others()
    is_ours = pg_options is None or isinstance(pg_options, Options) or not others
    group_options = (options_of(pg_options) if is_ours else None) or Options()
    default = dist.GroupMember.WORLD  # None while it is created
    if isinstance(default, SluiceGroup):
        group_options = inherit(group_options, default.group_options)
    arguments = (options.store, options.group_rank, options.group_size, options.timeout)
    if getattr(options, "enable_reconfigure", False):
        if others or wanted.device is not None:
            raise dist.DistBackendError("backend sluice: enable_reconfigure needs 'sluice' as the only backend, and no device_id")
        from .reconfigurable_group import ReconfigurableGroup

        return ReconfigurableGroup(*arguments, group_options=group_options)
    made = device_map.other_backends(wanted, options, None if is_ours else pg_options)
    group = SluiceGroup(*arguments, group_options=group_options, backends=wanted.backends, others=made,
                        ranks_in_job=options.global_ranks_in_group)
    if wanted.device is not None:
        group.bound_device_id = wanted.device
    return group
