"""FSDP2 and HSDP with gradients through reducers: sums in float32, 16 or 8 bits on the wire.

    model = ...                       # after fully_shard()
    sluice.torch.fsdp.offload(model, wire="bf16")

The training stays as it is. docs/guides/pytorch.md describes meshes, costs and errors."""

from __future__ import annotations

from .offloading import Offload, offload

__all__ = ["Offload", "offload"]
