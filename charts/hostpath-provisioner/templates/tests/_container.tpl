{{/* What the test's two containers share. Takes (list $ "image"). */}}
{{- define "hostpath-provisioner.selftest.container" -}}
{{- $root := index . 0 -}}
image: {{ index . 1 }}
imagePullPolicy: {{ $root.Values.selftest.image.pullPolicy }}
{{- with $root.Values.selftest.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml $root.Values.selftest.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: data
    mountPath: /data
{{- end -}}
