{{/* What the controller's pods may do, as lists of rules, by container. The operator's own roles hold them too: Kubernetes lets it hand out only
what it has. */}}

{{/* Its own container, in the whole cluster. */}}
{{- define "hostpath-provisioner.controller.ownRules" -}}
# Which volume is on which node, and whether that node is gone.
- apiGroups: [""]
  resources: [persistentvolumes, nodes]
  verbs: [get, list, watch]
# A volume that has moved to another node gets its PersistentVolume anew, since Kubernetes lets nobody change where one is.
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [create, patch, delete]
# Which cluster this is: by that UID a shared pool is told from another cluster's.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
# On which nodes the driver is.
- apiGroups: [storage.k8s.io]
  resources: [csinodes]
  verbs: [list, watch]
# Which claims wait for a volume. patch: writes down which node a claim with immediate binding got, and has Kubernetes look at the claim of a
# volume that has moved.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [list, watch]
# Which node it is that connects.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
# What nodes say, for people: they may not write it themselves.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* Its own container, in its own namespace. */}}
{{- define "hostpath-provisioner.controller.ownNamespacedRules" -}}
# How the pools of a node are stands in the conditions of the driver's pod there. RBAC cannot name conditions: an admission policy does.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
# The CA that nodes trust, where drivers older than 0.1.0 look for it too, and the certificate.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "hostpath-provisioner.controller.ca" . }}, {{ include "hostpath-provisioner.controller.olderCA" . }}]
  verbs: [get{{ if ne .Values.controller.certificates "openshift" }}, patch{{ end }}]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "hostpath-provisioner.controller.certificateSecret" . }}]
  verbs: [get{{ if eq .Values.controller.certificates "self-managed" }}, patch{{ end }}]
# Which filesystem each shared pool is, and which volumes are being moved.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "hostpath-provisioner.controller.sharedPools" . }}, {{ include "hostpath-provisioner.controller.moves" . }}]
  verbs: [get, patch]
{{- end -}}

{{/* csi-provisioner, in the whole cluster. */}}
{{- define "hostpath-provisioner.controller.provisionerRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, create, patch, delete]
# update: sends a claim back to the scheduler.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, update]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list, watch]
# The topology of the nodes.
- apiGroups: [storage.k8s.io]
  resources: [csinodes]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* csi-provisioner, in its own namespace. */}}
{{- define "hostpath-provisioner.controller.provisionerNamespacedRules" -}}
- apiGroups: [storage.k8s.io]
  resources: [csistoragecapacities]
  verbs: [get, list, watch, create, update, delete]
# From its own pod to the Deployment, which owns the capacity objects.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get]
{{- end -}}

{{/* csi-resizer, in the whole cluster. It asks for no pods: with --handle-volume-inuse-error=false it does not watch them. */}}
{{- define "hostpath-provisioner.controller.resizerRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [persistentvolumeclaims/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* csi-provisioner and csi-snapshotter, in the whole cluster, for snapshots. */}}
{{- define "hostpath-provisioner.controller.snapshotRules" -}}
# csi-provisioner. update: a finalizer, so that no snapshot goes while a volume is made from it.
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshots]
  verbs: [get, list, watch, update]
# csi-provisioner reads them too. The controller lists them to know which snapshots are nobody's.
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshotcontents]
  verbs: [get, list, watch, patch]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshotcontents/status]
  verbs: [update, patch]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshotclasses]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* All containers, in their own namespace. */}}
{{- define "hostpath-provisioner.controller.leaseRules" -}}
{{- $lease := .Values.driver.name | replace "." "-" -}}
# Which of the pods leads, for each container.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "hostpath-provisioner.controller.name" . }}, {{ $lease }}, external-resizer-{{ $lease }}{{ if eq (include "hostpath-provisioner.snapshots" .) "true" }}, external-snapshotter-leader-{{ $lease }}{{ end }}]
  verbs: [get, update]
{{- end -}}
