{{/* What the provisioners for network filesystems may do, as a list of rules. The operator's role holds them too. */}}
{{- define "hostpath-provisioner.networkFilesystem.clusterRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* In their own namespace: which pod of an instance works. */}}
{{- define "hostpath-provisioner.networkFilesystem.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames:
    {{- range .Values.legacyProvisioner.shared.instances }}
    - {{ include "hostpath-provisioner.networkFilesystem.lease" . }}
    {{- end }}
  verbs: [get, update]
{{- end -}}
