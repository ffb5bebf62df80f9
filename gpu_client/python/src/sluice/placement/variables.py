"""Reads a rank, and how many ranks there are, from the two variables of a launcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

OWN = ("SLUICE_RANK", "SLUICE_WORKERS")  # they win over the variables of launchers and over TF_CONFIG


def rank_and_size(rank_name: str, size_name: str, environment: Mapping[str, str]) -> Optional[tuple[int, int]]:
    """Returns the values of the two variables; None: neither is set. Raises ValueError if one is missing or does not fit."""
    rank, size = number(rank_name, environment), number(size_name, environment)
    if (rank is None) != (size is None):
        present, absent = (size_name, rank_name) if rank is None else (rank_name, size_name)
        raise ValueError(f"{present} is set, but {absent} is not; set both or neither")
    if rank is None or size is None:
        return None
    if rank >= size:
        raise ValueError(f"{rank_name} is {rank} and {size_name} is {size}; expected a rank of 0..{size_name}-1")
    return rank, size


def number(name: str, environment: Mapping[str, str]) -> Optional[int]:
    """Returns the value of the variable; None: it is not set or empty. Raises ValueError if it is not a non-negative integer."""
    text = environment.get(name, "")
    if text and not text.isdecimal():
        raise ValueError(f"{name} is {text!r}; expected a non-negative integer")
    return int(text) if text else None
