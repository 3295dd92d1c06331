{{/* What taking over from kubevirt's operator needs, wherever that one ran. What is removed is named; what is only looked for by its labels
cannot be. */}}
{{- define "hostpath-provisioner.operator.takeoverRules" -}}
# What runs of kubevirt's: its operator, what that one deployed, and the pods of both.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [operators.coreos.com]
  resources: [clusterserviceversions, subscriptions]
  verbs: [list]
- apiGroups: [apps]
  resources: [daemonsets]
  resourceNames: [hostpath-provisioner, hostpath-provisioner-csi]
  verbs: [list, delete]
# The webhook of an operator that is no more, which refuses every change of a HostPathProvisioner.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  resourceNames: [hostpathprovisioner.kubevirt.io]
  verbs: [delete]
# What is left.
- apiGroups: [security.openshift.io]
  resources: [securitycontextconstraints]
  resourceNames: [hostpath-provisioner, hostpath-provisioner-csi]
  verbs: [list, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles, clusterrolebindings]
  resourceNames: [hostpath-provisioner, hostpath-provisioner-admin-csi]
  verbs: [list, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  resourceNames: [hostpath-provisioner-admin-csi, hostpath-provisioner-monitoring]
  verbs: [list, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  resourceNames: [hostpath-provisioner-admin, hostpath-provisioner-admin-csi]
  verbs: [list, delete]
- apiGroups: [""]
  resources: [services]
  resourceNames: [hpp-prometheus-metrics]
  verbs: [list, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [prometheusrules]
  resourceNames: [prometheus-hpp-rules]
  verbs: [list, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors]
  resourceNames: [service-monitor-hpp]
  verbs: [list, delete]
{{- end -}}

{{/* In its own namespace: Jobs of kubevirt's that unmount a pool. Their names are hashed. */}}
{{- define "hostpath-provisioner.operator.takeoverNamespacedRules" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, delete]
{{- end -}}
