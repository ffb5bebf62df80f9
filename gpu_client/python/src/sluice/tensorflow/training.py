"""Reductions of tensors within a training step, eagerly or in a tf.function, and what Keras calls for them.

tf.numpy_function carries tensors out of a tf.function. It runs on the CPU, in the order of the program, and XLA cannot compile it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy
import tensorflow

from .job import session


def allreduce(tensors: Any, op: str = "avg") -> Any:
    """Reduces a tensor, or each of a list or tuple of tensors together, over all workers; returns the results in the same form.

    All workers must call it in the same order with tensors of the same shapes and types. An entry that is None stays None. IndexedSlices
    become dense. op: "sum", "prod", "min", "max" or "avg".

    If the session fails, an eager call raises its sluice.Error, and a tf.function tensorflow's UnknownError with the same text."""
    is_list = isinstance(tensors, (list, tuple))
    dense = [None if tensor is None else tensorflow.convert_to_tensor(tensor) for tensor in (tensors if is_list else [tensors])]
    present = [tensor for tensor in dense if tensor is not None]
    results = iter(_reduced(present, op))
    placed = [None if tensor is None else next(results) for tensor in dense]
    if isinstance(tensors, tuple):
        return tuple(placed)
    return placed if is_list else placed[0]


def _reduced(tensors: list[Any], op: str) -> list[Any]:
    if not tensors:
        return []
    reduced = tensorflow.numpy_function(lambda *arrays: _reduce(arrays, op), tensors, [tensor.dtype for tensor in tensors])
    if not isinstance(reduced, (list, tuple)):
        reduced = [reduced]  # as it returns a single result if called eagerly
    for before, after in zip(tensors, reduced):
        after.set_shape(before.shape)  # numpy_function does not know it
    return list(reduced)


def _reduce(arrays: Sequence[Any], op: str) -> list[Any]:
    # TensorFlow may share the memory of `arrays` with its own tensors, so the results have memory of their own.
    inputs = [numpy.asarray(array, order="C") for array in arrays]
    results = [numpy.empty_like(array) for array in inputs]
    with session().group() as request:
        for array, result in zip(inputs, results):
            session().allreduce_async(array, op, result)
    request.wait()
    return results


def broadcast_variables(variables: Iterable[Any], root_rank: int = 0) -> None:
    """Assigns the values of rank `root_rank` to the variables of all other ranks, for example model.variables after a checkpoint was loaded there.

    variables: tf.Variables or Keras's, of any type but string, in the same order on all ranks. Not within a tf.function."""
    listed = list(variables)
    if not listed:
        return
    values = [numpy.array(variable, order="C") for variable in listed]
    with session().group() as request:
        for value in values:
            # As bytes: the library has no bool and no complex numbers.
            session().broadcast_async(value.reshape(-1).view("uint8"), root=root_rank)
    request.wait()
    if session().rank != root_rank:
        for variable, value in zip(listed, values):
            variable.assign(value)


def DistributedOptimizer(optimizer: Any, op: str = "avg") -> Any:
    """Makes a Keras 3 optimizer reduce the gradients of all workers before it applies them, and returns this optimizer.

    It keeps its class and state, so checkpoints are those of the plain optimizer. For model.fit() pass jit_compile=False to model.compile().
    op: "avg", or "sum" if the loss of each worker is already divided by the number of samples of all."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        kind = f"{type(optimizer).__module__}.{type(optimizer).__name__}"
        raise TypeError(f"optimizer is a {kind}; expected one of keras {keras.__version__}; reduce the gradients of others by sluice.tensorflow.allreduce()")
    if hasattr(optimizer, "_sluice_op"):
        raise ValueError(f"optimizer {optimizer.name} already reduces gradients")
    apply = optimizer.apply

    def apply_reduced(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        return apply(allreduce(list(grads), op), trainable_variables)

    optimizer._sluice_op = op
    optimizer.apply = apply_reduced  # apply_gradients(), which model.fit() calls, calls this attribute
    return optimizer


class AverageMetrics(keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces the metrics of an epoch by their averages over all workers, so that callbacks after it decide alike on all of them."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs:
            names = sorted(logs)
            values = numpy.array([float(logs[name]) for name in names])
            session().allreduce(values, "avg")
            logs.update(zip(names, values.tolist()))
