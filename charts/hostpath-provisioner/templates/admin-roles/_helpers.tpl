{{/* What people may do who administer volumes with `kubectl hpp`. Helm makes it, also beside the operator, which would otherwise have to have these
rights to hand them out. */}}

{{/* Takes (list $ "viewer"). The operator's own role is called `operator`, so these are `admin-…`. */}}
{{- define "hostpath-provisioner.admin.name" -}}
{{- include "hostpath-provisioner.suffixed" (list (index . 0) (printf "admin-%s" (index . 1))) -}}
{{- end -}}

{{/* Commands of /controller that a repairer may run, as a YAML list. Each acts on volumes and pools of this driver and on nothing else. */}}
{{- define "hostpath-provisioner.admin.commands" -}}
[status, volume, pool, work, node]
{{- end -}}

{{/* Those beside them of a mover: they bring directories of a node into a pool, whatever these are. */}}
{{- define "hostpath-provisioner.admin.moverCommands" -}}
[move, directory]
{{- end -}}

{{/* A regular expression of the names of the controller's pods: the Deployment's name, the hash of its template, and five characters. Kubernetes
cuts what stands before these five to 58 characters. */}}
{{- define "hostpath-provisioner.admin.pods" -}}
{{- $name := include "hostpath-provisioner.controller.name" . -}}
^{{ printf "%s-" $name | trunc 58 | regexQuoteMeta }}{{ ternary "[a-z0-9]{0,10}-?" "[a-z0-9]{1,10}-" (gt (len $name) 46) }}[a-z0-9]{5}$
{{- end -}}

{{/* In the whole cluster: what is there. */}}
{{- define "hostpath-provisioner.admin.viewerRules" -}}
- apiGroups: [""]
  resources: [persistentvolumeclaims, persistentvolumes, pods, nodes, events]
  verbs: [get, list, watch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses, csistoragecapacities, csinodes, csidrivers]
  verbs: [get, list, watch]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshots, volumesnapshotcontents, volumesnapshotclasses]
  verbs: [get, list, watch]
- apiGroups: [hostpathprovisioner.kubevirt.io]
  resources: [hostpathprovisioners]
  verbs: [get, list, watch]
{{- end -}}

{{/* In the whole cluster: what a volume gets that nobody's claim has any more. */}}
{{- define "hostpath-provisioner.admin.operatorRules" -}}
# The admission policy holds whoever may not delete them too to those of this driver: a hostPath one would make them root on a node.
- apiGroups: [""]
  resources: [persistentvolumes, persistentvolumeclaims]
  verbs: [create]
# Nothing is called so: by this right the admission policy knows whom it is about.
- apiGroups: [hostpathprovisioner.kubevirt.io]
  resources: [volumes]
  verbs: [adopt]
{{- end -}}

{{/* In the driver's namespace. A Role, and no ClusterRole that is bound there: bound in the whole cluster by mistake, that one would open every
pod. RBAC cannot name a Deployment's pods, nor commands: the admission policy does. */}}
{{- define "hostpath-provisioner.admin.operatorNamespacedRules" -}}
# WebSocket asks for get, and from Kubernetes 1.35 for create too, as SPDY always has.
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [get, create]
{{- end -}}

{{/* In the whole cluster: what a volume leaves behind that moves or changes its driver, whoever's it was. */}}
{{- define "hostpath-provisioner.admin.moverRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes, persistentvolumeclaims]
  verbs: [create, patch, delete]
# Pods are evicted, so that budgets count, and their owners make them again: these are looked at and not scaled.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [apps]
  resources: [deployments, replicasets, statefulsets, daemonsets]
  verbs: [get]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get]
# Those that the kubelet left failing on the node which their volume has left.
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
{{- end -}}

{{/* In the driver's namespace: how far the volumes are that change their driver. */}}
{{- define "hostpath-provisioner.admin.moverNamespacedRules" -}}
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, update, patch, delete]
{{- end -}}
