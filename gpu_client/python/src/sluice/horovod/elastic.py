"""What maps of horovod.torch.elastic: states that ranks commit, restore and synchronize.

The number of ranks does not change within a process: when a rank is lost, run() restores the last commit and raises the
error of the session, and the launcher starts the ranks again, such as torchrun --max-restarts. A commit is in memory; keep
checkpoints for the new processes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, Optional

import torch

from ..errors import Error
from .collectives import broadcast_object
from .optimizer import broadcast_optimizer_state, broadcast_parameters

__all__ = ["ObjectState", "State", "TorchState", "run"]


class ObjectState:
    """Keeps the keyword arguments as attributes, and copies of them as of the last save()."""

    def __init__(self, **values: Any) -> None:
        self._names = list(values)
        self._saved: dict[str, Any] = {}
        self.__dict__.update(values)
        self.save()

    def save(self) -> None:
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def restore(self) -> None:
        self.__dict__.update(copy.deepcopy(self._saved))

    def commit(self) -> None:
        self.save()

    def sync(self) -> None:
        """Gives all ranks the values of rank 0. Collective."""
        values = broadcast_object({name: getattr(self, name) for name in self._names})
        self.__dict__.update(values)
        self.save()

    def check_host_updates(self) -> None:
        """Has no effect: hosts do not join a running job."""

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Has no effect: a job is not reset within a process."""


State = ObjectState


class TorchState(ObjectState):
    """Also keeps the model and the optimizer."""

    def __init__(self, model: Optional[torch.nn.Module] = None, optimizer: Optional[torch.optim.Optimizer] = None, **values: Any) -> None:
        self.model, self.optimizer = model, optimizer
        super().__init__(**values)

    def save(self) -> None:
        super().save()
        self._states = [copy.deepcopy(each.state_dict()) for each in (self.model, self.optimizer) if each is not None]

    def restore(self) -> None:
        super().restore()
        for each, state in zip((each for each in (self.model, self.optimizer) if each is not None), self._states):
            each.load_state_dict(copy.deepcopy(state))

    def sync(self) -> None:
        if self.model is not None:
            broadcast_parameters(self.model.state_dict())
        if self.optimizer is not None:
            broadcast_optimizer_state(self.optimizer)
        super().sync()


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates function(state, ...): synchronizes the state, calls the function, and restores the last commit if the session fails."""
    @functools.wraps(function)
    def restoring(state: ObjectState, *arguments: Any, **options: Any) -> Any:
        state.sync()
        try:
            return function(state, *arguments, **options)
        except Error:
            state.restore()
            raise

    return restoring


def __getattr__(name: str) -> Any:
    if name == "ElasticSampler":
        raise AttributeError("sluice.horovod.elastic has no ElasticSampler: the number of ranks does not change within a process; use "
                             "torch.utils.data.DistributedSampler")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
