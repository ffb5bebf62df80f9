"""Finds this process's rank in the variables of what started it: horovodrun, torchrun, Open MPI, PMI (MPICH, Intel MPI) or Slurm."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import NamedTuple, Optional


class Placement(NamedTuple):
    """This process among those of its job."""

    launcher: str
    rank: int
    ranks: int
    local_rank: Optional[int]  # among the ranks of its host; None: the launcher does not set it
    local_ranks: Optional[int]
    run: str  # names this start of the job, equal on all ranks


class _Launcher(NamedTuple):
    name: str
    rank: str
    ranks: tuple[str, ...]  # the first one that is set counts
    local_rank: str
    local_ranks: str
    run: tuple[str, ...]


_SLURM = "Slurm"
# What the user sets by hand comes first, then the launcher that starts processes within those of the others.
_LAUNCHERS = (
    _Launcher("SLUICE_RANK", "SLUICE_RANK", ("SLUICE_WORKERS",), "", "", ("SLUICE_SESSION",)),
    _Launcher("horovodrun", "HOROVOD_RANK", ("HOROVOD_SIZE",), "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
              ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")),
    _Launcher("torchrun", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", "LOCAL_WORLD_SIZE",
              ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")),
    _Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
              ("PMIX_NAMESPACE",)),
    _Launcher("PMI", "PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ()),
    # In a step on both groups of a heterogeneous job, group 0 trains and has the first ranks.
    _Launcher(_SLURM, "SLURM_PROCID", ("SLURM_NTASKS_HET_GROUP_0", "SLURM_NTASKS"), "SLURM_LOCALID", "",
              ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
)
_NAME = "SLUICE_JOB_ID"


def find(environment: Mapping[str, str] = os.environ) -> Placement:
    """Returns what the first launcher of the list says; a job of one rank without any.

    Warns if another one says something else. Raises ValueError for variables that make no sense."""
    found = [(launcher, size) for launcher in _LAUNCHERS if (size := _size_variable(launcher, environment))]
    if not found:
        return Placement("none", 0, 1, 0, 1, environment.get(_NAME, ""))
    (launcher, size), *others = found
    rank, ranks = _pair(launcher, size, environment)
    for other, other_size in others:
        # Other launchers run within a step of Slurm, in which each of its tasks may have several ranks.
        if other.name != _SLURM and _pair(other, other_size, environment) != (rank, ranks):
            warnings.warn(f"{launcher.rank}={rank} and {size}={ranks} win over {other.rank}={environment[other.rank]} and "
                          f"{other_size}={environment[other_size]}; unset those that are not of this job", RuntimeWarning, stacklevel=2)
    names = [f"{name}={value}" for name in (_NAME, *launcher.run) if (value := environment.get(name))]
    if not names and ranks > 1:
        raise ValueError(f"{launcher.rank} is set, but no variable names this run of the job; set {_NAME} to a text that is equal on all ranks and new in each "
                         "run" + (f", or {', '.join(launcher.run)}" if launcher.run else ""))
    return Placement(launcher.name, rank, ranks, _number(launcher.local_rank, environment), _number(launcher.local_ranks, environment), " ".join(names))


def _size_variable(launcher: _Launcher, environment: Mapping[str, str]) -> Optional[str]:
    """Returns the variable with the number of ranks, or None if this launcher did not start the process."""
    if launcher.name == _SLURM and not environment.get("SLURM_STEP_ID"):
        return None  # the script of sbatch, which is no task
    size = next((name for name in launcher.ranks if environment.get(name)), None)
    if bool(environment.get(launcher.rank)) != (size is not None):
        present, absent = (size, launcher.rank) if size else (launcher.rank, launcher.ranks[-1])
        raise ValueError(f"{present} is set, but {absent} is not; set both or neither")
    return size


def _pair(launcher: _Launcher, size: str, environment: Mapping[str, str]) -> tuple[int, int]:
    rank, ranks = _number(launcher.rank, environment), _number(size, environment)
    if rank is None or ranks is None or not 0 <= rank < ranks:
        raise ValueError(f"{launcher.rank} is {environment[launcher.rank]} and {size} is {environment[size]}; expected 0..{size}-1")
    return rank, ranks


def _number(name: str, environment: Mapping[str, str]) -> Optional[int]:
    text = environment.get(name, "")
    if text and not text.isdecimal():
        raise ValueError(f"{name} is {text!r}; expected a number")
    return int(text) if text else None
