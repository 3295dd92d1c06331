{{/* Names of the controller's objects, and what the containers of its pods share. */}}

{{- define "hostpath-provisioner.controller.name" -}}
{{- include "hostpath-provisioner.suffixed" (list . "controller") -}}
{{- end -}}

{{- define "hostpath-provisioner.controller.serviceAccountName" -}}
{{- default (include "hostpath-provisioner.controller.name" .) .Values.controller.serviceAccount.name -}}
{{- end -}}

{{/* The sidecars in its pods, by their values, as a YAML list. */}}
{{- define "hostpath-provisioner.controller.sidecars" -}}
{{- $names := list "provisioner" "resizer" -}}
{{- if eq (include "hostpath-provisioner.snapshots" .) "true" }}{{ $names = append $names "snapshotter" }}{{ end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* The name that nodes dial, and that its certificate has to have. */}}
{{- define "hostpath-provisioner.controller.host" -}}
{{- include "hostpath-provisioner.controller.name" . }}.{{ include "hostpath-provisioner.namespace" . }}.svc
{{- end -}}

{{/* The ConfigMap with the CA that nodes trust. OpenShift's has a name of its own: the operator makes that one. */}}
{{- define "hostpath-provisioner.controller.ca" -}}
{{- include "hostpath-provisioner.suffixed" (list . (ternary "controller-service-ca" "controller-authorities" (eq .Values.controller.certificates "openshift"))) -}}
{{- end -}}

{{/* Where drivers older than 0.1.0 look for that CA: until an upgrade has replaced them. */}}
{{- define "hostpath-provisioner.controller.olderCA" -}}
{{- include "hostpath-provisioner.suffixed" (list . "controller-ca") -}}
{{- end -}}

{{/* The Secret with the certificate. The controller writes one that Helm has made; another maker gets a name that is free. */}}
{{- define "hostpath-provisioner.controller.certificateSecret" -}}
{{- if eq .Values.controller.certificates "existingSecret" -}}
{{- .Values.controller.existingSecret -}}
{{- else -}}
{{- include "hostpath-provisioner.suffixed" (list . (ternary "controller-tls" "controller-certificate" (eq .Values.controller.certificates "self-managed"))) -}}
{{- end -}}
{{- end -}}

{{/* The label selector of the pods on the nodes, in one line. */}}
{{- define "hostpath-provisioner.controller.nodePods" -}}
{{- $terms := list -}}
{{- range $key, $value := include "hostpath-provisioner.selectorLabels" (list . "csi-driver") | fromYaml -}}
{{- $terms = append $terms (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- join "," $terms -}}
{{- end -}}

{{/* All containers: Pod Security's `restricted`. */}}
{{- define "hostpath-provisioner.controller.securityContext" -}}
{{- include "hostpath-provisioner.pod.over" (list "{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}" .Values.controller.securityContext) -}}
{{- end -}}

{{/* The sidecars' images start as root otherwise. OpenShift chooses a user and a group of the namespace's own. */}}
{{- define "hostpath-provisioner.controller.podSecurityContext" -}}
runAsNonRoot: true
{{- if ne (include "hostpath-provisioner.openshift" .) "true" }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* A sidecar's port and probes. Takes (list "name" port). */}}
{{- define "hostpath-provisioner.controller.sidecarPort" -}}
ports:
  - name: {{ index . 0 }}
    containerPort: {{ index . 1 }}
    protocol: TCP
# The port opens once the controller is ready, which waits for the nodes.
startupProbe:
  httpGet:
    path: /healthz/leader-election
    port: {{ index . 0 }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 120
livenessProbe:
  httpGet:
    path: /healthz/leader-election
    port: {{ index . 0 }}
  periodSeconds: 20
  timeoutSeconds: 10
{{- end -}}

{{/* The ConfigMap in which the controller remembers which filesystem each shared pool is. Nobody else writes or removes it. */}}
{{- define "hostpath-provisioner.controller.sharedPools" -}}
{{- include "hostpath-provisioner.suffixed" (list . "shared-pool-ids") -}}
{{- end -}}

{{/* The ConfigMap in which the controller writes down the moves of volumes that are under way: one that is interrupted goes on from there. */}}
{{- define "hostpath-provisioner.controller.moves" -}}
{{- include "hostpath-provisioner.suffixed" (list . "moves") -}}
{{- end -}}
