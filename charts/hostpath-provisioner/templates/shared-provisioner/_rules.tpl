{{/* What the provisioners of shared storage may do, as a list of rules. The operator's role holds them too. */}}
{{- define "hostpath-provisioner.shared.clusterRules" -}}
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
{{- define "hostpath-provisioner.shared.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames:
    {{- range .Values.legacyProvisioner.shared.instances }}
    - {{ include "hostpath-provisioner.shared.lease" . }}
    {{- end }}
  verbs: [get, update]
{{- end -}}
