"""DistributedOptimizer reduces gradients during the backward pass; and what starts all ranks with the same parameters and optimizer."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Optional, Union

import torch

from ..residuals import Residuals
from .collectives import (Average, Compression, Compressor, Handle, ReduceOp, _operator, _wire, broadcast_all, broadcast_object, job, reduce_gradients,
                          tensors_of)

_BUCKET_BYTES = 25 << 20
_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
_MAX_GRADIENTS = 1 << 20  # more than any model has


class GradientReducer:
    """Reduces the gradients of a step in buckets, while the backward pass computes the next ones.

    A bucket starts when it has all gradients and those before it have started, so all ranks start the same operations in one
    order, whatever the order of their gradients. Buckets are in the reverse order of the parameters, which is about that of
    the backward pass."""

    def __init__(self, parameters: list[torch.nn.Parameter], op: ReduceOp, compression: Compressor, passes: int, sparse_as_dense: bool) -> None:
        self._op, self._compression, self._sparse_as_dense = op, compression, sparse_as_dense
        self._buckets = _buckets(parameters)
        self._bucket_of = {parameter: index for index, bucket in enumerate(self._buckets) for parameter in bucket}
        self._residuals = Residuals(limit=_MAX_GRADIENTS)
        self.set_passes(passes)
        at = job()
        if at.ranks > 1:
            for bucket in self._buckets:
                at.session(bucket[0].device, _wire(compression))  # here and not in the first backward pass, because it waits for all ranks
            for parameter in self._bucket_of:
                parameter.register_post_accumulate_grad_hook(self._count)

    @property
    def is_pending(self) -> bool:
        """Whether a backward pass has begun whose gradients nobody has waited for."""
        return self._has_begun

    def set_passes(self, passes: int) -> None:
        if passes < 1:
            raise ValueError(f"backward_passes_per_step is {passes}; expected 1 or more")
        self._passes = passes
        self.reset()

    def reset(self) -> None:
        self._left = {parameter: self._passes for parameter in self._bucket_of}
        self._open = [len(bucket) for bucket in self._buckets]
        self._handles: list[Handle] = []
        self._has_begun = False

    def wait(self) -> None:
        """Starts what has not started, with zeros where this rank has no gradient, and waits for all."""
        try:
            if job().ranks > 1:
                while len(self._handles) < len(self._buckets):
                    self._start_next()
                for handle in self._handles:
                    handle.synchronize()
        finally:
            self.reset()

    def _count(self, parameter: torch.nn.Parameter) -> None:
        if self._left[parameter] == 0:
            raise AssertionError(f"gradients were computed more than backward_passes_per_step={self._passes} times before step(); increase "
                                 "backward_passes_per_step to accumulate them")
        self._has_begun = True
        self._left[parameter] -= 1
        self._open[self._bucket_of[parameter]] -= self._left[parameter] == 0
        while len(self._handles) < len(self._buckets) and self._open[len(self._handles)] == 0:
            self._start_next()

    def _start_next(self) -> None:
        index = len(self._handles)
        gradients = [self._gradient(parameter) for parameter in self._buckets[index]]
        self._handles.append(reduce_gradients(gradients, self._op, self._compression, self._residuals, f"gradients of bucket {index}"))

    def _gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.layout != torch.strided:
            if not self._sparse_as_dense:
                raise ValueError("sluice.horovod.DistributedOptimizer got a sparse gradient; pass sparse_as_dense=True")
            parameter.grad = parameter.grad.to_dense()
        return parameter.grad


class _Distributed(torch.optim.Optimizer):  # type: ignore[misc]
    """The methods that DistributedOptimizer puts before those of the optimizer."""

    _reducer: GradientReducer
    _is_synchronized = False
    _must_synchronize = True

    def synchronize(self) -> None:
        """Waits for the gradients of all ranks, for code that changes them before step(), such as clipping."""
        self._reducer.wait()
        self._is_synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() within it uses the gradients as they are."""
        self._must_synchronize = False
        try:
            yield
        finally:
            self._must_synchronize = True

    def step(self, closure: Any = None) -> Any:
        """Gradients that synchronize() has reduced since the last backward pass are not reduced again."""
        def reduce() -> None:
            if self._must_synchronize and (self._reducer.is_pending or not self._is_synchronized):
                self.synchronize()

        def reduced_closure() -> Any:
            with torch.enable_grad():
                loss = closure()
            reduce()
            return loss

        if closure is None:
            reduce()
        result = super().step(None if closure is None else reduced_closure)
        self._is_synchronized = False
        return result

    step.hooked = True  # type: ignore[attr-defined]  # the optimizer's own step calls its hooks, so torch must not make this one call them too

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._reducer.is_pending:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize(); the gradients "
                                 "are still being reduced")
        super().zero_grad(set_to_none)

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._reducer.set_passes(passes)

    def load_state_dict(self, state_dict: Any) -> None:
        self._reducer.reset()
        super().load_state_dict(state_dict)


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[tuple[str, torch.nn.Parameter]]] = None,
                         compression: Compressor = Compression.none, backward_passes_per_step: int = 1, op: ReduceOp = Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None, sparse_as_dense: bool = False) -> Any:
    """Returns an optimizer of the same class and with the same parameters and state, whose step() uses the gradients of all ranks. Collective.

    backward_passes_per_step: gradients of so many backward passes are added before they are reduced.
    gradient_predivide_factor, num_groups, groups: without effect on results, and none here: the sums do not overflow, and
        the bytes of a bucket are those of HOROVOD_FUSION_THRESHOLD (25 MiB)."""
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    _check_names(parameters, named_parameters)
    kind = type(type(optimizer).__name__, (_Distributed, type(optimizer)), {})
    made: Any = object.__new__(kind)
    made.__dict__.update({name: value for name, value in optimizer.__dict__.items() if name != "step"})  # a scheduler may have replaced step
    made._reducer = GradientReducer([each for each in parameters if each.requires_grad], _operator(None, op), compression, backward_passes_per_step,
                                    sparse_as_dense)
    return made


def broadcast_parameters(params: Union[dict[str, Any], Iterable[Any]], root_rank: int = 0) -> None:
    """Copies the root's tensors of a state_dict, named parameters or parameters into those of the other ranks."""
    for tensors in _by_device(tensors_of(params)):
        broadcast_all(tensors, root_rank).synchronize()


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Loads the root's state, with its learning rate, into the optimizers of the other ranks. It passes through host memory."""
    state = broadcast_object(optimizer.state_dict(), root_rank)
    if job().rank != root_rank:
        optimizer.load_state_dict(state)


def _check_names(parameters: list[torch.nn.Parameter], named: Optional[Iterable[tuple[str, torch.nn.Parameter]]]) -> None:
    """Raises ValueError as Horovod does: names of other parameters are the most common mistake."""
    if named is None:
        return
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), as model.named_parameters() returns")
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        raise ValueError(f"named_parameters has these names more than once: {', '.join(twice)}")
    known = {id(parameter) for _, parameter in pairs}
    if unnamed := sum(id(parameter) not in known for parameter in parameters):
        raise ValueError(f"named_parameters lacks {unnamed} of the {len(parameters)} parameters of the optimizer; pass those of the whole model")


def _buckets(parameters: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Returns the parameters in reverse order, in lists of one device and at most HOROVOD_FUSION_THRESHOLD bytes, or of one larger parameter."""
    text = os.environ.get(_THRESHOLD, "")
    if text and not text.isdecimal():
        raise ValueError(f"{_THRESHOLD} is {text!r}; expected a number of bytes")
    most = int(text) if text else _BUCKET_BYTES
    buckets: list[list[torch.nn.Parameter]] = []
    filled = 0
    for parameter in reversed(parameters):
        size = parameter.numel() * parameter.element_size()
        if not buckets or filled + size > most or buckets[-1][0].device != parameter.device:
            buckets.append([])
            filled = 0
        buckets[-1].append(parameter)
        filled += size
    return buckets


def _by_device(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    for _, run in itertools.groupby(tensors, lambda tensor: tensor.device):
        yield list(run)
