{{/* Names, labels and images. Every template name starts with the chart's name: in a parent chart all names share one space. */}}

{{- define "hostpath-provisioner.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of resource names, as `helm create` does it: the release's name alone when it already holds the chart's. */}}
{{- define "hostpath-provisioner.fullname" -}}
{{- $name := include "hostpath-provisioner.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Full name with a suffix, cut before the suffix so that long names stay distinct. Takes (list $ "suffix"). */}}
{{- define "hostpath-provisioner.suffixed" -}}
{{- $root := index . 0 -}}
{{- $suffix := printf "-%s" (index . 1) -}}
{{- $room := int (sub 63 (len $suffix)) -}}
{{- printf "%s%s" (include "hostpath-provisioner.fullname" $root | trunc $room | trimSuffix "-") $suffix -}}
{{- end -}}

{{- define "hostpath-provisioner.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "hostpath-provisioner.csi.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "csi") -}}
{{- end -}}

{{- define "hostpath-provisioner.csi.serviceAccountName" -}}
{{- default (include "hostpath-provisioner.csi.name" .) .Values.driver.serviceAccount.name -}}
{{- end -}}

{{/* The ports that driver and controller have alike. */}}
{{- define "hostpath-provisioner.driver.ports" -}}
- name: http
  containerPort: {{ .Values.driver.httpPort }}
  protocol: TCP
{{- if .Values.driver.metricsTLS.enabled }}
- name: metrics
  containerPort: {{ .Values.driver.metricsTLS.port }}
  protocol: TCP
{{- end }}
{{- end -}}

{{/* Flags of driver and controller for metrics over TLS, nothing where they are off. */}}
{{- define "hostpath-provisioner.driver.metricsArgs" -}}
{{- with .Values.driver.metricsTLS -}}
{{- if .enabled -}}
- --metrics-tls-address=:{{ .port }}
- --metrics-tls-cert-dir=/etc/hostpath-provisioner-metrics
{{- with .minVersion }}
- --metrics-tls-min-version={{ . }}
{{- end }}
{{- with .cipherSuites }}
- --metrics-tls-cipher-suites={{ join "," . }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Which pod a container of the driver or of the controller is in. */}}
{{- define "hostpath-provisioner.pod.selfEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end -}}

{{/* Selector labels: immutable on a DaemonSet, so neither versions nor the user's labels. Takes (list $ "component"). */}}
{{- define "hostpath-provisioner.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "hostpath-provisioner.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels and annotations of an object or a pod. Takes (list $ "component" labels annotations); the chart's own labels win over the
given ones, those over commonLabels. */}}
{{- define "hostpath-provisioner.marks" -}}
{{- $root := index . 0 -}}
{{- $labels := include "hostpath-provisioner.selectorLabels" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/version" ($root.Chart.AppVersion | toString) -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "hostpath-provisioner" -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $marks := dict "labels" (merge $labels (index . 2) $root.Values.commonLabels) -}}
{{- with merge (dict) (index . 3) $root.Values.commonAnnotations -}}
{{- $_ := set $marks "annotations" . -}}
{{- end -}}
{{- toYaml $marks -}}
{{- end -}}

{{/* Image reference from (list $ image). A global registry replaces the host only: mirrors keep upstream's paths. */}}
{{- define "hostpath-provisioner.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := default $image.registry $root.Values.global.imageRegistry -}}
{{- $tag := default $root.Chart.AppVersion $image.tag -}}
{{- $registry | trimSuffix "/" }}/{{ $image.repository }}:{{ $tag }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "hostpath-provisioner.csi.socketDir" -}}
{{ .Values.kubeletDir }}/plugins/{{ .Values.driver.name }}
{{- end -}}

{{/* "true" when the SecurityContextConstraints are to be rendered. */}}
{{- define "hostpath-provisioner.openshift" -}}
{{- if eq (toString .Values.openshift) "auto" -}}
{{- .Capabilities.APIVersions.Has "security.openshift.io/v1/SecurityContextConstraints" -}}
{{- else -}}
{{- .Values.openshift -}}
{{- end -}}
{{- end -}}

{{/* "true" where volumes can have snapshots, and with the operator where a HostPathProvisioner may ask for them. */}}
{{- define "hostpath-provisioner.snapshots" -}}
{{- if eq (toString .Values.snapshots) "auto" -}}
{{- or .Values.operator.enabled (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1") -}}
{{- else -}}
{{- .Values.snapshots -}}
{{- end -}}
{{- end -}}

{{/* The driver's configuration file. Helm reads numbers as floats and prints large ones as 1e+06; here they stay as written. */}}
{{- define "hostpath-provisioner.csi.config" -}}
{{- $pools := list -}}
{{- range .Values.storagePools -}}
{{- $pool := deepCopy . -}}
{{- if hasKey . "maxVolumes" }}{{ $_ := set $pool "maxVolumes" (int64 .maxVolumes) }}{{ end -}}
{{- if and (hasKey . "reserve") (not (kindIs "string" .reserve)) }}{{ $_ := set $pool "reserve" (int64 .reserve) }}{{ end -}}
{{- $pools = append $pools $pool -}}
{{- end -}}
{{- toYaml (dict "storagePools" $pools) -}}
{{- end -}}

{{/* Security context of the unprivileged containers. Root, because the driver's socket belongs to root. */}}
{{- define "hostpath-provisioner.csi.sidecarSecurityContext" -}}
runAsUser: 0
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- with .Values.sidecars.seLinuxType }}
seLinuxOptions:
  type: {{ . }}
{{- end }}
{{- end -}}

{{/* The chart's own lists, as values.yaml has them (a test compares). They are rendered only without an operator: with one, pools come from
the HostPathProvisioner. */}}
{{- define "hostpath-provisioner.ownLists" -}}
storagePools:
  - name: local
    path: /var/lib/hostpath-provisioner
    reserve: 10%
storageClasses:
  - name: hostpath-local
    storagePool: local
legacyStorageClasses:
  - name: hostpath-provisioner
{{- end -}}

{{/* What the operator takes as its base: all values that are not about the operator or this release, less the chart's own lists. */}}
{{- define "hostpath-provisioner.base" -}}
{{- $own := include "hostpath-provisioner.ownLists" . | fromYaml -}}
{{- $base := omit (deepCopy .Values) "operator" "adminRoles" "extraObjects" "enabled" -}}
{{- range $list := list "storagePools" "storageClasses" -}}
{{- if eq (get $base $list | toYaml) (get $own $list | toYaml) }}{{ $_ := unset $base $list }}{{ end -}}
{{- end -}}
{{- if eq (toYaml $base.legacyProvisioner.storageClasses) (toYaml $own.legacyStorageClasses) -}}
{{- $_ := unset $base.legacyProvisioner "storageClasses" -}}
{{- end -}}
{{- /* Helm's, which may write to Grafana's namespace. */ -}}
{{- $_ := unset $base.monitoring "dashboard" -}}
{{- include "hostpath-provisioner.base.removed" $base -}}
{{- toYaml $base -}}
{{- end -}}

{{/* Sets what a user has removed with null to null again: where it only were missing, the chart's default would come back. Takes the base and
changes it. A test compares with the maps of values.yaml that may lose keys. */}}
{{- define "hostpath-provisioner.base.removed" -}}
{{- $paths := list (list "driver" "updateStrategy" "rollingUpdate") (list "driver" "updateStrategy" "rollingUpdate" "maxUnavailable") -}}
{{- range $at := list (list "driver") (list "controller") (list "legacyProvisioner") -}}
{{- $paths = concat $paths (list (concat $at (list "nodeSelector")) (concat $at (list "nodeSelector" "kubernetes.io/os"))) -}}
{{- end -}}
{{- range $at := list (list "driver") (list "controller") (list "mounter") (list "legacyProvisioner") (list "selftest") (list "sidecars" "provisioner") (list "sidecars" "resizer") (list "sidecars" "snapshotter") (list "sidecars" "nodeDriverRegistrar") (list "sidecars" "livenessProbe") -}}
{{- range list (list "resources") (list "resources" "requests") (list "resources" "requests" "cpu") (list "resources" "requests" "memory") -}}
{{- $paths = append $paths (concat $at .) -}}
{{- end -}}
{{- end -}}
{{- range $at := list (list "driver") (list "controller") (list "sidecars" "provisioner") (list "sidecars" "resizer") (list "sidecars" "snapshotter") -}}
{{- $paths = concat $paths (list (concat $at (list "resources" "limits")) (concat $at (list "resources" "limits" "memory"))) -}}
{{- end -}}
{{- range $path := $paths -}}
{{- $at := $ -}}
{{- range initial $path }}{{ $at = ternary (get (ternary $at dict (kindIs "map" $at)) .) "" (kindIs "map" $at) }}{{ end -}}
{{- if and (kindIs "map" $at) (not (hasKey $at (last $path))) }}{{ $_ := set $at (last $path) nil }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "hostpath-provisioner.operator.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "operator") -}}
{{- end -}}

{{- define "hostpath-provisioner.operator.serviceAccountName" -}}
{{- default (include "hostpath-provisioner.operator.name" .) .Values.operator.serviceAccount.name -}}
{{- end -}}
