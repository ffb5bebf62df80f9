"""Creates the process groups of the backend for torch.distributed."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .options import Options, inherit, options_of
from .process_group import SluiceGroup


def create(options: Any, group_options: object) -> SluiceGroup:
    """Creates a process group; torch.distributed calls it on all ranks of the group. `group_options`: Options or None."""
    group_options = options_of(group_options) or Options()
    default = dist.GroupMember.WORLD  # None while it is created
    if isinstance(default, SluiceGroup):
        group_options = inherit(group_options, default.group_options)
    arguments = (options.store, options.group_rank, options.group_size, options.timeout)
    if getattr(options, "enable_reconfigure", False):
        from .reconfigurable_group import ReconfigurableGroup

        return ReconfigurableGroup(*arguments, group_options=group_options)
    return SluiceGroup(*arguments, group_options=group_options)
