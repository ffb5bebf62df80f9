"""Checks of timeouts of torch that a caller passes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

UNSET = timedelta(milliseconds=-1)  # in the options of torch's collectives: the group's timeout


def limit(timeout: Any) -> timedelta:
    """Returns the timeout of a group. Raises TypeError unless it is a timedelta, ValueError unless it is positive."""
    if not _timedelta(timeout) > timedelta():
        raise ValueError(f"timeout is {timeout.total_seconds():g} s; expected more than 0 s")
    return _timedelta(timeout)


def of_call(timeout: Any) -> timedelta:
    """Returns the timeout of a call. Raises TypeError unless it is a timedelta, ValueError for a negative one that is not UNSET."""
    if _timedelta(timeout) < timedelta() and timeout != UNSET:
        raise ValueError(f"timeout is {timeout.total_seconds():g} s; expected 0 s or more")
    return _timedelta(timeout)


def _timedelta(timeout: Any) -> timedelta:
    if not isinstance(timeout, timedelta):
        raise TypeError(f"timeout is {timeout!r}; expected a datetime.timedelta, such as timedelta(seconds=60)")
    return timeout
