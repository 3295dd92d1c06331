{{/* The HostPathProvisioner that the values would be. */}}
{{- define "hostpath-provisioner.operator.resource" -}}
{{- $pools := list -}}
{{- range .Values.storagePools -}}
{{- $pool := deepCopy . -}}
{{- if hasKey . "maxVolumes" }}{{ $_ := set $pool "maxVolumes" (int64 .maxVolumes) }}{{ end -}}
{{- /* As a string: the resource's numbers end at 2^31. */ -}}
{{- if and (hasKey . "reserve") (not (kindIs "string" .reserve)) }}{{ $_ := set $pool "reserve" (int64 .reserve | toString) }}{{ end -}}
{{- $pools = append $pools $pool -}}
{{- end -}}
apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata:
  name: hostpath-provisioner
spec:
{{- if or $pools (not .Values.legacyProvisioner.enabled) }}
  storagePools:
    {{- toYaml (default (include "hostpath-provisioner.ownLists" . | fromYaml).storagePools $pools) | nindent 4 }}
{{- else }}
  pathConfig:
    path: {{ .Values.legacyProvisioner.path }}
    useNamingPrefix: {{ .Values.legacyProvisioner.useNamingPrefix }}
{{- end }}
{{- end -}}

{{- define "hostpath-provisioner.operator.notes" -}}
{{- $namespace := include "hostpath-provisioner.namespace" . -}}
{{- $resource := include "hostpath-provisioner.operator.resource" . -}}
{{- $classes := (include "hostpath-provisioner.base" . | fromYaml).storageClasses -}}
{{ .Chart.Name }} {{ .Chart.AppVersion }}: the operator is installed. It serves no volume until there is a HostPathProvisioner.

Next:

# The driver's container is privileged (it mounts volumes for pods). Where Pod Security is enforced, its namespace must say so:
kubectl label namespace {{ $namespace }} --overwrite pod-security.kubernetes.io/enforce=privileged

# Wait for the operator. It brings the definition of HostPathProvisioner; until it is ready the API server refuses every one.
kubectl --namespace {{ $namespace }} rollout status deployment/{{ include "hostpath-provisioner.operator.name" . }}

{{- if .Capabilities.APIVersions.Has "hostpathprovisioner.kubevirt.io/v1beta1/HostPathProvisioner" }}

# This cluster has known HostPathProvisioners before. If there is one, apply no other: its condition NotServed says what it waits for.
# If kubevirt's operator made it: docs/how-to/take-over-from-kubevirt.md, step 2.
kubectl describe hostpathprovisioners

# Only if there is none:
{{- end }}
# The HostPathProvisioner that these values stand for; its lists replace theirs:
kubectl apply -f - <<EOF
{{ $resource }}
EOF

# Is it served?
kubectl wait hostpathprovisioners/hostpath-provisioner --for=condition=Available --timeout=5m
kubectl describe hostpathprovisioners/hostpath-provisioner
{{- if $classes }}

StorageClasses, each as soon as its pool is there:
{{- range $classes }}
  {{ .name }}: {{ default "WaitForFirstConsumer" .volumeBindingMode }}, {{ default "Delete" .reclaimPolicy }}{{ if .default }}, the cluster's default{{ end }}
{{- end }}
{{- else }}
{{- $spec := ($resource | fromYaml).spec }}

# The operator makes no StorageClass unless storageClasses names one. One to begin with:
kubectl apply -f - <<EOF
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: hostpath-csi
provisioner: {{ .Values.driver.name }}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
parameters:
  storagePool: {{ if $spec.storagePools }}{{ (first $spec.storagePools).name }}{{ else }}legacy{{ end }}
EOF
{{- end }}

The operator keeps the HostPathProvisioner's definition at its own version; Helm neither installs nor updates it.

To uninstall: delete the claims whose data may go, then the HostPathProvisioner, then the release. helm uninstall refuses while a
HostPathProvisioner exists. It leaves the definition, and on the nodes the pools' directories and {{ .Values.driver.stateDir }}.
{{- end -}}
