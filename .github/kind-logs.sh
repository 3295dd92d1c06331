#!/usr/bin/env bash
# The logs of every kind cluster that a job has left behind, as artifacts/kind/<cluster>: of one that was cut short, nothing else tells.
set -euo pipefail
cd "$(dirname "$0")/.."

kind() { go -C tests run sigs.k8s.io/kind "$@"; }

clusters=$(kind get clusters)
for cluster in $clusters; do
  kind export logs --name "$cluster" "$PWD/artifacts/kind/$cluster"
done
