"""Classes Publisher and Subscriber: a trainer's weights for readers that load each version, such as inference servers.

    publisher = Publisher(store, "policy", network)
    publisher.publish()                                   # after each update of the network

    Subscriber(store, "policy", lambda version, tensors: network.load_state_dict(tensors, strict=False))

The tensors are the parameters and the buffers of floating point, by the names of state_dict(), as f32. Integer buffers, such as
BatchNorm's counter of batches, are not published."""

from __future__ import annotations

import atexit
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Optional

import torch

from ..errors import Closed, Error, Lost, Timeout
from ..options import seconds
from ..store import Model, Pulled, Store, add, asynchronous
from ..store.model import wire_dtype_number
from .parameters import HostCopy, check_finite, floating_state, shapes

_RETRY_S = 1.0  # between two attempts to reach the reducers


class Publisher:
    """Publishes the weights of a module. A model has one publisher.

    A push adds the difference to the last version, so a value differs from that of the module by at most 1/2^24 of the larger one of the old and
    the new value. The next version does not add to this difference."""

    def __init__(self, store: Store, name: str, module: torch.nn.Module, *, versions: int = 2, wire_dtype: str = "f32",
                 timeout: Optional[float] = None) -> None:
        """Creates the model with the current weights, or opens it. Readers may read it from then on.

        versions: how many of the last ones the reducers keep for slow readers. wire_dtype: as in Model.push(); it rounds the difference, and the next
        version has the rest of it."""
        wire_dtype_number(wire_dtype)  # raises
        self._module = module
        self._weights = HostCopy(floating_state(module)).read()
        self._wire_dtype, self._timeout = wire_dtype, None if timeout is None else seconds(timeout)
        self.model: Model = store.create(name, self._weights.values, mode=asynchronous(), rule=add(), versions=versions)
        self._published = HostCopy(self._weights.values).read()  # the current version
        self._unanswered: Optional[dict[str, torch.Tensor]] = None  # deltas of a push that raised
        self.version = -1  # unknown
        self._pull()

    def publish(self) -> int:
        """Makes the module's weights the current version, and returns it when readers can pull it. Raises ValueError for weights that are not
        finite. After sluice.Timeout or sluice.Lost call it again."""
        if self._unanswered is not None:
            self._push(self._unanswered)
        if self.version < 0:
            self._pull()
        weights = floating_state(self._module)  # in other memory after module.to(), for example
        if shapes(weights) != shapes(self._weights.values):
            raise ValueError(f"the module has other tensors than when model {self.model.name!r} was made; not published")
        self._weights.read(weights)
        delta = {name: weight - self._published.values[name] for name, weight in self._weights.values.items()}
        check_finite(delta, self._wire_dtype)
        self._push(delta)
        return self.version

    def _push(self, delta: dict[str, torch.Tensor]) -> None:
        self._unanswered, version = delta, self.version
        try:
            pushed = self.model.push(delta, version, wire_dtype=self._wire_dtype, timeout=self._timeout)
        except Error:
            raise
        except BaseException:  # of a signal handler, as Ctrl-C: whether the push counts is unknown, and it must not count twice
            self._unanswered, self.version = None, -1
            raise
        self._unanswered, self.version = None, -1
        if self._wire_dtype == "f32" and pushed.version == version + 1:
            # As the reducers compute it: each value rounded once.
            for name, value in self._published.values.items():
                value += delta[name]
            self.version = pushed.version
        else:
            self._pull()

    def close(self) -> None:
        self.model.close()

    def _pull(self) -> None:
        self.version = -1
        self.version = self.model.pull(self._published.values, timeout=self._timeout).version


class Subscriber:
    """Calls a function with each version of a model that it sees, on a thread of its own; the first time with the current version.

    Skips versions that others replace while the function runs. Tries again while reducers cannot be reached; any other error ends it with a
    warning, and error() returns it. Use it as a context manager, or call
    close()."""

    def __init__(self, store: Store, name: str, callback: Callable[[int, dict[str, torch.Tensor]], object], *, wire_dtype: str = "f32") -> None:
        """Opens the model, and starts the thread.

        callback: called with the version and its tensors by names. They have the types of the model, and the next version overwrites them. If it
        raises, it is not called again, and close() raises the exception. wire_dtype: as in Model.pull()."""
        wire_dtype_number(wire_dtype)  # raises
        self.model: Model = store.model(name)
        self._error: Optional[Exception] = None
        self._stop = threading.Event()
        self._callback, self._wire_dtype = callback, wire_dtype
        self._thread = threading.Thread(target=self._run, name=f"sluice-{name}", daemon=True)
        self._thread.start()
        # A thread that the interpreter stops at exit inside a function of torch would abort the process by std::terminate().
        atexit.register(self._end)

    def close(self) -> None:
        """Waits for the end of a call of the function, and ends the thread. Raises the exception that ended the subscription."""
        self._end()
        atexit.unregister(self._end)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def error(self) -> Optional[Exception]:
        """Returns the exception that ended the subscription, or None."""
        return self._error

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.close()
        except Exception:
            if value is None:  # otherwise the exception of the block is more useful
                raise

    def _end(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread:  # the function may call close()
            self.model.close()
            self._thread.join()

    def _run(self) -> None:
        try:
            for version, tensors in self._versions():
                self._callback(version, tensors)
        except Exception as error:
            self._error = error
            warnings.warn(f"the subscription to model {self.model.name!r} has ended: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=1)

    def _versions(self) -> Iterator[Pulled]:
        """Yields versions until the model is closed."""
        seen, tensors = -1, self.model.empty("torch")
        while not self._stop.is_set():
            try:
                self.model.wait(seen + 1, math.inf)
                pulled = self.model.pull(tensors, min_version=seen + 1, wire_dtype=self._wire_dtype)
            except Closed:
                return
            except (Lost, Timeout):
                self._stop.wait(_RETRY_S)
                continue
            seen = pulled.version
            yield pulled
