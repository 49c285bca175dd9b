#!/usr/bin/env bash
# A training run on SLURM nodes, one task a node; goes on from its last checkpoint when it is preempted or fails.
#
#   sbatch --nodes=4 --gpus-per-node=8 launch/slurm.sh vrjax train experiments/eg_reasoner_7b.py --mesh.fsdp 32
#   DRY_RUN=1 bash launch/slurm.sh vrjax train …        prints what it would do
#
# EVALUATE="vrjax evaluate … --watch RUN/checkpoints" runs beside the training, on the first node; when the last step has
# been taken it is waited for, at most until the time limit. The log of this script lies where it was submitted, those of
# the tasks and of the evaluation in LOGS. The processes find each other by SLURM's own variables (vrjax.processes).
#SBATCH --job-name=vrjax
#SBATCH --ntasks-per-node=1
#SBATCH --output=vrjax_%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@180
set -euo pipefail

RESTARTS=${RESTARTS:-10}
EVALUATE=${EVALUATE:-}
LOGS=${LOGS:-runs/logs}

if [[ $# -eq 0 ]]; then
  echo "usage: sbatch --nodes=N launch/slurm.sh vrjax train EXPERIMENT …" >&2
  exit 2
fi
run() { # what DRY_RUN prints in place of doing
  if [[ -n ${DRY_RUN:-} ]]; then printf '%q ' "$@" && echo; else "$@"; fi
}
if [[ -z ${DRY_RUN:-} ]]; then
  [[ -n ${SLURM_JOB_ID:-} ]] || {
    echo "slurm.sh: this is no SLURM job. Submit it with sbatch, or set DRY_RUN=1." >&2
    exit 2
  }
  command -v "$1" >/dev/null || { echo "slurm.sh: $1 is not installed, or not on the PATH." >&2 && exit 2; }
fi
job=${SLURM_JOB_ID:-JOB} restarted=${SLURM_RESTART_COUNT:-0}
read -ra evaluate <<<"$EVALUATE"
evaluate=(srun --overlap --nodes=1 --ntasks=1 --output="$LOGS/evaluate_$job.log" "${evaluate[@]}")
# One task that dies ends the others.
train=(srun --kill-on-bad-exit=1 --output="$LOGS/train_${job}_%t.log" "$@")

run mkdir -p "$LOGS"
if [[ -n ${DRY_RUN:-} ]]; then
  if [[ -n $EVALUATE ]]; then run "${evaluate[@]}"; fi
  run "${train[@]}"
  echo "when it has failed or was preempted:"
  run scontrol requeue "$job"
  exit 0
fi

beside='' code=0 asked_to_end=''
if [[ -n $EVALUATE ]]; then
  "${evaluate[@]}" &
  beside=$!
fi
"${train[@]}" &
trainer=$!
# Before the time limit SLURM signals this script alone, and a SIGTERM to srun would kill the tasks before they have
# saved: so they get theirs by scancel. That waits where SLURM is requeueing the job already, so it is not waited for, and
# is ended below: it would signal the next start.
trap 'asked_to_end=1; scancel --signal=TERM "$job" &' TERM
wait "$trainer" || code=$?
while kill -0 "$trainer" 2>/dev/null; do code=0 && wait "$trainer" || code=$?; done # the signal cut the wait short

# Where a partition has a grace time, the tasks alone are signalled on preemption: they save, and end with 0.
if [[ $(scontrol show job "$job") == *PreemptTime=[0-9]* ]]; then asked_to_end=1; fi
if [[ $code -eq 2 ]]; then
  echo "slurm.sh: the command was used wrongly (exit code 2); it is not started again" >&2
elif [[ $code -eq 0 && -z $asked_to_end ]]; then
  trap : TERM
  if [[ -n $beside ]]; then wait "$beside" || echo "slurm.sh: the evaluation ended with exit code $?" >&2; fi
elif ((restarted < RESTARTS)); then
  for one in $(jobs -p); do kill "$one" 2>/dev/null || true; done
  echo "slurm.sh: exit code $code after start $restarted; submitted again, it goes on from the last checkpoint" >&2
  scontrol requeue "$job" || true # not where SLURM itself has done so
else
  echo "slurm.sh: exit code $code after start $restarted; no restart is left" >&2
fi
exit "$code"
