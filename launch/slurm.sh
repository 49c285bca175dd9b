#!/usr/bin/env bash
# A training run on SLURM nodes, one task a node; goes on from its last checkpoint when it is preempted or fails.
#
#   sbatch --nodes=4 --gpus-per-node=8 launch/slurm.sh vrjax train experiments/eg_reasoner_7b.py --mesh.fsdp 32
#   DRY_RUN=1 bash launch/slurm.sh vrjax train …        prints what it would do
#
# EVALUATE="vrjax evaluate … --watch RUN/checkpoints" runs beside the training, on the first node, and ends with it.
# The processes find each other by SLURM's own variables (vrjax.processes).
#SBATCH --job-name=vrjax
#SBATCH --ntasks-per-node=1
#SBATCH --output=runs/logs/%x_%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@180
set -euo pipefail

RESTARTS=${RESTARTS:-10}
EVALUATE=${EVALUATE:-}
LOGS=${LOGS:-runs/logs}

if [[ $# -eq 0 ]]; then
  echo "usage: sbatch --nodes=N $0 vrjax train EXPERIMENT …" >&2
  exit 2
fi
run() { # what DRY_RUN prints in place of doing
  if [[ -n ${DRY_RUN:-} ]]; then printf '%q ' "$@" && echo; else "$@"; fi
}
if [[ -z ${SLURM_JOB_ID:-} && -z ${DRY_RUN:-} ]]; then
  echo "$0: this is no SLURM job. Submit it with sbatch, or set DRY_RUN=1." >&2
  exit 2
fi
job=${SLURM_JOB_ID:-JOB} restarted=${SLURM_RESTART_COUNT:-0}
run mkdir -p "$LOGS"

beside=
if [[ -n $EVALUATE ]]; then
  read -ra words <<<"$EVALUATE"
  if [[ -n ${DRY_RUN:-} ]]; then
    run srun --overlap --nodes=1 --ntasks=1 "${words[@]}"
  else
    srun --overlap --nodes=1 --ntasks=1 --output="$LOGS/evaluate_$job.log" "${words[@]}" &
    beside=$!
  fi
fi

# One task that dies ends the others; SIGTERM (preemption, the end of the time limit) lets them save a checkpoint.
train=(srun --kill-on-bad-exit=1 --output="$LOGS/train_${job}_%t.log" "$@")
code=0 asked_to_end=
if [[ -n ${DRY_RUN:-} ]]; then
  run "${train[@]}"
else
  "${train[@]}" &
  trainer=$!
  trap 'asked_to_end=1; kill -TERM "$trainer"' TERM
  wait "$trainer" || code=$?
  # A wait that a signal cut short returns before the tasks have saved.
  while kill -0 "$trainer" 2>/dev/null; do code=0 && wait "$trainer" || code=$?; done
  if [[ -n $beside ]]; then kill "$beside" 2>/dev/null || true; fi
fi

if [[ $code -eq 2 ]]; then
  echo "$0: the command was used wrongly (exit code 2); it is not started again" >&2
elif [[ $code -ne 0 || -n $asked_to_end || -n ${DRY_RUN:-} ]] && ((restarted < RESTARTS)); then
  echo "$0: exit code $code after start $restarted; submitted again, it goes on from the last checkpoint" >&2
  run scontrol requeue "$job"
fi
exit "$code"
