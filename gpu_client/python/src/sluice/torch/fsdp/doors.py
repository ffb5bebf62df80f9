"""What offload() reads of FSDP2's modules, also private attributes, and where it finds something that it cannot serve."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from ...errors import Unsupported

_DOORS = ("set_all_reduce_hook", "set_custom_all_gather", "set_custom_reduce_scatter")


class Layout(Enum):
    """How the ranks hold a module's parameters."""

    SHARDED = "sharded"  # by a 1-D mesh, whose shards are the only copy
    COPIED = "copied"  # by a 1-D mesh, of which there are several, each with a copy; torch does not reduce over them
    REPLICATED = "replicated"  # by a mesh with a replicate dimension, over which torch reduces


class ShardedModule(NamedTuple):
    """A module of fully_shard() with parameters."""

    name: str
    module: Any  # an FSDPModule
    layout: Layout
    group: dist.ProcessGroup  # of the shards; if REPLICATED, of the replicas
    param_group: Any  # FSDP's

    def has_factor(self) -> bool:
        """Whether set_gradient_divide_factor() was called."""
        return getattr(self.param_group, "gradient_divide_factor", None) is not None


def sharded_modules(model: torch.nn.Module, are_copies: bool) -> list[ShardedModule]:
    """Returns the modules in the order of model.modules().

    are_copies: other ranks have copies of the shards of a 1-D mesh. Raises sluice.Unsupported for a release of torch without
    FSDP2's interfaces, TypeError or ValueError for a model that offload() cannot serve."""
    import torch.distributed.fsdp  # by the caller's script, if at all

    kind = getattr(dist.fsdp, "FSDPModule", None)
    missing = [name for name in _DOORS if not hasattr(kind, name)]
    if kind is None or missing:
        raise Unsupported(f"torch {torch.__version__} has no FSDPModule.{(missing or _DOORS)[0]}(); fsdp.offload() needs a release with it, such as 2.15")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is {model!r}; expected a torch.nn.Module to which fully_shard() was applied")
    found = [_sharded(name, module, groups, are_copies) for name, module in model.named_modules()
             if isinstance(module, kind) and (groups := _param_groups(module))]
    if not found:
        raise TypeError(f"model is a {type(model).__name__} without a module of fully_shard(); call fully_shard() first. FSDP2 only: for "
                        "DistributedDataParallel there is sluice.ddp_hook()")
    return found


def _param_groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # older releases have one
        group = getattr(state, "_fsdp_param_group", None)
        groups = [] if group is None else [group]
    return list(groups)


def _sharded(name: str, module: Any, groups: list[Any], are_copies: bool) -> ShardedModule:
    text = _text(name)
    if len(groups) > 1:
        raise ValueError(f"{text} has parameters on {len(groups)} meshes (shard_placement_fn), for which torch lets nobody replace collectives; apply "
                         "fully_shard() to submodules with one mesh each")
    mesh = groups[0].mesh_info
    replicas = getattr(mesh, "replicate_process_group", None)
    if replicas is None:
        return ShardedModule(text, module, Layout.COPIED if are_copies else Layout.SHARDED, mesh.shard_process_group, groups[0])
    if are_copies:
        raise ValueError(f"{text} has a mesh with a replicate dimension, over which torch reduces; pass replicas= only with fully_shard(mesh=mesh[\"shard\"])")
    return ShardedModule(text, module, Layout.REPLICATED, replicas, groups[0])


def _text(name: str) -> str:
    return f"module {name!r}" if name else "the root module"


def check_free(found: ShardedModule, ours: tuple[type, ...]) -> None:
    """Raises ValueError if something else than FSDP's defaults or an ended offload has the doors that the layout needs.

    ours: the classes that offload() sets; each has `channel`, whose session is closed after the end."""
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

    group = found.param_group
    needed = {"set_all_reduce_hook": getattr(group, "_all_reduce_hook", None)} if found.layout is Layout.COPIED else {
        "set_custom_reduce_scatter": getattr(group, "_reduce_scatter_comm", None), "set_custom_all_gather": getattr(group, "_all_gather_comm", None)}
    for door, holder in needed.items():
        if isinstance(holder, ours):
            if not holder.channel.is_closed:  # type: ignore[attr-defined]
                raise ValueError(f"{found.name} is offloaded already; close() the Offload that the first call returned before another")
        elif holder is not None and not isinstance(holder, (DefaultAllGather, DefaultReduceScatter)):
            raise ValueError(f"{found.name} has had {door}() called, whose {type(holder).__name__} offload() would replace; call offload() on a model without it")


def local_states(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Returns this rank's memory of the parameters and buffers, after FSDP has resharded. Raises ValueError for one without values."""
    found = [*model.named_parameters(), *model.named_buffers()]
    if meta := next((name for name, tensor in found if tensor.is_meta), None):
        raise ValueError(f"tensor {meta!r} is on the meta device; give the model its values before offload(), which copies those of the first replica")
    return [(name, _local(tensor.detach())) for name, tensor in found]


def _local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def digest(model: torch.nn.Module) -> str:
    """Returns a text that is equal on ranks whose parameters have equal names, shapes and types."""
    described = [(name, tuple(parameter.shape), str(parameter.dtype), parameter.requires_grad) for name, parameter in model.named_parameters()]
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]


def wire_of(group: dist.ProcessGroup, device: torch.device) -> Optional[str]:
    """Returns the wire type of a group of the backend "sluice", or None if another backend runs its collectives of tensors on the device."""
    from ..process_group import SluiceGroup

    if not isinstance(group, SluiceGroup) or not group.serves(device):
        return None
    session = group.session()  # that for a GPU has the same wire type
    return "" if session is None else session.wire_dtype
