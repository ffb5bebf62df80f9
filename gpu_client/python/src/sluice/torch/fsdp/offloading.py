"""offload() and its handle, class Offload."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.distributed.device_mesh import DeviceMesh

from ..._library import WIRE_DTYPES
from ...request import Request
from ...residuals import Residuals, is_on
from ...session import Session
from ..device import STREAMED, Device
from ..offload import movable
from ..options import Options, inherit, reduces_in_host
from ..process_group import SluiceGroup
from ..timeouts import limit
from .channel import Channel
from .comms import GradientScatter, ParameterGather, ReplicaAverage
from .doors import Layout, ShardedModule, check_free, digest, local_states, sharded_modules, wire_of
from .sessions import open_channels

Replicas = Union[dist.ProcessGroup, DeviceMesh, Literal["none"], None]

_OURS = (GradientScatter, ParameterGather, ReplicaAverage)


class Offload:
    """What offload() has set up. Close it, or let the interpreter do so at its exit.

    Any thread may use it, but close() must not run while the model trains."""

    def __init__(self, channels: list[Channel], groups: list[SluiceGroup], device: torch.device) -> None:
        """For offload() only. groups: whose sessions for the device the model uses too, and which others own."""
        self._channels = channels
        self._groups = groups
        self._device = device

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of the model, for their counters: for each set of ranks one for gradients and, with full sharding, one for parameters.

        That of a replicate dimension on GPUs is opened at the first backward pass."""
        found = [channel.session for channel in self._channels]
        return tuple(found + [session for group in self._groups if (session := group.session(self._device)) is not None])

    def error(self) -> Optional[Exception]:
        """Returns the error with which a session ended, or None. Ask it before a checkpoint: GPU streams go on after a failure."""
        errors = [channel.error() for channel in self._channels] + [group.error() for group in self._groups]
        return next((error for error in errors if error is not None), None)

    def close(self) -> None:
        """Leaves the sessions. A later training step of the model raises DistBackendError; offload() may be called again."""
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Offload:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


def offload(model: torch.nn.Module, wire: str = "bf16", *, replicas: Replicas = None, options: Optional[Options] = None,
            reduce_in_host: Optional[bool] = None, timeout: timedelta = default_pg_timeout) -> Offload:
    """Lets an FSDP2 model send its gradients through reducers, and where it is fully sharded gather its parameters there.

    Call it once after the last fully_shard(), outside forward and backward, on all ranks of the model's mesh: it is
    collective. The training loop stays as it is. The model keeps the sessions, until close() of the result or the end of
    the process.

    wire: the type in which float32 gradients travel, "f32", "bf16", "f16", "mxfp8" or "int8". They are added in float32.
        Gradients of other types (MixedPrecisionPolicy.reduce_dtype) travel as they are.
    replicas: for a model that each host shards by itself, fully_shard(model, mesh=mesh["shard"]): the ranks that hold
        copies of this rank's shards, mesh["replicate"] or its group. Gradients are averaged over them, and the parameters
        and buffers of the first copy overwrite the others. None: the mesh has all ranks of the job, or a replicate
        dimension, whose backend must be "sluice" with this wire type. "none": the mesh has some of the ranks, and the
        others hold other parameters, such as stages of a pipeline.
    options: credentials, wire_min_count, error_feedback and on_finding, as of a process group. error_feedback=None: with
        8-bit types, but not with full sharding, where it takes 4 bytes for each parameter of the model on each rank. Over a
        replicate dimension there is none, because torch reduces there in memory that tells no module.
    reduce_in_host: with full sharding, whether the ranks of a host reduce and gather among themselves in a group of torch,
        such as NCCL's, so that a host sends its gradients once and not once for each rank. None: that of `options`, then
        SLUICE_REDUCE_IN_HOST (0 or 1), otherwise with tensors on GPUs. Without effect if hosts have one rank each, or different numbers.
    timeout: of the join, and of each operation.

    Raises TypeError or ValueError for an argument or a model that cannot be served, on all ranks alike if they pass equal
    arguments; sluice.Unsupported for a release of torch without FSDP2's interfaces; DistBackendError if a session cannot be
    opened. Later, forward and backward raise DistBackendError with the session's reason, such as a lost rank."""
    options = _options(wire, options)
    limit(timeout)  # raises
    group_of_copies = _group_of(replicas)
    found = sharded_modules(model, group_of_copies is not None)
    for each in found:
        if each.layout is not Layout.REPLICATED:
            check_free(each, _OURS)
    tensors_on = found[0].param_group.device
    device = _device_of(tensors_on)
    if group_of_copies is not None:
        return Offload(_average_copies(model, found, group_of_copies, options, device, timeout), [], tensors_on)
    groups = list(filter(None, dict.fromkeys(_check_backend(each, wire, tensors_on) for each in found if each.layout is Layout.REPLICATED)))
    for group in groups:
        group.end_error_feedback()
    sharded = [each for each in found if each.layout is Layout.SHARDED]
    for each in sharded:
        if replicas is None and each.group.size() < dist.get_world_size():
            raise ValueError(f"{each.name} is sharded over {each.group.size()} of {dist.get_world_size()} ranks: if the others hold copies of the shards, "
                             "pass replicas=mesh[\"replicate\"]; if they hold other parameters, replicas=\"none\"")
    wanted = reduces_in_host(options.reduce_in_host if reduce_in_host is None else reduce_in_host)
    stage_device = tensors_on if (device is not None if wanted is None else wanted) else None
    return Offload(_scatter_and_gather(sharded, digest(model), options, device, timeout, stage_device), groups, tensors_on)


def _options(wire: str, options: Optional[Options]) -> Options:
    if wire not in WIRE_DTYPES:
        raise ValueError(f"wire is {wire!r}; expected one of {', '.join(map(repr, WIRE_DTYPES))}")
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"options is a {type(options).__name__}; expected sluice.torch.Options")
    if options is not None and options.wire_dtype not in (None, wire):
        raise ValueError(f"options.wire_dtype is {options.wire_dtype!r}, but wire is {wire!r}")
    if not dist.is_initialized():
        raise ValueError("torch.distributed has no default process group; call init_process_group() first")
    options = replace(options or Options(), wire_dtype=wire)
    default = dist.GroupMember.WORLD
    return inherit(options, default.group_options) if isinstance(default, SluiceGroup) else options


def _device_of(device: torch.device) -> Optional[Device]:
    """None: host memory without streams. Raises ValueError for a device that sessions do not know."""
    if device.type in STREAMED:
        return STREAMED[device.type](device)
    if device.type != "cpu":
        raise ValueError(f"the model's mesh is of device {device.type!r}; expected cpu or cuda")
    return None


def _group_of(replicas: Replicas) -> Optional[dist.ProcessGroup]:
    if replicas is None or (isinstance(replicas, str) and replicas == "none"):
        return None
    if isinstance(replicas, DeviceMesh):
        if replicas.ndim != 1:
            raise ValueError(f"replicas is a mesh of {replicas.ndim} dimensions; expected one, such as mesh[\"replicate\"]")
        return replicas.get_group()
    if not isinstance(replicas, dist.ProcessGroup):
        raise TypeError(f"replicas is {replicas!r}; expected a process group or DeviceMesh of which this rank is a member, \"none\" or None")
    return replicas


def _check_backend(found: ShardedModule, wire: str, device: torch.device) -> Optional[SluiceGroup]:
    """Returns the group in which torch reduces over the replicas; None for a single replica. Raises ValueError if it is not one of this wire type."""
    group = found.group
    present = wire_of(group, device)
    if group.size() == 1 or present == wire:
        return group if isinstance(group, SluiceGroup) else None
    has = f"travels as {present}" if present else f"has the backend {dist.get_backend(group)!r}"
    raise ValueError(f"{found.name} has a replicate dimension, over which torch reduces, and which {has}; make the mesh with init_device_mesh(..., "
                     f"backend_override={{\"replicate\": (\"sluice\", sluice.torch.Options(wire_dtype={wire!r}))}}), or call fully_shard(model, "
                     "mesh=mesh[\"shard\"]) and offload(model, replicas=mesh[\"replicate\"])")


def _scatter_and_gather(sharded: list[ShardedModule], parameters: str, options: Options, device: Optional[Device], timeout: timedelta,
                        stage_device: Optional[torch.device]) -> list[Channel]:
    """Opens two sessions for each set of ranks, and sets the collectives of the modules."""
    opened: dict[tuple[int, ...], list[Channel]] = {}
    wire = options.wire_dtype or "f32"
    residuals = Residuals(len(sharded)) if options.error_feedback and is_on(True, wire) else None
    arguments = {"wire": wire, "parameters": parameters, "reduce_in_host": stage_device is not None}
    groups = {tuple(dist.get_process_group_ranks(each.group)): each.group for each in sharded if each.group.size() > 1}  # FSDP calls nothing for one rank
    try:
        for ranks, group in groups.items():
            opened[ranks] = open_channels(group, arguments, [wire, "f32"], options, device, timeout, stage_device)
    except Exception:
        for channel in (channel for channels in opened.values() for channel in channels):
            channel.close()
        raise
    for each in sharded:
        if channels := opened.get(tuple(dist.get_process_group_ranks(each.group))):
            scatters, gathers = channels
            if residuals is not None:
                scatters.session._call_at_close(residuals.clear)  # the model keeps what uses them
            each.module.set_custom_reduce_scatter(GradientScatter(scatters, each.name, residuals))
            each.module.set_custom_all_gather(ParameterGather(gathers, each.name))
    return [channel for channels in opened.values() for channel in channels]


def _average_copies(model: torch.nn.Module, copied: list[ShardedModule], group: dist.ProcessGroup, options: Options, device: Optional[Device],
                    timeout: timedelta) -> list[Channel]:
    """Opens the session of the replicas, makes the copies equal, and sets the hooks of the modules."""
    if group.size() == 1:
        return []
    shards = copied[0].group
    if other := next((each for each in copied if dist.get_process_group_ranks(each.group) != dist.get_process_group_ranks(shards)), None):
        raise ValueError(f"{other.name} is sharded over other ranks than {copied[0].name}; replicas= needs one mesh for all modules")
    wire = options.wire_dtype
    for each in copied:
        each.module.reshard()
    states = local_states(model)
    arguments = {"wire": wire, "parameters": digest(model), "number of shards": shards.size(), "place among the shards": shards.rank()}
    channel, = open_channels(group, arguments, [wire], options, device, timeout)
    _broadcast(channel, [tensor for _, tensor in states if tensor.numel() > 0])
    residuals = Residuals(len(copied)) if is_on(options.error_feedback, channel.session.wire_dtype) else None
    if residuals is not None:
        channel.session._call_at_close(residuals.clear)
    stream = torch.cpu.Stream() if device is None else device.new_stream()  # the former has no effect
    for each in copied:
        each.module.set_all_reduce_hook(ReplicaAverage(channel, each.name, residuals, each.has_factor), stream=stream)
    return [channel]


def _broadcast(channel: Channel, tensors: list[torch.Tensor]) -> None:
    contiguous = [tensor.contiguous() for tensor in tensors]
    for buffer in contiguous:
        def begin(stream: Any, buffer: torch.Tensor = buffer) -> Request:
            return channel.session.broadcast_async(movable(buffer), root=0, stream=stream, name="the first parameters")

        channel.run(begin, (buffer,))
    for tensor, buffer in zip(tensors, contiguous):
        if tensor.data_ptr() != buffer.data_ptr():
            tensor.copy_(buffer)
