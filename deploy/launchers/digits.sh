#!/usr/bin/env bash
# A training to test a launcher: each process is a worker of `sluice demo digits` with the reducers in SLUICE_REDUCERS. Needs no
# GPU.
#
#   sbatch deploy/slurm/hetjob.sbatch deploy/launchers/digits.sh
#   mpirun -np 4 -x SLUICE_REDUCERS deploy/launchers/digits.sh
#   torchrun --standalone --nproc-per-node 2 --no-python deploy/launchers/digits.sh
#
# The arguments are options of `sluice demo digits`, for example --epochs 3.
set -euo pipefail

# Rank, number of workers, and a unique name of the run that all its ranks share.
if [[ -n ${OMPI_COMM_WORLD_RANK:-} ]]; then
  rank=$OMPI_COMM_WORLD_RANK workers=$OMPI_COMM_WORLD_SIZE run=$PMIX_NAMESPACE
elif [[ -n ${TORCHELASTIC_RUN_ID:-} ]]; then
  # shellcheck disable=SC2153 # RANK is torchrun's
  rank=$RANK workers=$WORLD_SIZE run=$TORCHELASTIC_RUN_ID/$MASTER_ADDR/$MASTER_PORT/$TORCHELASTIC_RESTART_COUNT
elif [[ -n ${SLURM_PROCID:-} ]]; then
  # In a step on both groups of a heterogeneous job, group 0 trains and has the first ranks.
  rank=$SLURM_PROCID workers=${SLURM_NTASKS_HET_GROUP_0:-$SLURM_NTASKS} run=$SLURM_JOB_ID.$SLURM_STEP_ID
else
  echo "digits.sh: no rank in the environment; start the script with mpirun, torchrun or srun" >&2
  exit 64
fi
session=$(md5sum <<<"$run")
exec sluice demo digits --rank "$rank" --workers "$workers" --session "${session%% *}" "$@"
