{{/* What is wrong with the controller's values, as a YAML list of sentences. */}}
{{- define "hostpath-provisioner.problems.controller" -}}
{{- $problems := include "hostpath-provisioner.problems.certificates" (list . "controller" .Values.controller) | fromYamlArray -}}
{{- $name := include "hostpath-provisioner.controller.name" . -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- $problems = append $problems (printf "the controller's Service would be %q, and the name of a Service begins with a letter and has no dots; set fullnameOverride." $name) -}}
{{- end -}}
{{- range list "nodeGrace" "nodeGoneAfter" -}}
{{- if not (regexMatch "[1-9]" (get $.Values.controller .)) -}}
{{- $problems = append $problems (printf "controller.%s is %s; it must be more than 0." . (get $.Values.controller .)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
