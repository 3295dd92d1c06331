{{/* "true" when Helm, or the operator's rendering of this chart, installs the provisioner for every node. */}}
{{- define "hostpath-provisioner.everyNode.rendered" -}}
{{- and .Values.legacyProvisioner.everyNode.enabled (not .Values.operator.enabled) -}}
{{- end -}}

{{- define "hostpath-provisioner.everyNode.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "every-node") -}}
{{- end -}}

{{- define "hostpath-provisioner.everyNode.serviceAccountName" -}}
{{- default (include "hostpath-provisioner.everyNode.name" .) .Values.legacyProvisioner.everyNode.serviceAccount.name -}}
{{- end -}}

{{/* The managers' DaemonSet, the ConfigMap that they write into, and the provisioner's Lease. */}}
{{- define "hostpath-provisioner.everyNode.manager" -}}
{{- include "hostpath-provisioner.suffixed" (list . "every-node-manager") -}}
{{- end -}}

{{- define "hostpath-provisioner.everyNode.managerAccountName" -}}
{{- default (include "hostpath-provisioner.everyNode.manager" .) .Values.legacyProvisioner.everyNode.manager.serviceAccount.name -}}
{{- end -}}

{{/* What both kinds of pods are told. */}}
{{- define "hostpath-provisioner.everyNode.args" -}}
{{- $legacy := .Values.legacyProvisioner -}}
- --name={{ $legacy.everyNode.name }}
- {{ printf "--path=%s" $legacy.everyNode.path | quote }}
- --managers={{ include "hostpath-provisioner.everyNode.manager" . }}
- --http-address=:{{ $legacy.httpPort }}
- --log-level={{ $legacy.logLevel }}
- --log-format={{ $legacy.logFormat }}
{{- with $legacy.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What both kinds of containers are asked. */}}
{{- define "hostpath-provisioner.everyNode.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: http
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  periodSeconds: 5
  timeoutSeconds: 3
{{- end -}}
