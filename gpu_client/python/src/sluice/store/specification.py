"""Makes the specification of a model, a dict like the JSON that sluice_store_create() takes: its name, its tensors, and the rules of its
steps. The reducers check the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..buffers import Buffer, view

# Element types in specifications, by those of arrays.
TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def sync(quorum: int, grace_ms: int = 0) -> dict[str, Any]:
    """Returns the mode in which a step averages the pushes of at least `quorum` workers that are based on the current version.

    After the quorum it waits `grace_ms` for others. Later pushes are late and do not count."""
    return {"kind": "sync", "quorum": quorum, "grace_ms": grace_ms}


def asynchronous() -> dict[str, Any]:
    """Returns the mode in which each push is a step."""
    return {"kind": "async"}


def bounded(staleness: int, stale: str = "refuse") -> dict[str, Any]:
    """Returns the mode in which each push is a step, unless its base is s > `staleness` versions old.

    stale: "refuse": such a push does not count; "scale": it counts multiplied by (staleness + 1) / (s + 1)."""
    return {"kind": "bounded", "staleness": staleness, "stale": stale}


def add() -> dict[str, Any]:
    """Returns the rule that adds the mean delta to the parameters."""
    return {"kind": "add"}


def sgd(learning_rate: float) -> dict[str, Any]:
    """Returns the rule of torch.optim.SGD(lr). Deltas are gradients."""
    return {"kind": "sgd", "learning_rate": float(learning_rate)}


def nesterov(learning_rate: float, momentum: float) -> dict[str, Any]:
    """Returns the rule of torch.optim.SGD(lr, momentum=momentum, nesterov=True). Deltas are gradients, or old - new parameters."""
    return {"kind": "nesterov", "learning_rate": float(learning_rate), "momentum": float(momentum)}


def adamw(learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01) -> dict[str, Any]:
    """Returns the rule of torch.optim.AdamW. Deltas are gradients."""
    return {"kind": "adamw", "learning_rate": float(learning_rate), "beta1": float(beta1), "beta2": float(beta2), "epsilon": float(epsilon),
            "weight_decay": float(weight_decay)}


def specification(name: str, tensors: Mapping[str, Any], *, mode: Mapping[str, Any], rule: Mapping[str, Any], versions: int = 2) -> dict[str, Any]:
    """Returns the specification of a model with tensors of the names, shapes and types of these arrays, in their order.

    mode: of sync(), asynchronous() or bounded(). rule: of add(), sgd(), nesterov() or adamw(). versions: how many of the last versions the
    reducers keep, so that a pull that has begun can end beside newer steps."""
    listed = []
    for key, array in tensors.items():
        buffer = host_view(array, key)
        listed.append({"name": key, "dtype": TYPES[buffer.dtype], "shape": list(buffer.shape)})
    return {"name": name, "versions": versions, "mode": dict(mode), "rule": dict(rule), "tensors": listed}


def host_view(array: Any, name: str) -> Buffer:
    """Returns the memory of `array`. Raises TypeError or ValueError for one that no tensor of a model can be copied from."""
    buffer = view(array, f"tensor {name!r}")
    if buffer.dtype not in TYPES:
        raise TypeError(f"tensor {name!r} is {buffer.dtype}; expected {', '.join(TYPES)}")
    if buffer.device is not None:
        raise ValueError(f"tensor {name!r} is on cuda:{buffer.device}; copy it to host memory")
    return buffer
