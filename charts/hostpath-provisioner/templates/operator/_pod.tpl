{{/* What the operator's pods and the uninstall check share. All of it passes Pod Security's `restricted`. */}}

{{- define "hostpath-provisioner.operator.podSpec" -}}
{{- $operator := .Values.operator -}}
serviceAccountName: {{ include "hostpath-provisioner.operator.serviceAccountName" . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{ include "hostpath-provisioner.pod.scheduling" (dict "root" . "values" $operator "priority" "system-cluster-critical") }}
{{- with include "hostpath-provisioner.pod.pullSecrets" . }}
{{ . | trim }}
{{- end }}
securityContext:
  # The image names its user; OpenShift chooses another, whatever this chart was rendered for.
  {{- include "hostpath-provisioner.pod.over" (list "{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}" $operator.podSecurityContext) | nindent 2 }}
{{- end -}}

{{/* Annotations of the pods, as YAML. Takes (list $ annotations). */}}
{{- define "hostpath-provisioner.operator.podAnnotations" -}}
{{- $annotations := dict -}}
{{- if eq (include "hostpath-provisioner.openshift" (index . 0)) "true" -}}
{{- $_ := set $annotations "openshift.io/required-scc" "restricted-v2" -}}
{{- end -}}
{{- toYaml (merge $annotations (index . 1)) -}}
{{- end -}}

{{- define "hostpath-provisioner.operator.container" -}}
image: {{ include "hostpath-provisioner.image" (list . .Values.operator.image) }}
imagePullPolicy: {{ .Values.operator.image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
resources:
  {{- toYaml .Values.operator.resources | nindent 2 }}
securityContext:
  {{- include "hostpath-provisioner.pod.over" (list "{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}" .Values.operator.securityContext) | nindent 2 }}
{{- end -}}

{{/* The Secret with the serving certificate. The operator writes one that Helm has made; another maker gets a name that is free. */}}
{{- define "hostpath-provisioner.operator.certificateSecret" -}}
{{- if eq .Values.operator.webhook.certificates "existingSecret" -}}
{{- .Values.operator.webhook.existingSecret -}}
{{- else -}}
{{- include "hostpath-provisioner.suffixed" (list . (ternary "operator-tls" "operator-certificate" (eq .Values.operator.webhook.certificates "self-managed"))) -}}
{{- end -}}
{{- end -}}
