{{/* What the pods on the nodes may do, as lists of rules: they only read. The operator's own roles hold them too: Kubernetes lets it hand out only what it has. */}}

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
{{- end -}}
