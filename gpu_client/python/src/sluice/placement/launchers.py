"""Finds this process's rank in the variables of what started it: horovodrun, torchrun, Open MPI, PMI (MPICH, Intel MPI) or Slurm."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import NamedTuple, Optional

from .variables import OWN, number, rank_and_size


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

    def size_variable(self, environment: Mapping[str, str]) -> str:
        return next((name for name in self.ranks if environment.get(name)), self.ranks[-1])


_SLURM = "Slurm"
# What the user sets by hand comes first, then the launcher that starts processes within those of the others.
_LAUNCHERS = (
    _Launcher("SLUICE_RANK", OWN[0], OWN[1:], "", "", ("SLUICE_SESSION",)),
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
    found: list[tuple[_Launcher, tuple[int, int]]] = []
    for launcher in _LAUNCHERS:
        # Other launchers run within a step of Slurm, in which each of its tasks may have several ranks. Without a step this is the script of sbatch.
        is_task = launcher.name != _SLURM or (not found and environment.get("SLURM_STEP_ID"))
        if is_task and (place := rank_and_size(launcher.rank, launcher.size_variable(environment), environment)):
            found.append((launcher, place))
    if not found:
        return Placement("none", 0, 1, 0, 1, environment.get(_NAME, ""))
    (launcher, (rank, ranks)), *others = found
    for other, place in others:
        if place != (rank, ranks):
            warnings.warn(f"{_text(launcher, environment)} win over {_text(other, environment)}; unset those that are not of this job", RuntimeWarning, stacklevel=2)
    names = [f"{name}={value}" for name in (_NAME, *launcher.run) if (value := environment.get(name))]
    if not names and ranks > 1:
        raise ValueError(f"{launcher.rank} is set, but no variable names this run of the job; set {_NAME} to a text that is equal on all ranks and new in each "
                         "run" + (f", or {', '.join(launcher.run)}" if launcher.run else ""))
    return Placement(launcher.name, rank, ranks, number(launcher.local_rank, environment), number(launcher.local_ranks, environment), " ".join(names))


def _text(launcher: _Launcher, environment: Mapping[str, str]) -> str:
    return " and ".join(f"{name}={environment[name]}" for name in (launcher.rank, launcher.size_variable(environment)))
