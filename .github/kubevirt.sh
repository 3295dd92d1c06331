#!/usr/bin/env bash
# Takes over kubevirt's own operator and driver, from the images that kubevirt has published, as docs/how-to/take-over-from-kubevirt.md
# says. VERSION names kubevirt's release, CERT_MANAGER that of cert-manager, which its webhook needs. Not run where no image can be pulled.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:?names a release of kubevirt/hostpath-provisioner-operator, such as v0.25.2}
certificates=${CERT_MANAGER:?names a release of cert-manager, such as v1.21.2}
manifests=https://raw.githubusercontent.com/kubevirt/hostpath-provisioner-operator/$version/deploy
space=hostpath-provisioner
chart=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}/\1/p' charts/hostpath-provisioner/Chart.yaml)

kind() { go -C tests run sigs.k8s.io/kind "$@"; } # the version of tests/go.mod, and with it the node image

end() {
  status=$?
  if ((status)); then .github/kind-logs.sh || true; fi
  kind delete cluster --name hpp-kubevirt
  exit "$status"
}
trap end EXIT

# use NAME: a claim of kubevirt's class, and a pod that appends a line a second to a file in it.
use() {
  kubectl apply --filename - << YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1}
spec: {storageClassName: kubevirt, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  containers:
    - name: writer
      image: busybox:1.37
      command: [sh, -c, "while date >> /data/dates; do sleep 1; done"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: $1}}]
YAML
  kubectl wait --for=condition=Ready --timeout=5m "pod/$1"
}
lines() { kubectl exec "$1" -- wc -l /data/dates | cut -d' ' -f1; }

kind create cluster --name hpp-kubevirt --wait 3m
kubectl apply --filename "https://github.com/cert-manager/cert-manager/releases/download/$certificates/cert-manager.yaml"
kubectl --namespace cert-manager wait --for=condition=Available --timeout=3m deployment --all
kubectl apply --filename "$manifests/namespace.yaml"
kubectl apply --namespace "$space" --filename "$manifests/webhook.yaml" --filename "$manifests/operator.yaml"
# The manifests of a tag may name the newest images: those of the release are meant.
kubectl --namespace "$space" set image deployment/hostpath-provisioner-operator \
  "*=quay.io/kubevirt/hostpath-provisioner-operator:$version"
kubectl --namespace "$space" rollout status --timeout=5m deployment/hostpath-provisioner-operator
kubectl apply --filename - << 'YAML'
apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata: {name: hostpath-provisioner}
spec:
  imagePullPolicy: IfNotPresent
  storagePools: [{name: local, path: /var/hpvolumes}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: kubevirt}
provisioner: kubevirt.io.hostpath-provisioner
volumeBindingMode: WaitForFirstConsumer
parameters: {storagePool: local}
YAML
kubectl wait --for=condition=Available --timeout=10m hostpathprovisioner/hostpath-provisioner
use before

go -C tools/images run . --version "$chart" --platforms linux/amd64 --output "$PWD/artifacts/images"
for name in controller driver operator selftest; do
  skopeo copy "oci:artifacts/images/$name:$chart" "docker-archive:artifacts/$name.tar:ghcr.io/hostpath-provisioner/$name:$chart"
  kind load image-archive "$PWD/artifacts/$name.tar" --name hpp-kubevirt
done
kubectl label namespace "$space" --overwrite pod-security.kubernetes.io/enforce=privileged
"$(go -C tools run ./install helm4)" install hpp charts/hostpath-provisioner --namespace "$space" --set operator.enabled=true
kubectl --namespace "$space" rollout status --timeout=5m deployment/hpp-hostpath-provisioner-operator
kubectl --namespace "$space" scale deployment hostpath-provisioner-operator --replicas=0
kubectl wait hostpathprovisioners/hostpath-provisioner --for=jsonpath="{.status.observedVersion}=$chart" --timeout=15m
kubectl wait --for=condition=Available --timeout=5m hostpathprovisioner/hostpath-provisioner

# The pod has written all the time, a new pod finds what the old one wrote, and a new claim is served.
written=$(lines before)
kubectl delete pod before --wait
use before
after=$(lines before)
((written > 0 && after >= written)) || { echo "of $written lines $after are left" >&2; exit 1; }
use after
