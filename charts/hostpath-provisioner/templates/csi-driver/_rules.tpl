{{/* What the driver's pods may do, as lists of rules. The operator's own roles hold them too: Kubernetes lets it hand out only what it has. */}}

{{/* The driver container, in the whole cluster. */}}
{{- define "hostpath-provisioner.csi.driverRules" -}}
# Its own node's labels, for a pool's nodeSelector.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
# Is this directory without a record somebody's volume?
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* The driver container, in its own namespace; only with driver.reportPools. */}}
{{- define "hostpath-provisioner.csi.driverNamespacedRules" -}}
# Whether each pool is there stands in the conditions of its own pod.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end -}}

{{/* csi-provisioner with --node-deployment: it looks nodes up nowhere but in the driver. */}}
{{- define "hostpath-provisioner.csi.provisionerRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, create, patch, delete]
# update: takes a claim with immediate binding for its node, or sends it back to the scheduler.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, update]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* csi-provisioner, in its own namespace. */}}
{{- define "hostpath-provisioner.csi.provisionerNamespacedRules" -}}
- apiGroups: [storage.k8s.io]
  resources: [csistoragecapacities]
  verbs: [get, list, watch, create, update, delete]
# Its own pod names the DaemonSet that owns the capacity objects.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- end -}}

{{/* The driver container beside csi-resizer, in the whole cluster: which volume of whom may grow on which node. */}}
{{- define "hostpath-provisioner.csi.controllerRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes, persistentvolumeclaims]
  verbs: [get, list]
# Which classes make volumes in a pool.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [list]
{{- end -}}

{{/* The same, in its own namespace. */}}
{{- define "hostpath-provisioner.csi.controllerNamespacedRules" -}}
# How much room the nodes have published.
- apiGroups: [storage.k8s.io]
  resources: [csistoragecapacities]
  verbs: [list]
{{- end -}}

{{/* csi-resizer. It asks for no pods: with --handle-volume-inuse-error=false it does not watch them. */}}
{{- define "hostpath-provisioner.csi.resizerRules" -}}
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

{{/* csi-resizer, in its own namespace. */}}
{{- define "hostpath-provisioner.csi.resizerNamespacedRules" -}}
# Which of its pods leads.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [external-resizer-{{ .Values.driver.name | replace "." "-" }}]
  verbs: [get, update]
{{- end -}}
