"""Training of workers that need not keep step, through a model that the reducers keep: DiLoCo and AsyncSGD.

    with sluice.store.Store() as store:
        outer = sluice.torch.outer.DiLoCo(network, store, name="run-7", every=50, quorum=4)
        for batch in batches:
            loss(network, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            outer.step()

The model has the parameters that require gradients, of float32, float16 or bfloat16, on any device; in the store they are f32. Buffers,
such as BatchNorm's statistics, are not exchanged: they stay those of the worker. Under DistributedDataParallel pass its `module`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch

from ..errors import Error
from ..options import seconds
from ..store import Pushed, Store, asynchronous, bounded, nesterov, sgd, sync
from ..store.model import wire_dtype_number
from .parameters import HostCopy, check_finite, trained_parameters
from .publishing import Publisher, Subscriber

__all__ = ["AsyncSGD", "DiLoCo", "Publisher", "Subscriber"]


class _Worker:
    """Parameters that equal those of a version whenever a round of steps begins."""

    def __init__(self, module: torch.nn.Module, store: Store, *, every: int, name: str, mode: Mapping[str, Any], rule: Mapping[str, Any],
                 weight: float, wire_dtype: str, timeout: Optional[float]) -> None:
        if every < 1:
            raise ValueError(f"every is {every}; expected 1 or more")
        wire_dtype_number(wire_dtype)  # raises
        self.every = every
        self.steps = 0  # of this worker since the last push
        self.version = 0  # that this worker's parameters started from
        self.outcomes = {"contained": 0, "late": 0, "stale": 0}  # the number of this worker's pushes for each outcome
        self._parameters = trained_parameters(module)
        self._current = HostCopy(self._parameters).read()
        self._weight, self._wire_dtype, self._timeout = weight, wire_dtype, None if timeout is None else seconds(timeout)
        self._unanswered: Optional[Mapping[str, torch.Tensor]] = None  # deltas of a push that raised
        self._is_loaded = False  # otherwise `_current` may have parts of two versions
        self._is_interrupted = False  # a push has raised, and must be repeated
        self.model = store.create(name, self._current.values, mode=mode, rule=rule)
        self.load()

    def load(self, min_version: int = 0) -> int:
        """Overwrites the parameters with the current version, and returns it. Waits until it is at least `min_version`.

        What the worker has done since the last push is lost."""
        self._is_loaded = self._is_interrupted = False
        version = self.model.pull(self._current.values, min_version=min_version, timeout=self._timeout).version
        if version != self.version:
            self._unanswered = None
        self._begin_round(version)
        return version

    def step(self) -> Optional[Pushed]:
        """Call it after each step of the worker. Returns what became of the push, if this step made one."""
        self.steps += 1
        return self.sync() if self.steps >= self.every else None

    def sync(self) -> Pushed:
        """Pushes what the worker has done since the last push, and loads the current version, whether the push counts or not.

        After sluice.Timeout or sluice.Lost call it again: it repeats what was interrupted, and the push counts once. After Ctrl-C it only loads.
        Raises ValueError for changes that are not finite, which would spoil the model for all workers; load() goes on without them."""
        if not self._is_loaded and not self._is_interrupted:
            return Pushed("late", self.load())  # a load() before this call has failed
        if self._unanswered is None:
            delta = self._delta()
            check_finite(delta, self._wire_dtype)
            self._unanswered = delta
        self._is_loaded, self._is_interrupted = False, True
        try:
            outcome, version, _ = self.model.push_pull(self._unanswered, self.version, self._weight, self._current.values, wire_dtype=self._wire_dtype,
                                                       timeout=self._timeout)
            self._unanswered, self._is_interrupted = None, False
        except Error:
            raise
        except BaseException:  # of a signal handler, as Ctrl-C: whether the push counts is unknown, and it must not count twice
            self._unanswered, self._is_interrupted = None, False
            raise
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self._begin_round(version)
        return Pushed(outcome, version)

    def close(self) -> None:
        """Closes the model. The store does so, too."""
        self.model.close()

    def _begin_round(self, version: int) -> None:
        self._current.write()
        self.version, self.steps = version, 0
        self._is_loaded = True

    def _delta(self) -> Mapping[str, torch.Tensor]:
        raise NotImplementedError


class DiLoCo(_Worker):
    """Outer steps of DiLoCo (arXiv:2311.08105): each worker trains alone for `every` steps, and the mean of the workers' changes is the gradient of
    a Nesterov step of the reducers."""

    def __init__(self, module: torch.nn.Module, store: Store, *, every: int, name: str, quorum: int, grace_ms: int = 0, outer_learning_rate: float = 0.7,
                 outer_momentum: float = 0.9, weight: float = 1.0, wire_dtype: str = "f32", timeout: Optional[float] = None) -> None:
        """Creates the model with the parameters of `module`, or opens it if another worker or an earlier run has, and loads its current version.

        every: steps of this worker between two outer steps. quorum: workers whose pushes make an outer step; `grace_ms` later it is made without
        those that are missing, whose pushes are then late. weight: of this worker in the mean, for example its batch size. wire_dtype: of pushes, as
        in Model.push(). timeout: seconds that a push or pull may take, which includes the wait for other workers; None: that of the store.

        The state of the worker's own optimizer stays as it is when a version is loaded."""
        super().__init__(module, store, every=every, name=name, mode=sync(quorum, grace_ms), rule=nesterov(outer_learning_rate, outer_momentum),
                         weight=weight, wire_dtype=wire_dtype, timeout=timeout)

    def _delta(self) -> Mapping[str, torch.Tensor]:
        with torch.no_grad():
            # A parameter of 16 bits started from its version rounded to 16 bits.
            return {name: old.to(self._parameters[name].dtype).float() - self._parameters[name].to("cpu", torch.float32)
                    for name, old in self._current.values.items()}


class AsyncSGD(_Worker):
    """Steps of the reducers with the gradients of workers that do not wait for each other. It replaces the worker's optimizer.

        loss(network, batch).backward()
        outer.step()  # adds the gradients up, and every `every` steps pushes their mean and loads the current version

    A worker's parameters change only when it loads a version."""

    def __init__(self, module: torch.nn.Module, store: Store, *, name: str, learning_rate: float = 0.01, every: int = 1, staleness: Optional[int] = None,
                 stale: str = "refuse", rule: Optional[Mapping[str, Any]] = None, weight: float = 1.0, wire_dtype: str = "f32",
                 timeout: Optional[float] = None) -> None:
        """Creates the model, or opens it, and loads its current version.

        every: steps of this worker whose mean gradient is one push. staleness, stale: as in sluice.store.bounded(); None: pushes of any age
        count. rule: how a step uses the gradient; None: sgd(learning_rate). weight: that of this worker's pushes has no effect where each push is a
        step. wire_dtype, timeout: as in DiLoCo."""
        # Before the base class, whose constructor calls load().
        self._gradients = HostCopy(trained_parameters(module))
        mode = asynchronous() if staleness is None else bounded(staleness, stale)
        super().__init__(module, store, every=every, name=name, mode=mode, rule=sgd(learning_rate) if rule is None else rule, weight=weight,
                         wire_dtype=wire_dtype, timeout=timeout)

    def step(self) -> Optional[Pushed]:
        """Call it after each backward pass. Sets the gradients to None. Returns what became of the push, if this step made one."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if parameter.grad is not None:
                    self._gradients.values[name] += parameter.grad.to("cpu", torch.float32)
                    parameter.grad = None
        return super().step()

    def _begin_round(self, version: int) -> None:
        self._gradients.set_zero()
        super()._begin_round(version)

    def _delta(self) -> Mapping[str, torch.Tensor]:
        return {name: gradient / max(1, self.steps) for name, gradient in self._gradients.values.items()}
