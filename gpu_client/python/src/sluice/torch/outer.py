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

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Optional, TypeVar

import torch

from ..store import Model, Pushed, Store, asynchronous, bounded, nesterov, sgd, sync
from ..store.model import wire_dtype_number
from .parameters import HostCopy, trained_parameters
from .publishing import Publisher, Subscriber

__all__ = ["AsyncSGD", "DiLoCo", "Publisher", "Subscriber"]

_T = TypeVar("_T")


class _Part:
    """Parameters in a model of their own, which equal those of a version whenever a round of steps begins. One thread at a time."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], create: Callable[[Mapping[str, torch.Tensor]], Model], weight: float, wire_dtype: str,
                 timeout: Optional[float]) -> None:
        self.parameters = parameters
        self.current = HostCopy(parameters).read()
        self.outcomes = {"contained": 0, "late": 0, "stale": 0}
        self._weight, self._wire_dtype, self._timeout = weight, wire_dtype, timeout
        self._unanswered: Optional[Mapping[str, torch.Tensor]] = None  # deltas of a push that raised
        self._answer: Optional[Pushed] = None  # of a push since which no version was loaded
        self._is_loaded = False  # otherwise `current` may have parts of two versions
        self._is_written = True
        self.model = create(self.current.values)
        self.version = 0  # that the parameters started from
        self.done: Optional[Pushed] = None  # what sync() has returned in this round

    def read_delta(self, delta: Callable[[_Part], Mapping[str, torch.Tensor]]) -> None:
        """Computes what sync() pushes, unless it repeats a push. Call it, and write(), where the parameters are used: on the same CUDA stream."""
        if self.done is None and self._answer is None and self._unanswered is None and self._is_loaded:
            self._unanswered = delta(self)

    def sync(self) -> Pushed:
        if self.done is not None:
            return self.done
        if self._answer is None and self._is_loaded:
            assert self._unanswered is not None
            self._answer = self.model.push(self._unanswered, self.version, self._weight, wire_dtype=self._wire_dtype, timeout=self._timeout)
            self.outcomes[self._answer.outcome] = self.outcomes.get(self._answer.outcome, 0) + 1
        answer = self._answer
        self.load(0 if answer is None else answer.version)
        self.done = Pushed("late", self.version) if answer is None else answer  # late: a load() before this call has failed
        return self.done

    def load(self, min_version: int = 0) -> None:
        self._is_loaded = False
        version = self.model.pull(self.current.values, min_version=min_version, timeout=self._timeout).version
        if version != self.version or self._answer is not None:
            self._unanswered = None
        self.version, self._answer, self._is_loaded, self._is_written = version, None, True, False

    def write(self) -> None:
        """Copies a version that was loaded to the parameters."""
        if not self._is_written:
            self.current.write()
            self._is_written = True


class _Worker:
    """Parameters that equal those of a version whenever a round of steps begins."""

    def __init__(self, module: torch.nn.Module, store: Store, *, every: int, name: str, mode: Mapping[str, Any], rule: Mapping[str, Any],
                 weight: float, wire_dtype: str, timeout: Optional[float], fragments: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every is {every}; expected 1 or more")
        if fragments < 1:
            raise ValueError(f"fragments is {fragments}; expected 1 or more")
        wire_dtype_number(wire_dtype)  # raises
        self.every = every
        self.steps = 0  # of this worker since the last push
        self._parts = []
        for number, parameters in enumerate(_split(trained_parameters(module), fragments)):
            def create(values: Mapping[str, torch.Tensor], number: int = number) -> Model:
                return store.create(name if number == 0 else f"{name}.{number}", values, mode=mode, rule=rule)

            self._parts.append(_Part(parameters, create, weight, wire_dtype, timeout))
        self._threads = ThreadPoolExecutor(len(self._parts), "sluice-outer") if len(self._parts) > 1 else None
        self._calls: list[Future[Any]] = []  # the last of _for_parts()
        self.load()

    @property
    def models(self) -> list[Model]:
        """Those that have the parameters."""
        return [part.model for part in self._parts]

    @property
    def version(self) -> int:
        """That this worker's parameters started from; of several models, the lowest."""
        return min(part.version for part in self._parts)

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of this worker's pushes to all models, for each outcome."""
        return {outcome: sum(part.outcomes.get(outcome, 0) for part in self._parts) for outcome in self._parts[0].outcomes}

    def load(self, min_version: int = 0) -> int:
        """Overwrites the parameters with the current version, and returns it. Waits until it is at least `min_version`.

        What the worker has done since the last push is lost."""
        wait(self._calls)  # KeyboardInterrupt may have left some
        self._for_parts(lambda part: part.load(min_version))
        self._begin_round()
        return self.version

    def step(self) -> Optional[Pushed]:
        """Call it after each step of the worker. Returns what became of the push, if this step made one."""
        self.steps += 1
        return self.sync() if self.steps >= self.every else None

    def sync(self) -> Pushed:
        """Pushes what the worker has done since the last push, and loads the current version, whether the push counts or not. Of several models,
        returns the first whose push does not count, if there is one.

        After sluice.Timeout or sluice.Lost call it again: it repeats what was interrupted, and the push counts once."""
        wait(self._calls)
        for part in self._parts:
            part.read_delta(self._delta)
        pushed = self._for_parts(_Part.sync)
        self._begin_round()
        return next((each for each in pushed if each.outcome != "contained"), pushed[0])

    def close(self) -> None:
        """Closes the models. The store does so, too."""
        for part in self._parts:
            part.model.close()
        if self._threads is not None:
            self._threads.shutdown()

    def _for_parts(self, call: Callable[[_Part], _T]) -> list[_T]:
        """Calls a function with all parts at once, and waits for all. Raises the exception of the first part that has one."""
        try:
            if self._threads is None:
                return [call(self._parts[0])]
            calls = [self._threads.submit(call, part) for part in self._parts]
            self._calls = list(calls)
            wait(calls)
            return [each.result() for each in calls]
        finally:
            for part in self._parts:
                part.write()

    def _begin_round(self) -> None:
        self.steps = 0
        for part in self._parts:
            part.done = None

    def _delta(self, part: _Part) -> Mapping[str, torch.Tensor]:
        raise NotImplementedError


def _split(parameters: dict[str, torch.Tensor], count: int) -> list[dict[str, torch.Tensor]]:
    """Returns at most `count` groups of neighboring parameters, of about the same number of elements."""
    total, before = max(1, sum(parameter.numel() for parameter in parameters.values())), 0
    groups: dict[int, dict[str, torch.Tensor]] = {}
    for name, parameter in parameters.items():
        groups.setdefault((2 * before + parameter.numel()) * count // (2 * total), {})[name] = parameter
        before += parameter.numel()
    return list(groups.values())


class DiLoCo(_Worker):
    """Outer steps of DiLoCo (arXiv:2311.08105): each worker trains alone for `every` steps, and the mean of the workers' changes is the gradient of
    a Nesterov step of the reducers."""

    def __init__(self, module: torch.nn.Module, store: Store, *, every: int, name: str, quorum: int, grace_ms: int = 0, outer_learning_rate: float = 0.7,
                 outer_momentum: float = 0.9, weight: float = 1.0, wire_dtype: str = "f32", timeout: Optional[float] = None,
                 fragments: int = 1) -> None:
        """Creates the model with the parameters of `module`, or opens it if another worker or an earlier run has, and loads its current version.

        every: steps of this worker between two outer steps. quorum: workers whose pushes make an outer step; `grace_ms` later it is made without
        those that are missing, whose pushes are then late. weight: of this worker in the mean, for example its batch size. wire_dtype: of pushes, as
        in Model.push(). timeout: seconds that a push or pull may take, which includes the wait for other workers; None: that of the store.

        fragments: models that share the parameters, `name`, `name`.1 and so on, the same for all workers. While some are pushed, others are pulled,
        so that an outer step takes less time; a reader may see them at different versions.

        The state of the worker's own optimizer stays as it is when a version is loaded."""
        super().__init__(module, store, every=every, name=name, mode=sync(quorum, grace_ms), rule=nesterov(outer_learning_rate, outer_momentum),
                         weight=weight, wire_dtype=wire_dtype, timeout=timeout, fragments=fragments)

    def _delta(self, part: _Part) -> Mapping[str, torch.Tensor]:
        with torch.no_grad():
            # A parameter of 16 bits started from its version rounded to 16 bits.
            return {name: old.to(part.parameters[name].dtype).float() - part.parameters[name].to("cpu", torch.float32)
                    for name, old in part.current.values.items()}


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
            for name, parameter in self._parts[0].parameters.items():
                if parameter.grad is not None:
                    self._gradients.values[name] += parameter.grad.to("cpu", torch.float32)
                    parameter.grad = None
        return super().step()

    def _begin_round(self) -> None:
        super()._begin_round()
        self._gradients.set_zero()

    def _delta(self, part: _Part) -> Mapping[str, torch.Tensor]:
        return {name: gradient / max(1, self.steps) for name, gradient in self._gradients.values.items()}
