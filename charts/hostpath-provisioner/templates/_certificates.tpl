{{/* cert-manager's Certificate for a Service, and a self-signed Issuer where none was given. Takes (dict "root" $ "component" … "secret" the
Secret's name "name" the Service's name "issuer" the own issuer's suffix "issuerRef" …). */}}
{{- define "hostpath-provisioner.certManager" -}}
{{- $namespace := include "hostpath-provisioner.namespace" .root -}}
{{- $marks := include "hostpath-provisioner.marks" (list .root .component (dict) (dict)) -}}
{{- $host := printf "%s.%s.svc" .name $namespace -}}
{{- $issuer := .issuerRef -}}
{{- if not $issuer -}}
{{- $issuer = dict "name" (include "hostpath-provisioner.suffixed" (list .root .issuer)) "kind" "Issuer" "group" "cert-manager.io" -}}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $issuer.name }}
  namespace: {{ $namespace }}
  {{- $marks | nindent 2 }}
spec:
  selfSigned: {}
---
{{ end -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ .secret }}
  namespace: {{ $namespace }}
  {{- $marks | nindent 2 }}
spec:
  secretName: {{ .secret }}
  commonName: {{ .name }}
  dnsNames:
    - {{ $host }}
    - {{ $host }}.cluster.local
  usages: [digital signature, server auth]
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Always
  issuerRef:
    {{- toYaml $issuer | nindent 4 }}
{{- end -}}

{{/* An object without data, which somebody else fills: a Secret is Opaque, since one for TLS could not be empty. Takes (list $ "component" "Kind"
"name" annotations). */}}
{{- define "hostpath-provisioner.empty" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: {{ index . 2 }}
metadata:
  name: {{ index . 3 }}
  namespace: {{ include "hostpath-provisioner.namespace" $root }}
  {{- include "hostpath-provisioner.marks" (list $root (index . 1) dict (index . 4)) | nindent 2 }}
{{- end -}}

{{/* What is wrong with the values that choose a certificate, as a YAML list of sentences. Takes (list $ "path of the values" values). */}}
{{- define "hostpath-provisioner.problems.certificates" -}}
{{- $problems := list -}}
{{- $root := index . 0 -}}
{{- $at := index . 1 -}}
{{- $values := index . 2 -}}
{{- $mode := $values.certificates -}}
{{- if and (eq $mode "existingSecret") (not $values.existingSecret) -}}
{{- $problems = append $problems (printf "%s.certificates is existingSecret, and %s.existingSecret is empty; name a Secret of the namespace with tls.crt, tls.key and ca.crt." $at $at) -}}
{{- else if and (ne $mode "existingSecret") $values.existingSecret -}}
{{- $problems = append $problems (printf "%s.existingSecret is %q, and %s.certificates is %s; set that to existingSecret, or remove the name." $at $values.existingSecret $at $mode) -}}
{{- end -}}
{{- with $values.certManager.issuerRef -}}
{{- if ne $mode "cert-manager" -}}
{{- $problems = append $problems (printf "%s.certManager.issuerRef is set, and %s.certificates is %s; set that to cert-manager, or remove the issuer." $at $at $mode) -}}
{{- end -}}
{{- if not .name -}}
{{- $problems = append $problems (printf "%s.certManager.issuerRef: its name is missing; give name, kind (Issuer or ClusterIssuer) and, for an issuer outside cert-manager, group." $at) -}}
{{- end -}}
{{- range $key := keys . | sortAlpha -}}
{{- if not (has $key (list "name" "kind" "group")) -}}
{{- $problems = append $problems (printf "%s.certManager.issuerRef: unknown key %q; it knows name, kind and group." $at $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $mode "openshift") (eq (toString $root.Values.openshift) "false") -}}
{{- $problems = append $problems (printf "%s.certificates is openshift, and openshift is false: only OpenShift's service CA writes that certificate; use self-managed or cert-manager." $at) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
