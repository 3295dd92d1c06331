{{/* What is wrong with the controller's values, as a YAML list of sentences. */}}
{{- define "hostpath-provisioner.problems.controller" -}}
{{- $problems := include "hostpath-provisioner.problems.certificates" (list . "controller" .Values.controller) | fromYamlArray -}}
{{- $account := include "hostpath-provisioner.controller.serviceAccountName" . -}}
{{- if eq $account (include "hostpath-provisioner.csi.serviceAccountName" .) -}}
{{- $problems = append $problems (printf "controller.serviceAccount.name and driver.serviceAccount.name are both %q; a node must not have the controller's rights." $account) -}}
{{- end -}}
{{- if and .Values.legacyProvisioner.enabled (eq $account (include "hostpath-provisioner.legacy.serviceAccountName" .)) -}}
{{- $problems = append $problems (printf "controller.serviceAccount.name and legacyProvisioner.serviceAccount.name are both %q; a node must not have the controller's rights." $account) -}}
{{- end -}}
{{- $name := include "hostpath-provisioner.controller.name" . -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- $problems = append $problems (printf "the controller's Service would be %q, and the name of a Service begins with a letter; set fullnameOverride." $name) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
