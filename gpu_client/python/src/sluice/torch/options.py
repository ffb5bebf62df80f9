"""Class Options: what a program may choose for one process group."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Optional, Union

from ..findings import OnFinding

_Path = Union[str, os.PathLike[str]]


@dataclass(frozen=True)
class Options:
    """Pass as pg_options of init_process_group or new_group; equal on all ranks, except on_finding and the names of files.

    wire_dtype: the type in which sums and averages of float32 travel in all_reduce, reduce_scatter and reduce, as in Session; None:
        SLUICE_WIRE.
    wire_min_count: reductions of fewer elements travel as they are, because 8-bit types suit gradients but not counters
        and losses.
    error_feedback: adds what rounding loses to the next all_reduce of the same memory; None: with 8-bit types. Takes as
        much memory as the tensors, for at most 256 of them. True: also to the next reduce-scatter of the same input, except in
        the form with lists. The caller must then reduce each tensor in memory of its own, which FSDP does not.
    on_finding: what happens when a reducer with --health finds a rank's contribution sick. "raise": wait() raises
        DistBackendError from UnhealthyGradient; a function: called with the sluice.Finding, on the thread that sees the end of
        the operation; None: nothing. The finding names the operation by its number in the group, kind and size.
    reduce_in_host: whether the ranks of a host reduce tensors on GPUs among themselves in a group of torch, such as NCCL's, so that each sends only
        its share. None: SLUICE_REDUCE_IN_HOST (0 or 1), otherwise yes, without on_finding, which names ranks. Without effect if hosts have one
        rank each, or different numbers.
    job, tenant, key_file, token_file, tls, tls_ca, tls_cert, tls_key: as in Session; None: those of the default group, or of the
        group that is split, and without these the variables."""

    wire_dtype: Optional[str] = None
    wire_min_count: int = 8192
    error_feedback: Optional[bool] = None
    on_finding: OnFinding = None
    job: Optional[str] = None
    tenant: Optional[str] = None
    key_file: Optional[_Path] = None
    token_file: Optional[_Path] = None
    tls: Optional[str] = None
    tls_ca: Optional[_Path] = None
    tls_cert: Optional[_Path] = None
    tls_key: Optional[_Path] = None
    reduce_in_host: Optional[bool] = None

    @property
    def _timeout(self) -> None:
        """Read by torch's DeviceMesh, which then uses the default."""


# An option for one of a pair replaces both.
_INHERITED = (("job",), ("tenant",), ("key_file", "token_file"), ("tls",), ("tls_ca",), ("tls_cert", "tls_key"))


def inherit(options: Options, other: Options) -> Options:
    """Returns `options` with what they do not set about credentials from `other`."""
    names = [name for pair in _INHERITED if all(getattr(options, name) is None for name in pair) for name in pair]
    return replace(options, **{name: getattr(other, name) for name in names})


def reduces_in_host(chosen: Optional[bool]) -> Optional[bool]:
    """Returns what the program has chosen, otherwise what the variable says, otherwise None. Raises ValueError for another value of the variable."""
    value = os.environ.get("SLUICE_REDUCE_IN_HOST", "")
    if value not in ("", "0", "1"):
        raise ValueError(f"variable SLUICE_REDUCE_IN_HOST: {value!r}: expected 0 or 1")
    return (value == "1" if value else None) if chosen is None else chosen


def options_of(pg_options: object) -> Optional[Options]:
    """Returns what a caller passed as pg_options. Raises TypeError for another type."""
    if pg_options is not None and not isinstance(pg_options, Options):
        raise TypeError(f"pg_options is a {type(pg_options).__name__}; expected sluice.torch.Options")
    return pg_options
