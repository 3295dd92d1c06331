{{/* What the operator needs for itself, in the whole cluster. An object is created by name only, so `create` cannot be held to one; changing
and removing can, wherever the release fixes the names. */}}
{{- define "hostpath-provisioner.operator.rules" -}}
{{- $roles := list -}}
{{- range list "csi-driver" "controller" "csi-provisioner" "csi-controller" "csi-resizer" "csi-scc" "legacy" "legacy-scc" "shared" "shared-scc" "every-node" "every-node-manager" "every-node-scc" -}}
{{- $roles = append $roles (include "hostpath-provisioner.suffixed" (list $ .)) -}}
{{- end -}}
{{- $constraints := list (include "hostpath-provisioner.csi.name" .) (include "hostpath-provisioner.suffixed" (list . "legacy")) (include "hostpath-provisioner.networkFilesystem.name" .) (include "hostpath-provisioner.everyNode.manager" .) -}}
- apiGroups: [hostpathprovisioner.kubevirt.io]
  resources: [hostpathprovisioners]
  verbs: [get, list, watch, update, patch]
- apiGroups: [hostpathprovisioner.kubevirt.io]
  resources: [hostpathprovisioners/status]
  verbs: [get, update, patch]
# Where owners are enforced, whoever names one as a blocking owner needs this.
- apiGroups: [hostpathprovisioner.kubevirt.io]
  resources: [hostpathprovisioners/finalizers]
  verbs: [update]
# Its own definition, and whether those of OpenShift and of the Prometheus operator are there.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get, list, watch, create]
# The status has the versions in which objects may be stored.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions, customresourcedefinitions/status]
  resourceNames: [hostpathprovisioners.hostpathprovisioner.kubevirt.io]
  verbs: [patch]
# The caBundle.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  verbs: [get, list, watch]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  resourceNames: [{{ include "hostpath-provisioner.operator.name" . }}]
  verbs: [update, patch]
# Which volumes are left, and on which nodes.
- apiGroups: [""]
  resources: [nodes, persistentvolumes]
  verbs: [get, list, watch]
# Whether another namespace has the claims of a pool, as those that kubevirt's operator made.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list]
# OpenShift's TLS policy.
- apiGroups: [config.openshift.io]
  resources: [apiservers]
  verbs: [get, list, watch]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# What it applies. Values give these their names, and a class that is no longer among them has to go too.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshotclasses]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
  verbs: [get, list, watch, create]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
  resourceNames: [{{ include "hostpath-provisioner.controller.name" . }}, {{ include "hostpath-provisioner.legacy.name" . }}]
  verbs: [patch, delete]
- apiGroups: [storage.k8s.io]
  resources: [csidrivers]
  verbs: [get, list, watch, create]
- apiGroups: [storage.k8s.io]
  resources: [csidrivers]
  resourceNames: [{{ .Values.driver.name }}]
  verbs: [patch, delete]
# A name stays in these lists when a later version renders it no more: else that version could not remove it.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles, clusterrolebindings]
  verbs: [get, list, watch, create]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles, clusterrolebindings]
  resourceNames:
    {{- toYaml $roles | nindent 4 }}
  verbs: [patch, delete]
- apiGroups: [security.openshift.io]
  resources: [securitycontextconstraints]
  verbs: [get, list, watch, create]
# use: only who may use a constraint may let others use it.
- apiGroups: [security.openshift.io]
  resources: [securitycontextconstraints]
  resourceNames:
    {{- toYaml $constraints | nindent 4 }}
  verbs: [patch, delete, use]
{{- end -}}

{{/* What the operator needs for itself, in its own namespace. */}}
{{- define "hostpath-provisioner.operator.namespacedRules" -}}
# What it applies.
- apiGroups: [""]
  resources: [configmaps, services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [daemonsets, deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [cert-manager.io]
  resources: [certificates, issuers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors, servicemonitors, prometheusrules]
  verbs: [get, list, watch, create, patch, delete]
# The driver's pods: their conditions say how the pools are.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Claims that provide pools with their filesystems. It makes them and never removes them: volumes may be on them.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create]
# The webhook's certificate.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "hostpath-provisioner.operator.certificateSecret" . }}]
  verbs: [get, list, watch{{ if eq .Values.operator.webhook.certificates "self-managed" }}, update{{ end }}]
# The controller's certificate, whoever makes it: whoever changes the base values by hand does not render these rights again.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "hostpath-provisioner.suffixed" (list . "controller-tls") }}, {{ include "hostpath-provisioner.suffixed" (list . "controller-certificate") }}]
  verbs: [get, patch]
# Which of its pods leads.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [hostpath-provisioner-operator]
  verbs: [get, update, patch]
{{- end -}}
