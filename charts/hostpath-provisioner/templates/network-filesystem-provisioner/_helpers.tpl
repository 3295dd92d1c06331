{{/* "true" when Helm, or the operator's rendering of this chart, installs the provisioners for network filesystems. */}}
{{- define "hostpath-provisioner.networkFilesystem.rendered" -}}
{{- and .Values.legacyProvisioner.shared.enabled (not .Values.operator.enabled) -}}
{{- end -}}

{{/* What all instances have together: the account, and what is bound to it. */}}
{{- define "hostpath-provisioner.networkFilesystem.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "shared") -}}
{{- end -}}

{{- define "hostpath-provisioner.networkFilesystem.serviceAccountName" -}}
{{- default (include "hostpath-provisioner.networkFilesystem.name" .) .Values.legacyProvisioner.shared.serviceAccount.name -}}
{{- end -}}

{{/* An instance's component: its name as a label takes it. Takes the instance. */}}
{{- define "hostpath-provisioner.networkFilesystem.component" -}}
{{- printf "shared-%s" (regexReplaceAll "[^a-z0-9]+" (lower .name) "-" | trimAll "-" | trunc 40 | trimSuffix "-") -}}
{{- end -}}

{{/* The Lease of an instance, as src/legacyprovisioner/internal/app/lead.go names it. Takes the instance. */}}
{{- define "hostpath-provisioner.networkFilesystem.lease" -}}
{{- $id := default "torchbox.com/hostpath" .id -}}
{{- $name := ternary .name (printf "%s-%s" .name $id) (eq $id "torchbox.com/hostpath") -}}
{{- regexReplaceAll "[^a-z0-9.]" (lower $name) "-" -}}
{{- end -}}
