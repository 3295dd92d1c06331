{{/* What the legacy provisioner's pods may do, as a list of rules. The operator's role holds them too: Kubernetes lets it hand out only
what it has. */}}
{{- define "hostpath-provisioner.legacy.clusterRules" -}}
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, create, delete]
# patch: selects its node for a claim whose annotation names it. update: sends a claim back to the scheduler.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, update]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
# Its own node's hostname label; which nodes there are when an annotation names none of them.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list]
{{- end -}}

{{- define "hostpath-provisioner.legacy.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "legacy") -}}
{{- end -}}

{{- define "hostpath-provisioner.legacy.serviceAccountName" -}}
{{- default (include "hostpath-provisioner.legacy.name" .) .Values.legacyProvisioner.serviceAccount.name -}}
{{- end -}}

{{/* Where the pods of the legacy provisioners run. Takes (list $ their tolerations). */}}
{{- define "hostpath-provisioner.legacy.scheduling" -}}
{{- $root := index . 0 -}}
{{- $values := set (omit $root.Values.legacyProvisioner "tolerations") "tolerations" (index . 1) -}}
{{- include "hostpath-provisioner.pod.scheduling" (dict "root" $root "values" $values "priority" "system-node-critical") -}}
{{- end -}}

{{/* "true" when Helm, or the operator's rendering of this chart, installs the legacy provisioner. */}}
{{- define "hostpath-provisioner.legacy.rendered" -}}
{{- and .Values.legacyProvisioner.enabled (not .Values.operator.enabled) -}}
{{- end -}}
