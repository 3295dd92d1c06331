{{/* What the pods on the nodes may do, as lists of rules. The operator's own roles hold them too: Kubernetes lets it hand out only what it has. */}}

{{/* In the whole cluster. */}}
{{- define "hostpath-provisioner.csi.driverRules" -}}
# Its own node's labels, for a pool's nodeSelector.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
# Is this directory without a record somebody's volume?
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* In its own namespace. */}}
{{- define "hostpath-provisioner.csi.driverNamespacedRules" -}}
# Whom to trust as the controller.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "hostpath-provisioner.controller.ca" . }}, {{ include "hostpath-provisioner.controller.olderCA" . }}]
  verbs: [get]
# Whether the driver stays on the node when its pod ends.
- apiGroups: [apps]
  resources: [daemonsets]
  resourceNames: [{{ include "hostpath-provisioner.csi.name" . }}]
  verbs: [get]
{{- if .Values.driver.reportPools }}
{{ include "hostpath-provisioner.csi.reportRules" . }}
{{- end }}
{{- end -}}

{{/* With driver.reportPools, in its own namespace. */}}
{{- define "hostpath-provisioner.csi.reportRules" -}}
# Whether each pool is there stands in the conditions of its own pod.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end -}}
