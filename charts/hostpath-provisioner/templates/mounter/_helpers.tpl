{{- define "hostpath-provisioner.mounter.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "mounter") -}}
{{- end -}}

{{/* "true" when there is a mounter. */}}
{{- define "hostpath-provisioner.mounter.rendered" -}}
{{- and (not .Values.operator.enabled) (not (empty .Values.mounter.mounts)) -}}
{{- end -}}

{{/*
Beside the driver's own: tolerations that the DaemonSet controller adds to its pods, so that a mounter is wherever the driver is; and
every NoExecute: pods that tolerate such a taint go on using their volumes, and without the mounter the claim could be
detached under them. The operator removes the mounter where no volume is left.
*/}}
{{- define "hostpath-provisioner.mounter.tolerations" -}}
- operator: Exists
  effect: NoExecute
{{- range $key := list "disk-pressure" "memory-pressure" "pid-pressure" "unschedulable" }}
- key: node.kubernetes.io/{{ $key }}
  operator: Exists
  effect: NoSchedule
{{- end }}
{{- end -}}

{{/* What is wrong with pools from claims, as a YAML list of sentences. */}}
{{- define "hostpath-provisioner.problems.mounter" -}}
{{- $problems := list -}}
{{- if not (or .Values.mounter.managed .Values.operator.enabled) -}}
{{- range $i, $pool := .Values.storagePools -}}
{{- if hasKey . "pvcTemplate" -}}
{{- $problems = append $problems (printf "storagePools[%d] %q: pvcTemplate needs the operator, which makes the claims; set operator.enabled, or mount a filesystem at the pool's path on the nodes and set requireMount instead." $i .name) -}}
{{- end -}}
{{- end -}}
{{- if .Values.mounter.mounts -}}
{{- $problems = append $problems "mounter.mounts: it is the operator's to set; set operator.enabled, and give the pools of a HostPathProvisioner a pvcTemplate." -}}
{{- end -}}
{{- end -}}
{{- $devices := list -}}
{{- range .Values.mounter.mounts -}}
{{- if and .block (has .claim $devices) -}}
{{- $problems = append $problems (printf "mounter.mounts: the claim %q is a device, and on node %q it would be mounted a second time; nodes that mount the filesystem of one device at once destroy it." .claim .node) -}}
{{- end -}}
{{- if .block }}{{ $devices = append $devices .claim }}{{ end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
