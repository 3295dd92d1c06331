#!/usr/bin/env bash
# The operator with the current cert-manager, as a user installs both: the chart's own issuer signs the webhook's certificate, the
# custom resource is admitted, and its driver becomes available. VERSION names the release of cert-manager.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:?names the release of cert-manager, such as v1.21.2}

kind() { go -C tests run sigs.k8s.io/kind "$@"; } # the version of tests/go.mod, and with it the node image

end() {
  status=$?
  if ((status)); then .github/kind-logs.sh || true; fi
  kind delete cluster --name hpp-cert-manager
  exit "$status"
}
trap end EXIT
kind create cluster --name hpp-cert-manager --wait 3m
kubectl apply --filename "https://github.com/cert-manager/cert-manager/releases/download/$version/cert-manager.yaml"
kubectl --namespace cert-manager wait --for=condition=Available --timeout=3m deployment --all

go -C tools/images run . --version ci --platforms linux/amd64 --output "$PWD/artifacts/images"
for name in controller driver operator selftest; do
  skopeo copy "oci:artifacts/images/$name:ci" "docker-archive:artifacts/$name.tar:ghcr.io/hostpath-provisioner/$name:ci"
  kind load image-archive "$PWD/artifacts/$name.tar" --name hpp-cert-manager
done
kubectl create namespace hostpath-provisioner
kubectl label namespace hostpath-provisioner pod-security.kubernetes.io/enforce=privileged
"$(go -C tools run ./install helm4)" install hpp charts/hostpath-provisioner --namespace hostpath-provisioner --wait --timeout 5m \
  --set operator.enabled=true --set operator.webhook.certificates=cert-manager \
  --set-string operator.image.tag=ci --set-string driver.image.tag=ci --set-string controller.image.tag=ci \
  --set-string selftest.image.tag=ci
kubectl apply --filename - <<'CR'
apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata:
  name: hostpath-provisioner
spec:
  storagePools:
    - name: local
      path: /var/hpvolumes
CR
kubectl wait --for=condition=Available --timeout=5m hostpathprovisioner/hostpath-provisioner
# The webhook is asked, and answers: this one has to be refused by its rule on system directories.
if message=$(kubectl patch hostpathprovisioner hostpath-provisioner --type=merge \
  --patch '{"spec":{"storagePools":[{"name":"local","path":"/etc"}]}}' 2>&1); then
  echo 'a pool in /etc was accepted' >&2
  exit 1
fi
grep --quiet 'spec.storagePools\[0\].path' <<<"$message" || { echo "refused, but not by the webhook: $message" >&2; exit 1; }
