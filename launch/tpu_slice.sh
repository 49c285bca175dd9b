#!/usr/bin/env bash
# A training run on a TPU slice by queued resources: asks for it, waits, runs on all hosts, and asks again when it is
# preempted; the run goes on from its last checkpoint.
#
#   NAME=eg7b ZONE=us-west4-a TYPE=v5litepod-32 launch/tpu_slice.sh vrjax train experiments/eg_reasoner_7b.py \
#       --mesh.tensor 4 --run-dir gs://bucket/runs/eg7b
#   DRY_RUN=1 …                                        prints what it would do
#
# CODE: directory that is copied to each host and installed (default: this one); SPOT=1 asks for preemptible chips;
# EVALUATE="env JAX_PLATFORMS=cpu vrjax evaluate … --watch …" runs beside the training on the first host, whose chips the
# training holds. When the last step has been taken it is waited for, at most EVALUATE_S; its log is kept with the others.
set -euo pipefail

RUNTIME=${RUNTIME:-v2-alpha-tpuv5-lite}
RESTARTS=${RESTARTS:-10}
WAIT_S=${WAIT_S:-30}
CODE=${CODE:-.}
LOGS=${LOGS:-runs/logs}
EVALUATE=${EVALUATE:-}
EVALUATE_S=${EVALUATE_S:-3600}

if [[ $# -eq 0 || -z ${NAME:-} || -z ${ZONE:-} || -z ${TYPE:-} ]]; then
  echo "usage: NAME=… ZONE=… TYPE=v5litepod-32 $0 vrjax train EXPERIMENT …" >&2
  exit 2
fi
if [[ -z ${DRY_RUN:-} ]]; then
  command -v gcloud >/dev/null || { echo "$0: gcloud is not installed (Google Cloud CLI)." >&2 && exit 2; }
  account=$(gcloud auth list --filter=status:ACTIVE --format='value(account)' 2>/dev/null || true)
  [[ -n $account ]] || { echo "$0: gcloud has no credentials. Run: gcloud auth login" >&2 && exit 2; }
fi
run() {
  if [[ -n ${DRY_RUN:-} ]]; then printf '%q ' "$@" && echo; else "$@"; fi
}
state() { # of the request: ACCEPTED, PROVISIONING, ACTIVE, SUSPENDED (preempted), FAILED; nothing where there is none
  gcloud compute tpus queued-resources describe "$NAME" --zone "$ZONE" --format='value(state.state)' 2>/dev/null || true
}
on_hosts() { # WHERE COMMAND: on all hosts or one
  run gcloud compute tpus tpu-vm ssh "$NAME" --zone "$ZONE" --worker="$1" --command="$2"
}

ask=(gcloud compute tpus queued-resources create "$NAME" --node-id "$NAME" --zone "$ZONE" --accelerator-type "$TYPE"
  --runtime-version "$RUNTIME")
if [[ -n ${SPOT:-} ]]; then ask+=(--spot); fi
discard=(gcloud compute tpus queued-resources delete "$NAME" --zone "$ZONE" --force --quiet)
# A slice's hosts know each other by their metadata; vrjax.processes reads these two.
# shellcheck disable=SC2016 # the hosts' shells expand these
known='attributes=http://metadata.google.internal/computeMetadata/v1/instance/attributes
get() { curl -sf -H "Metadata-Flavor: Google" "$attributes/$1"; }
export TPU_WORKER_ID=$(get agent-worker-number)
export TPU_WORKER_HOSTNAMES=$(get worker-network-endpoints | tr , "\n" | cut -d: -f3 | paste -sd,)'
printf -v train '%q ' "$@"
commit=$(git -C "$CODE" describe --always --dirty 2>/dev/null || true) # for environment.json
train="$known && export VRJAX_COMMIT=$commit && cd vrjax_code && $train"
evaluate="cd vrjax_code; kill \$(cat evaluate.pid) 2>/dev/null
nohup $EVALUATE >>evaluate.log 2>&1 </dev/null & echo \$! >evaluate.pid"
evaluated="timeout $EVALUATE_S tail --pid=\$(cat vrjax_code/evaluate.pid) -f /dev/null"
finish() { # after the last step
  if [[ -n $EVALUATE ]]; then
    on_hosts 0 "$evaluated" || echo "$0: the evaluation goes on after $EVALUATE_S s, and is given up" >&2
    run gcloud compute tpus tpu-vm scp "$NAME:vrjax_code/evaluate.log" "$LOGS/${NAME}_evaluate.log" --zone "$ZONE" || true
  fi
  run "${discard[@]}"
}

for ((attempt = 0; attempt <= RESTARTS; attempt++)); do
  if [[ -n ${DRY_RUN:-} ]]; then
    run "${ask[@]}"
    echo "wait until $NAME is ACTIVE, looking every $WAIT_S s"
  else
    if [[ -z $(state) ]]; then "${ask[@]}"; fi
    while found=$(state) && [[ $found != ACTIVE ]]; do
      if [[ $found == FAILED || $found == SUSPENDED ]]; then "${discard[@]}" && "${ask[@]}"; fi
      echo "$NAME: ${found:-not there yet}"
      sleep "$WAIT_S"
    done
  fi
  run gcloud compute tpus tpu-vm scp --recurse "$CODE" "$NAME:vrjax_code" --zone "$ZONE" --worker=all
  on_hosts all "pip install --quiet './vrjax_code[tpu]'"
  if [[ -n $EVALUATE ]]; then on_hosts 0 "$evaluate"; fi
  run mkdir -p "$LOGS"
  code=0
  if [[ -n ${DRY_RUN:-} ]]; then
    on_hosts all "$train"
    finish
    exit 0
  fi
  on_hosts all "$train" 2>&1 | tee -a "$LOGS/${NAME}_$attempt.log" || code=$?
  if [[ $code -eq 0 ]]; then
    finish
    exit 0
  fi
  if [[ $code -eq 2 ]]; then
    echo "$0: the command was used wrongly (exit code 2); the slice is kept" >&2
    exit 2
  fi
  echo "$0: attempt $attempt ended with $code (slice: $(state)); starting again from the last checkpoint" >&2
done
echo "$0: no attempt is left; the slice is kept. Delete it with: ${discard[*]}" >&2
exit 1
