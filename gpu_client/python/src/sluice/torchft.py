"""Class ProcessGroupSluice: the process group of torchft for jobs that lose and gain ranks. Needs torchft.

    manager = torchft.Manager(pg=sluice.torchft.ProcessGroupSluice(timeout=timedelta(seconds=10)), ...)"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

from .errors import Unsupported
from .torch.options import Options
from .torch.process_group import SluiceGroup
from .torch.timeouts import limit

try:
    from torchft.process_group import ProcessGroupWrapper
except ImportError as error:
    raise Unsupported(f"sluice.torchft needs torchft 0.2 or later; install it with pip install torchft: {error}") from error

__all__ = ["ProcessGroupSluice"]


class _ReportingWork(torch._C._distributed_c10d.Work):  # type: ignore[misc]
    def __init__(self, work: dist.Work) -> None:
        super().__init__()
        self._work = work

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        try:
            return bool(self._work.wait(timeout))
        except RuntimeError:  # the superclass of torch's exceptions
            return False

    def get_future(self) -> torch.futures.Future[Any]:
        return self._work.get_future()

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def synchronize(self) -> None:
        self.wait()


class ProcessGroupSluice(ProcessGroupWrapper):  # type: ignore[misc]
    """Reduces through the reducers of SLUICE_REDUCERS, or between the ranks themselves where there are none.

    Each configure() aborts the session of the old ranks, so that Work in progress fails at once, and opens one for the new
    ranks. The reducers stay. `timeout` limits the join and each operation. `options`: those of each such group."""

    _pg: Optional[SluiceGroup]  # None until configure()
    _aborted: Optional[Exception] = None

    def __init__(self, timeout: timedelta = timedelta(seconds=60), pg: Optional[SluiceGroup] = None, *, options: Optional[Options] = None) -> None:
        super().__init__(limit(timeout), pg)
        self._options = options

    def getBackendName(self) -> str:
        return "torchft-sluice"

    def configure(self, *arguments: Any, **options: Any) -> None:
        """Collective over the new ranks. Raises DistBackendError if their session cannot be opened."""
        super().configure(*arguments, **options)
        self._aborted = None

    def abort(self, errored: bool = True) -> None:
        super().abort(errored)
        if errored:
            self._aborted = RuntimeError("the process group was aborted; configure it again")

    def shutdown(self) -> None:
        """Leaves the session in order. May be called again."""
        group, self._pg = self._pg, None
        if group is not None:
            group.shutdown()

    def errored(self) -> Optional[Exception]:
        """Returns the error that makes a new configure() necessary, or None."""
        return self._aborted if self._pg is None else self._pg.error()

    def set_timeout(self, timeout: Any) -> None:
        super().set_timeout(limit(timeout))
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def allreduce(self, tensors: Any, opts: Any) -> dist.Work:
        """Returns Work whose wait() returns False after an error, which get_future() raises.

        torchft's DistributedDataParallel takes the error from the future, and fails if wait() raises it. errored() returns
        it, too, so that the manager discards the step."""
        return _ReportingWork(super().allreduce(tensors, opts))

    def _create_pg(self, store: Any, rank: int, world_size: int) -> SluiceGroup:
        return SluiceGroup(store, rank, world_size, self._timeout, self._options)
