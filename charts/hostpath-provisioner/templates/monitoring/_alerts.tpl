{{/* Labels and runbook of an alert. The labels beside severity are those by which KubeVirt's operators tell how well a component is.
Takes (list $ "severity" "health impact"). */}}
{{- define "hostpath-provisioner.monitoring.labels" -}}
severity: {{ index . 1 }}
operator_health_impact: {{ index . 2 }}
kubernetes_operator_part_of: kubevirt
kubernetes_operator_component: hostpath-provisioner-operator
{{- end -}}

{{/* Takes (list $ "alert"). */}}
{{- define "hostpath-provisioner.monitoring.runbook" -}}
{{- (index . 0).Values.monitoring.prometheusRule.runbookURLTemplate | replace "%s" (index . 1) -}}
{{- end -}}

{{/* Rules without the alerts that the values disable. Takes (list $ "template of the rules"). */}}
{{- define "hostpath-provisioner.monitoring.rules" -}}
{{- $root := index . 0 -}}
{{- $rules := list -}}
{{- range include (index . 1) $root | fromYamlArray -}}
{{- if not (has .alert $root.Values.monitoring.prometheusRule.disabled) -}}
{{- $rules = append $rules . -}}
{{- end -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}
