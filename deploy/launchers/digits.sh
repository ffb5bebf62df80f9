#!/usr/bin/env bash
# Something to train while a launcher is tried out: each process is a worker of `sluice demo digits`, over the reducers of SLUICE_REDUCERS. Needs no GPU.
#
#   sbatch deploy/slurm/hetjob.sbatch deploy/launchers/digits.sh
#   mpirun -np 4 -x SLUICE_REDUCERS deploy/launchers/digits.sh
#   torchrun --standalone --nproc-per-node 2 --no-python deploy/launchers/digits.sh
#
# Arguments go to the program: --epochs 3.
set -euo pipefail

# Rank, workers, and a name of this run that its ranks share and that no other run has.
if [[ -n ${OMPI_COMM_WORLD_RANK:-} ]]; then
  rank=$OMPI_COMM_WORLD_RANK workers=$OMPI_COMM_WORLD_SIZE run=$PMIX_NAMESPACE
elif [[ -n ${TORCHELASTIC_RUN_ID:-} ]]; then
  # shellcheck disable=SC2153 # RANK is torchrun's
  rank=$RANK workers=$WORLD_SIZE run=$TORCHELASTIC_RUN_ID/$MASTER_ADDR/$MASTER_PORT/$TORCHELASTIC_RESTART_COUNT
elif [[ -n ${SLURM_PROCID:-} ]]; then
  # Of a step on both groups of a heterogeneous job, those of group 0 train and have the first ranks.
  rank=$SLURM_PROCID workers=${SLURM_NTASKS_HET_GROUP_0:-$SLURM_NTASKS} run=$SLURM_JOB_ID.$SLURM_STEP_ID
else
  echo "digits: started by none of mpirun, torchrun, srun" >&2
  exit 64
fi
session=$(md5sum <<<"$run")
exec sluice demo digits --rank "$rank" --workers "$workers" --session "${session%% *}" "$@"
