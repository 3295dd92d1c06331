{{/* "true" when Helm, or the operator's rendering of this chart, installs the provisioners of shared storage. */}}
{{- define "hostpath-provisioner.shared.rendered" -}}
{{- and .Values.legacyProvisioner.shared.enabled (not .Values.operator.enabled) -}}
{{- end -}}

{{/* What all instances have together: the account, and what is bound to it. */}}
{{- define "hostpath-provisioner.shared.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "shared") -}}
{{- end -}}

{{- define "hostpath-provisioner.shared.serviceAccountName" -}}
{{- default (include "hostpath-provisioner.shared.name" .) .Values.legacyProvisioner.shared.serviceAccount.name -}}
{{- end -}}

{{/* An instance's component: its name as a label takes it. Takes the instance. */}}
{{- define "hostpath-provisioner.shared.component" -}}
{{- printf "shared-%s" (regexReplaceAll "[^a-z0-9]+" (lower .name) "-" | trimAll "-" | trunc 40 | trimSuffix "-") -}}
{{- end -}}

{{/* The Lease of an instance, as src/legacyprovisioner/internal/app/lead.go names it. Takes the instance. */}}
{{- define "hostpath-provisioner.shared.lease" -}}
{{- $id := default "torchbox.com/hostpath" .id -}}
{{- $name := ternary .name (printf "%s-%s" .name $id) (eq $id "torchbox.com/hostpath") -}}
{{- regexReplaceAll "[^a-z0-9.]" (lower $name) "-" -}}
{{- end -}}
