"""Class Store: the models of a pool of reducers."""

from __future__ import annotations

import ctypes
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Optional, Union

from .handle import Handle
from .model import Model, pointers_to
from .specification import specification

Path = Union[str, os.PathLike[str]]


class Store:
    """The models that a pool of reducers keeps: creates, opens, lists and deletes them.

    The models of all stores of one process, pool and job share connections. Use it as a context manager, or call close()."""

    def __init__(self, reducers: Optional[str] = None, *, job: Optional[str] = None, tenant: Optional[str] = None,
                 key_file: Optional[Path] = None, token_file: Optional[Path] = None, timeout_ms: Optional[int] = None,
                 worker: Optional[int] = None, tls: Optional[str] = None, tls_ca: Optional[Path] = None, tls_cert: Optional[Path] = None,
                 tls_key: Optional[Path] = None) -> None:
        """Connects to one of the reducers.

        reducers: "host:port,host:port", any of the pool; None: SLUICE_REDUCERS.
        timeout_ms: of connecting, and of each call without a timeout of its own; None: 60000.
        worker: the identity of this worker's pushes, so that one that is restarted continues to be the same worker; None: random. No two
            workers of a model may have the same. A sync step adds in the order of these numbers, so with equal numbers a repeated training has equal
            bits.

        The other arguments have the meanings of the fields of sluice_store_options."""
        self._reducers = reducers
        self._options = {"job": job, "tenant": tenant, "key_file": key_file, "token_file": token_file, "timeout_ms": timeout_ms, "worker": worker,
                         "tls": tls, "tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
        self._models: weakref.WeakSet[Model] = weakref.WeakSet()
        self._handle = Handle(reducers, self._options)

    def create(self, model: Union[str, Mapping[str, Any]], tensors: Optional[Mapping[str, Any]] = None, *, mode: Optional[Mapping[str, Any]] = None,
               rule: Optional[Mapping[str, Any]] = None, versions: int = 2) -> Model:
        """Creates a model, and opens it. All workers may call this: the arrays of one of them become the first version.

        model: its name, for the specification that specification() makes of the other arguments; or a specification. `tensors` has the first
        version by names; None, with a specification: zeros. Raises sluice.Mismatch if a model of this name has another specification."""
        if isinstance(model, str):
            if tensors is None or mode is None or rule is None:
                raise TypeError("create() takes tensors, mode and rule with a name, or a specification")
            spec = specification(model, tensors, mode=mode, rule=rule, versions=versions)
        else:
            spec = dict(model)
        first = None if tensors is None else pointers_to(spec, tensors, for_writing=False)
        return self._made(spec, "sluice_store_create", None if first is None else first.addresses)

    def restore(self, specification: Mapping[str, Any], path: Path, *, any_file: bool = False) -> Model:
        """Creates a model from a file of Model.snapshot() of an equal specification, and opens it.

        any_file: from any safetensors file with tensors of these names and shapes."""
        return self._made(specification, "sluice_store_restore", os.fsencode(path), int(any_file))

    def model(self, name: str) -> Model:
        """Opens a model. Waits until its creator has uploaded the first version."""
        handle = self._new_handle()
        try:
            handle.call("sluice_store_model", name.encode())
            return self._opened(handle, False)
        except BaseException:
            handle.close()
            raise

    def delete(self, name: str) -> None:
        """Deletes a model and its files on all reducers. Has no effect if there is none."""
        self._handle.call("sluice_store_delete", name.encode())

    def list(self) -> Sequence[str]:  # within the class, `list` is this function
        """Returns the names of all models."""
        return [str(name) for name in json.loads(self._handle.text("sluice_store_list"))]

    def close(self) -> None:
        """Closes the store and its models. Calls of other threads end first; new ones raise sluice.Closed."""
        for model in list(self._models):
            model.close()
        self._handle.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def _new_handle(self) -> Handle:
        if not self._handle.is_open():
            self._handle.text("sluice_store_list")  # raises Closed
        return Handle(self._reducers, self._options)

    def _made(self, spec: Mapping[str, Any], function: str, *arguments: Any) -> Model:
        created = ctypes.c_int()
        handle = self._new_handle()
        try:
            handle.call(function, json.dumps(spec, allow_nan=False).encode(), *arguments, ctypes.byref(created))
            return self._opened(handle, bool(created.value))
        except BaseException:
            handle.close()
            raise

    def _opened(self, handle: Handle, is_creator: bool) -> Model:
        model = Model(handle, is_creator)
        self._models.add(model)
        return model
