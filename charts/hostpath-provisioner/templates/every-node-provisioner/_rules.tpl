{{/* What the provisioner for every node may do, as a list of rules. The operator's role holds them too. */}}
{{- define "hostpath-provisioner.everyNode.clusterRules" -}}
# patch: its finalizer, which nodes a deleted volume waits for, and whose a retained one may be next.
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
# Whether a node that does not answer is gone for good.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end -}}

{{/* In its own namespace: which nodes have managers, where these are, and which pod of the provisioner works. */}}
{{- define "hostpath-provisioner.everyNode.namespacedRules" -}}
{{- $name := include "hostpath-provisioner.everyNode.manager" . -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [apps]
  resources: [daemonsets]
  resourceNames: [{{ $name }}]
  verbs: [get]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ $name }}]
  verbs: [get, patch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ $name }}]
  verbs: [get, update]
{{- end -}}

{{/* What a manager may do. */}}
{{- define "hostpath-provisioner.everyNode.managerClusterRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
# Whose token it is that somebody shows.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end -}}

{{/* In its own namespace: to say by which certificate it is to be known, and to see whether this node had volumes before. */}}
{{- define "hostpath-provisioner.everyNode.managerNamespacedRules" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "hostpath-provisioner.everyNode.manager" . }}]
  verbs: [get, patch]
{{- end -}}
