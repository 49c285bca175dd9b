#!/usr/bin/env bash
# A training run on Kubernetes by JobSet: fills in launch/gke_jobset.yaml, applies it, and follows the first host's log.
#
#   NAME=eg7b IMAGE=…/vrjax:1 ACCELERATOR=tpu-v5-lite-podslice TOPOLOGY=4x8 CHIPS=4 \
#       launch/gke.sh vrjax train experiments/eg_reasoner_7b.py --mesh.tensor 4 --run-dir gs://bucket/runs/eg7b
#   DRY_RUN=1 …                                        prints the manifest
#
# CHIPS: of one host.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

RESTARTS=${RESTARTS:-10}
CHIPS=${CHIPS:-4}
if [[ $# -eq 0 || -z ${NAME:-} || -z ${IMAGE:-} || -z ${ACCELERATOR:-} || -z ${TOPOLOGY:-} ]]; then
  echo "usage: NAME=… IMAGE=… ACCELERATOR=tpu-v5-lite-podslice TOPOLOGY=4x8 $0 vrjax train EXPERIMENT …" >&2
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
kubectl wait --for=condition=ready pod -l "app=$NAME" --timeout=1h
kubectl logs -f "jobset/$NAME" || kubectl logs -f -l "app=$NAME" --max-log-requests=64
