"""Models: parameters that reducers started with --state keep, and that workers push to and pull from (docs/guides/models.md).

    with sluice.store.Store("node1:7470,node2:7470") as store:
        model = store.create("digits", parameters, mode=sluice.store.sync(quorum=4), rule=sluice.store.nesterov(0.7, 0.9))
        version, values = model.pull()
        model.push(delta, base=version)

Arrays are those of NumPy, torch or others with the same interfaces, in host memory. sluice.torch.outer trains with models."""

from __future__ import annotations

from .model import Model, Pulled, Pushed, PushPulled
from .pool import Store
from .specification import adamw, add, asynchronous, bounded, nesterov, sgd, specification, sync

__all__ = ["Model", "Pulled", "PushPulled", "Pushed", "Store", "adamw", "add", "asynchronous", "bounded", "nesterov", "sgd", "specification", "sync"]
