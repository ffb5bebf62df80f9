"""Classes ReferencedWork and GlooBackedGroup hide what differs between the releases of torch, from 2.4 on."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_IS_OLD = not hasattr(dist.ProcessGroup, "shutdown")  # torch 2.4 and 2.6
_NEVER_SENT = (1 << 31) - 1  # a tag of gloo


class ReferencedWork(torch._C._distributed_c10d.Work):  # type: ignore[misc]
    """A Work in Python that C++ may call, for example DistributedDataParallel.

    C++ of old releases owns only the C++ part of the object. Without another reference its wait() would be that of the base
    class, which never ends. So each Work is kept until its first use. One that is never used is kept for good."""

    _unused: set[ReferencedWork] = set()

    def __init__(self) -> None:
        super().__init__()
        if _IS_OLD:
            self._unused.add(self)

    def _is_used(self) -> None:
        self._unused.discard(self)


class GlooBackedGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group whose inherited collectives run in gloo, the attribute `_gloo`."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, **options: Any) -> None:
        """Collective. `options`: of ProcessGroupGloo."""
        if hasattr(dist.ProcessGroup, "_set_default_backend"):
            super().__init__(rank, size)
            self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        else:  # torch 2.4
            super().__init__(store, rank, size, dist.ProcessGroup.Options("gloo", timeout))
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout, **options)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)

    def set_timeout(self, timeout: timedelta) -> None:
        if _IS_OLD:
            self._gloo._set_default_timeout(timeout)
        else:
            self._gloo.set_timeout(timeout)

    # gloo closes its connections when it is dropped. Its shutdown() and abort() have no effect, also in torch 2.15.

    def _abort_gloo(self) -> None:
        """Ends gloo's work in progress on this rank and on the others: a wait that times out closes all connections of a group."""
        if self.size() > 1:
            with suppress(RuntimeError):
                self._gloo.recv([torch.empty(1)], (self.rank() + 1) % self.size(), _NEVER_SENT).wait(timedelta(milliseconds=1))

    if _IS_OLD:
        # destroy_process_group only drops the group.
        def __del__(self) -> None:
            self.shutdown()
