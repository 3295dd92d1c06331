{{/* Upstream's sidecars beside the controller. Each elects the one pod where it works. */}}

{{- define "hostpath-provisioner.controller.provisioner" -}}
{{- with .Values.sidecars.provisioner -}}
name: csi-provisioner
image: {{ include "hostpath-provisioner.image" (list $ .image) }}
imagePullPolicy: {{ .image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
args:
  - --csi-address=/csi/csi.sock
  - --leader-election
  - --enable-capacity
  - --strict-topology
  - --immediate-topology=false
  - --extra-create-metadata
  # The Deployment owns the capacity objects: they outlive a pod.
  - --capacity-ownerref-level=2
  - --capacity-poll-interval={{ .capacityPollInterval }}
  - --capacity-threads=4
  - --kube-api-qps={{ .kubeAPIQPS }}
  - --kube-api-burst={{ .kubeAPIBurst }}
  - --kube-api-capacity-qps={{ .capacityQPS }}
  - --kube-api-capacity-burst={{ .capacityBurst }}
  - --timeout=30s
  - --retry-interval-max=1m
  {{- with .httpPort }}
  - --http-endpoint=:{{ . }}
  {{- end }}
  - --v={{ .logLevel }}
  {{- with .extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - name: NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- include "hostpath-provisioner.pod.memoryEnv" . | nindent 2 }}
  {{- with .extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .httpPort }}
{{ include "hostpath-provisioner.controller.sidecarPort" (list "provisioner" .) }}
{{- end }}
resources:
  {{- toYaml .resources | nindent 2 }}
securityContext:
  {{- include "hostpath-provisioner.controller.securityContext" $ | nindent 2 }}
volumeMounts:
  - name: socket-dir
    mountPath: /csi
{{- end -}}
{{- end -}}

{{- define "hostpath-provisioner.controller.resizer" -}}
{{- with .Values.sidecars.resizer -}}
name: csi-resizer
image: {{ include "hostpath-provisioner.image" (list $ .image) }}
imagePullPolicy: {{ .image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
args:
  - --csi-address=/csi/csi.sock
  - --leader-election
  # Growing a volume here never asks for its pods to stop, so they need not be watched.
  - --handle-volume-inuse-error=false
  - --feature-gates=VolumeAttributesClass=false
  - --timeout=30s
  {{- with .httpPort }}
  - --http-endpoint=:{{ . }}
  {{- end }}
  - --v={{ .logLevel }}
  {{- with .extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $memory := include "hostpath-provisioner.pod.memoryEnv" . -}}
{{- if or $memory .extraEnv }}
env:
  {{- $memory | nindent 2 }}
  {{- with .extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with .httpPort }}
{{ include "hostpath-provisioner.controller.sidecarPort" (list "resizer" .) }}
{{- end }}
resources:
  {{- toYaml .resources | nindent 2 }}
securityContext:
  {{- include "hostpath-provisioner.controller.securityContext" $ | nindent 2 }}
volumeMounts:
  - name: socket-dir
    mountPath: /csi
{{- end -}}
{{- end -}}

{{- define "hostpath-provisioner.controller.snapshotter" -}}
{{- with .Values.sidecars.snapshotter -}}
name: csi-snapshotter
image: {{ include "hostpath-provisioner.image" (list $ .image) }}
imagePullPolicy: {{ .image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
args:
  - --csi-address=/csi/csi.sock
  - --leader-election
  - --extra-create-metadata
  # There are no snapshots of several volumes at one moment.
  - --feature-gates=CSIVolumeGroupSnapshot=false
  # A snapshot on btrfs first writes out what its volume has in memory.
  - --timeout=1m
  - --retry-interval-max=1m
  # Who takes backups makes many at once, with five requests each.
  - --kube-api-qps=50
  - --kube-api-burst=100
  {{- with .httpPort }}
  - --http-endpoint=:{{ . }}
  {{- end }}
  - --v={{ .logLevel }}
  {{- with .extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $memory := include "hostpath-provisioner.pod.memoryEnv" . -}}
{{- if or $memory .extraEnv }}
env:
  {{- $memory | nindent 2 }}
  {{- with .extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with .httpPort }}
{{ include "hostpath-provisioner.controller.sidecarPort" (list "snapshotter" .) }}
{{- end }}
resources:
  {{- toYaml .resources | nindent 2 }}
securityContext:
  {{- include "hostpath-provisioner.controller.securityContext" $ | nindent 2 }}
volumeMounts:
  - name: socket-dir
    mountPath: /csi
{{- end -}}
{{- end -}}
