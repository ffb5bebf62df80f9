#!/usr/bin/env bash
# Something to train while the job script is tried out: `sbatch hetjob.sbatch digits.sh`. Needs no GPU; each task is a worker of `sluice demo digits`.
set -euo pipefail
export SLUICE_RANK=$SLURM_PROCID SLUICE_WORKERS=$SLURM_NTASKS
# The same on all ranks, and another in each step.
SLUICE_SESSION=$(printf '%024x%08x' "$SLURM_JOB_ID" "$SLURM_STEP_ID")
export SLUICE_SESSION
exec sluice demo digits "$@"
