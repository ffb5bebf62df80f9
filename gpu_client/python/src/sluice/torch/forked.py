"""Objects of the parent process that a child of fork() must not destroy, because their destructors wait for threads that the child does not have."""

from __future__ import annotations

import ctypes
import os
import weakref

_parents: weakref.WeakSet[object] = weakref.WeakSet()


def keep_in_children(parent: object) -> None:
    """Keeps `parent` alive in later children of this process, if it is alive at the fork."""
    _parents.add(parent)


def _keep() -> None:
    for parent in _parents:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(parent))  # a reference in a module would end with the interpreter


os.register_at_fork(after_in_child=_keep)
