#!/usr/bin/env bash
# `make up` makes a cluster, again it keeps that cluster's nodes, and `make down` leaves no container, network or kubeconfig context.
# Images and the cache stay on purpose.
set -euo pipefail
cd "$(dirname "$0")/.."

state() {
  docker ps --all --format 'container {{.Names}}'
  docker network ls --format 'network {{.Name}}'
  kubectl config get-contexts --output=name | sed 's/^/context /'
}
nodes() {
  docker ps --no-trunc --filter label=io.x-k8s.kind.cluster=hpp --format '{{.Names}} {{.ID}}' | sort
}

before=$(state | sort)
make up
made=$(nodes)
test -n "$made" || { echo 'make up made no nodes' >&2; exit 1; }
make up
diff <(echo "$made") <(nodes) || { echo 'the second make up made other nodes' >&2; exit 1; }
make down
diff <(echo "$before") <(state | sort) || { echo 'make down left or took what the lines above name' >&2; exit 1; }
