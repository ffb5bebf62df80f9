"""What the C functions answer, as exceptions: one class for each sluice_status, all of them sluice.Error."""

from __future__ import annotations

from typing import ClassVar


class Error(RuntimeError):
    """A status other than SLUICE_OK; str() is the reason in words, `status` the number of sluice.h."""

    status: ClassVar[int] = 11


class Again(Error):
    """Too many operations are open: wait for one, then try again. Nothing was done."""

    status = 1


class InvalidArgument(Error, ValueError):
    """The library refuses an option or argument, which it names. Nothing was done."""

    status = 2


class Unsupported(Error):
    """This library, machine or session does not have it."""

    status = 3


class Refused(Error):
    """A reducer or the vote refused the session: token, memory limit, rank taken, draining, no common version."""

    status = 4


class Timeout(Error, TimeoutError):
    """A deadline passed: connect, join, op_timeout_ms, or that of Request.wait, which leaves the request open."""

    status = 5


class Mismatch(Error):
    """Ranks disagree: on their number, reducers, window, or on dtype, op or count of an operation."""

    status = 6


class Lost(Error):
    """A rank or a reducer was lost."""

    status = 7


class Closed(Error):
    """The session was closed, here or by a rank that left; or it is that of a process which this one was forked from."""

    status = 8


class Protocol(Error):
    """A peer broke the protocol, or data was damaged on the way."""

    status = 9


class System(Error):
    """The operating system refused: memory, sockets, files."""

    status = 10


class Internal(Error):
    """The library is at fault, or knows a status that this package does not."""

    status = 11


class LibraryNotFound(ImportError):
    """No libsluice was found, or one that this package can't use. It names the places."""


_CLASSES: dict[int, type[Error]] = {
    kind.status: kind
    for kind in (Again, InvalidArgument, Unsupported, Refused, Timeout, Mismatch, Lost, Closed, Protocol, System, Internal)
}


def of_status(status: int, text: str) -> Error:
    """The exception for a status that is not SLUICE_OK."""
    return _CLASSES.get(status, Internal)(text or f"status {status}")
