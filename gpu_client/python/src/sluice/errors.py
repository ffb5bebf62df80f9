"""Exceptions for the statuses of the C API: one subclass of sluice.Error for each sluice_status."""

from __future__ import annotations

from typing import ClassVar

from .findings import Finding


class Error(RuntimeError):
    """A call returned a status other than SLUICE_OK. str() is the reason, `status` the value of sluice_status."""

    status: ClassVar[int] = 11


class Again(Error):
    """Too many operations are open; wait for one, then retry. The call had no effect."""

    status = 1


class InvalidArgument(Error, ValueError):
    """The library refused an option or argument; the text contains its name. The call had no effect."""

    status = 2


class Unsupported(Error):
    """This library, machine or session does not support the call."""

    status = 3


class Refused(Error):
    """A reducer or the join vote refused the session: wrong token, memory limit, rank already joined, reducer draining,
    or no common protocol version."""

    status = 4


class Timeout(Error, TimeoutError):
    """A deadline expired: connect, join, op_timeout_ms, or the timeout of Request.wait, which leaves the request open."""

    status = 5


class Mismatch(Error):
    """The ranks disagree on their number, reducers or window, or on an operation's dtype, op or count."""

    status = 6


class Lost(Error):
    """A rank or a reducer was lost, or another rank aborted the session."""

    status = 7


class Closed(Error):
    """This process closed or aborted the session, or a rank left; or the session belongs to the parent of this process."""

    status = 8


class Protocol(Error):
    """A peer violated the protocol, or data was corrupted in transit."""

    status = 9


class System(Error):
    """The operating system returned an error: memory, sockets, files."""

    status = 10


class Internal(Error):
    """The library has a bug, or returned a status that this package does not know."""

    status = 11


class UnhealthyGradient(Error):
    """A reducer found a rank's contribution to this operation sick, and the session has on_finding="raise". The operation
    itself succeeded. str() names rank, finding and operation."""

    status = 0
    finding: Finding


class LibraryNotFound(ImportError):
    """libsluice was not found or is not compatible with this package. The text contains the files that were tried."""


_CLASSES: dict[int, type[Error]] = {
    kind.status: kind
    for kind in (Again, InvalidArgument, Unsupported, Refused, Timeout, Mismatch, Lost, Closed, Protocol, System, Internal)
}


def error_for_status(status: int, text: str) -> Error:
    """Returns the exception for a status other than SLUICE_OK."""
    return _CLASSES.get(status, Internal)(text or f"status {status}")
