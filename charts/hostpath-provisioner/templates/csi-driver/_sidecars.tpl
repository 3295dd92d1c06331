{{/* Upstream's sidecars that can replace what the driver does itself. */}}
{{- define "hostpath-provisioner.csi.optionalSidecars" -}}
{{- with .Values.sidecars.nodeDriverRegistrar }}
{{- if .enabled }}
- name: node-driver-registrar
  image: {{ include "hostpath-provisioner.image" (list $ .image) }}
  imagePullPolicy: {{ .image.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --kubelet-registration-path={{ include "hostpath-provisioner.csi.socketDir" $ }}/csi.sock
    - --v={{ .logLevel }}
    {{- with .extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  securityContext:
    {{- include "hostpath-provisioner.csi.sidecarSecurityContext" $ | nindent 4 }}
  volumeMounts:
    - name: socket-dir
      mountPath: /csi
    - name: registration-dir
      mountPath: /registration
{{- end }}
{{- end }}
{{- with .Values.sidecars.livenessProbe }}
{{- if .enabled }}
- name: liveness-probe
  image: {{ include "hostpath-provisioner.image" (list $ .image) }}
  imagePullPolicy: {{ .image.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --http-endpoint=:{{ .httpPort }}
    - --v={{ .logLevel }}
    {{- with .extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: liveness
      containerPort: {{ .httpPort }}
      protocol: TCP
  {{- with .extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  securityContext:
    {{- include "hostpath-provisioner.csi.sidecarSecurityContext" $ | nindent 4 }}
  volumeMounts:
    - name: socket-dir
      mountPath: /csi
{{- end }}
{{- end }}
{{- end -}}
