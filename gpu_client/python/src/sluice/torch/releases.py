"""Classes ReferencedWork and GlooBackedGroup hide what differs between the releases of torch, from 2.4 on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import FunctionType
from typing import Any, Optional, TypeVar

import torch
import torch.distributed as dist

_eval_frame = torch._C._dynamo.eval_frame
_IS_OLD = not hasattr(dist.ProcessGroup, "shutdown")  # torch 2.4 and 2.6
_HAS_DEFAULT_BACKEND = hasattr(dist.ProcessGroup, "_set_default_backend")  # not torch 2.4
_NEVER_SENT = (1 << 31) - 1  # a tag of gloo

_Class = TypeVar("_Class", bound=type)


def also_named(**names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Lets a method have arguments by other names, too: {other: the method's}."""
    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            for name in names.keys() & options.keys():
                if names[name] in options:
                    raise TypeError(f"{function.__name__}() got both {name!r} and {names[name]!r}, which are one argument")
                options[names[name]] = options.pop(name)
            return function(*arguments, **options)

        return call

    return named


def untraced(kind: _Class) -> _Class:
    """Lets torch.compile call the public methods that the class defines, without tracing them: they take locks and call libraries.

    As torch.compiler.disable, whose import of the compiler takes seconds."""
    for name, function in list(vars(kind).items()):
        if isinstance(function, FunctionType) and (not name.startswith("_") or name.endswith("_base")):
            setattr(kind, name, _untraced(function))
    return kind


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        compiler = _eval_frame.set_eval_frame(None)  # of this thread, for the frames below this one
        try:
            return function(*arguments, **options)
        finally:
            _eval_frame.set_eval_frame(compiler)

    untraced: Any = call
    untraced._torchdynamo_disable = True
    if hasattr(_eval_frame, "skip_code"):  # torch 2.4
        _eval_frame.skip_code(untraced.__code__)
    else:
        _eval_frame.set_code_exec_strategy(untraced.__code__, _eval_frame._FrameExecStrategy(_eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.DEFAULT))
    return call


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


def plain_group(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
    """Returns a process group without backends."""
    if _HAS_DEFAULT_BACKEND:
        return dist.ProcessGroup(store, rank, size)
    return dist.ProcessGroup(store, rank, size, dist.ProcessGroup.Options("undefined", timeout))


def abort_gloo(gloo: Any) -> None:
    """Ends the work in progress of a ProcessGroupGloo on this rank and on the others: a wait that times out closes all connections of a group."""
    if gloo.size() > 1:
        with suppress(RuntimeError):
            gloo.recv([torch.empty(1)], (gloo.rank() + 1) % gloo.size(), _NEVER_SENT).wait(timedelta(milliseconds=1))


class GlooBackedGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group whose inherited collectives run in gloo, the attribute `_gloo`."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, prefix: str = "", address: Optional[str] = None, **options: Any) -> None:
        """Collective. `prefix`: of gloo's keys in the store. `address`: of this host, for gloo; None: gloo finds it. `options`: of ProcessGroupGloo."""
        if _HAS_DEFAULT_BACKEND:
            super().__init__(store, rank, size)
            self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        else:
            super().__init__(store, rank, size, dist.ProcessGroup.Options("gloo", timeout))
        keys = dist.PrefixStore(f"gloo{prefix}", store)
        if address is None:
            self._gloo = dist.ProcessGroupGloo(keys, rank, size, timeout, **options)
        else:
            with_device = dist.ProcessGroupGloo._Options()
            with_device._devices, with_device._timeout = [dist.ProcessGroupGloo.create_device(hostname=address)], timeout
            self._gloo = dist.ProcessGroupGloo(keys, rank, size, with_device)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)

    def set_timeout(self, timeout: timedelta) -> None:
        if _IS_OLD:
            self._gloo._set_default_timeout(timeout)
        else:
            self._gloo.set_timeout(timeout)

    # gloo closes its connections when it is dropped. Its shutdown() and abort() have no effect, also in torch 2.15.

    if _IS_OLD:
        # destroy_process_group only drops the group.
        def __del__(self) -> None:
            self.shutdown()
