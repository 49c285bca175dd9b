#!/usr/bin/env bash
# A training run on Kubernetes by JobSet: fills in launch/gke_jobset.yaml, applies it, and follows the hosts' logs until
# the run has ended, over all of its restarts. Stopped and called again, it follows on.
#
#   NAME=eg7b IMAGE=…/vrjax:1 ACCELERATOR=tpu-v5-lite-podslice TOPOLOGY=4x8 CHIPS=4 \
#       launch/gke.sh vrjax train experiments/eg_reasoner_7b.py --mesh.tensor 4 --run-dir gs://bucket/runs/eg7b
#   DRY_RUN=1 …                                        prints the manifest
#
# CHIPS: of one host. LOGS: folder where the logs are kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

RESTARTS=${RESTARTS:-10}
CHIPS=${CHIPS:-4}
LOGS=${LOGS:-runs/logs}
WAIT_S=${WAIT_S:-10}
if [[ $# -eq 0 || -z ${NAME:-} || -z ${IMAGE:-} || -z ${ACCELERATOR:-} || -z ${TOPOLOGY:-} ]]; then
  echo "usage: NAME=… IMAGE=… ACCELERATOR=tpu-v5-lite-podslice TOPOLOGY=4x8 $0 vrjax train EXPERIMENT …" >&2
  exit 2
fi
if [[ ! $NAME =~ ^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$ ]]; then # a part of the pods' host names
  echo "$0: NAME $NAME: give at most 40 small letters, digits and dashes, a letter first." >&2
  exit 2
fi
if [[ ! $TOPOLOGY =~ ^[0-9]+(x[0-9]+)+$ ]]; then
  echo "$0: TOPOLOGY $TOPOLOGY is no size such as 4x8." >&2
  exit 2
fi
chips=$((${TOPOLOGY//x/*}))
if ((chips % CHIPS)); then
  echo "$0: $chips chips of a $TOPOLOGY slice are no multiple of CHIPS=$CHIPS a host." >&2
  exit 2
fi

words=()
for word in "$@"; do # as JSON strings, which YAML reads
  word=${word//\\/\\\\}
  word=${word//$'\n'/\\n}
  words+=("\"${word//\"/\\\"}\"")
done
command="[$(IFS=, && echo "${words[*]}")]"
manifest=$(<"$here/gke_jobset.yaml")
for pair in NAME="$NAME" RESTARTS="$RESTARTS" HOSTS=$((chips / CHIPS)) ACCELERATOR="$ACCELERATOR" \
  TOPOLOGY="$TOPOLOGY" IMAGE="$IMAGE" COMMAND="$command" CHIPS="$CHIPS"; do
  manifest=${manifest//"@${pair%%=*}@"/"${pair#*=}"}
done

if [[ -n ${DRY_RUN:-} ]]; then
  echo "$manifest"
  exit 0
fi
command -v kubectl >/dev/null || { echo "$0: kubectl is not installed." >&2 && exit 2; }
kubectl auth can-i create jobsets.jobset.x-k8s.io >/dev/null || {
  echo "$0: no credentials for a cluster with JobSet. Run: gcloud container clusters get-credentials CLUSTER" >&2
  exit 2
}
kubectl apply -f - <<<"$manifest"
mkdir -p "$LOGS"
state() { kubectl get jobset "$NAME" --output=jsonpath='{.status.terminalState}'; }
while found=$(state) && [[ -z $found ]]; do
  # Ends when the hosts do; before they are there, or have started, it fails or has nothing to say.
  kubectl logs --follow --prefix --tail=-1 --max-log-requests=1000 --selector="app=$NAME" 2>&1 |
    tee -a "$LOGS/$NAME.log" || true
  sleep "$WAIT_S"
done
echo "$NAME: ${found:-cannot be asked for}"
[[ $found == Completed ]]
