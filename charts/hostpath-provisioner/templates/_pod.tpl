{{/* What driver, controller and operator let a user say of their pods. */}}

{{/* A map with the user's keys in place of its own. Takes (list "the chart's map as YAML" user's). (Sprig's mergeOverwrite may leave 0 and
false out.) */}}
{{- define "hostpath-provisioner.pod.over" -}}
{{- $map := index . 0 | fromYaml -}}
{{- range $key, $value := index . 1 }}{{ $_ := set $map $key $value }}{{ end -}}
{{- toYaml $map -}}
{{- end -}}

{{/* The kinds of volumes in the driver's and the mounters' pods, as OpenShift calls them. */}}
{{- define "hostpath-provisioner.openshift.volumes" -}}
{{- $kinds := list "configMap" "hostPath" "projected" -}}
{{- if .Values.mounter.mounts }}{{ $kinds = append $kinds "persistentVolumeClaim" }}{{ end -}}
{{- if .Values.driver.metricsTLS.enabled }}{{ $kinds = append $kinds "secret" }}{{ end -}}
{{- range .Values.driver.extraVolumes -}}
{{- $kinds = concat $kinds (default (list "emptyDir") (keys (omit . "name"))) -}}
{{- end -}}
{{- uniq $kinds | sortAlpha | join ", " -}}
{{- end -}}

{{/* Where the pods run, the workload's own values before those of `global`. Takes (dict "root" $ "values" the workload's "priority" its class
where nobody names one). */}}
{{- define "hostpath-provisioner.pod.scheduling" -}}
{{- $global := .root.Values.global -}}
priorityClassName: {{ coalesce .values.priorityClassName $global.priorityClassName .priority }}
{{- with include "hostpath-provisioner.pod.nodeSelector" (list .root .values) | fromYaml }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default $global.affinity .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "hostpath-provisioner.pod.tolerations" (list .root .values) | fromYamlArray }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Pull secrets, which other charts under one parent may want as names alone. */}}
{{- define "hostpath-provisioner.pod.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Takes (list $ workload's values). */}}
{{- define "hostpath-provisioner.pod.tolerations" -}}
{{- $own := (index . 1).tolerations -}}
{{- $keys := list -}}
{{- range $own }}{{ $keys = append $keys (default "" .key) }}{{ end -}}
{{- $tolerations := default list $own -}}
{{- range (index . 0).Values.global.tolerations -}}
{{- if not (has (default "" .key) $keys) }}{{ $tolerations = append $tolerations . }}{{ end -}}
{{- end -}}
{{- toYaml $tolerations -}}
{{- end -}}

{{/* Takes (list $ workload's values). */}}
{{- define "hostpath-provisioner.pod.nodeSelector" -}}
{{- include "hostpath-provisioner.pod.over" (list (toYaml (default dict (index . 0).Values.global.nodeSelector)) (index . 1).nodeSelector) -}}
{{- end -}}

{{/* How the pods of a Deployment spread, nothing where nobody cares. Takes (list $ "component" workload's values). */}}
{{- define "hostpath-provisioner.pod.spread" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "hostpath-provisioner.selectorLabels" . | fromYaml)) -}}
{{- $constraints := default $root.Values.global.topologySpreadConstraints $values.topologySpreadConstraints -}}
{{- if and (not $constraints) (gt (int $values.replicas) 1) -}}
{{- $constraints = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end -}}
{{- with $constraints }}
topologySpreadConstraints:
{{- range . }}
  - {{ toYaml (merge (dict) . $own) | nindent 4 | trim }}
{{- end }}
{{- end }}
{{- end -}}

{{/* GOMEMLIMIT, nine tenths of a container's memory limit where that is in Ki, Mi or Gi: Go then collects garbage before the kernel ends the
process. A user's own wins. Takes the container's values. */}}
{{- define "hostpath-provisioner.pod.memoryEnv" -}}
{{- $own := false -}}
{{- range .extraEnv }}{{ if eq .name "GOMEMLIMIT" }}{{ $own = true }}{{ end }}{{ end -}}
{{- $limit := dig "limits" "memory" "" (default dict .resources) | toString -}}
{{- if and (not $own) (regexMatch "^[0-9]+[KMG]i$" $limit) -}}
{{- $unit := index (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824) (regexFind "[KMG]i" $limit) -}}
- name: GOMEMLIMIT
  value: {{ div (mul (regexFind "^[0-9]+" $limit | int64) $unit 9) 10 | quote }}
{{- end -}}
{{- end -}}

{{/* The probes of a container. Takes (dict "values" the workload's "port" the liveness probe's "live" its path "ready" the readiness probe's
port "delay" the seconds until the first liveness probe). */}}
{{- define "hostpath-provisioner.pod.probes" -}}
livenessProbe:
  httpGet:
    path: {{ .live }}
    port: {{ .port }}
  {{- include "hostpath-provisioner.pod.over" (list (printf "{initialDelaySeconds: %d, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 5}" .delay) .values.livenessProbe) | nindent 2 }}
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ .ready }}
  {{- include "hostpath-provisioner.pod.over" (list "{periodSeconds: 5, timeoutSeconds: 3}" .values.readinessProbe) | nindent 2 }}
{{- with .values.startupProbe }}
startupProbe:
  httpGet:
    path: {{ $.live }}
    port: {{ $.port }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What is wrong with the volumes and containers that a user adds to a pod, as a YAML list of sentences. Takes (dict "at" "path of the values"
"values" … "volumes" names of the chart's own "containers" the same). */}}
{{- define "hostpath-provisioner.problems.additions" -}}
{{- $at := .at -}}
{{- $volumes := .volumes -}}
{{- $containers := .containers -}}
{{- $problems := list -}}
{{- range $i, $volume := .values.extraVolumes -}}
{{- if has .name $volumes -}}
{{- $problems = append $problems (printf "%s.extraVolumes[%d]: there is another volume %q in the pod; give it another name." $at $i .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- range $i, $mount := .values.extraVolumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- $problems = append $problems (printf "%s.extraVolumeMounts[%d]: there is no volume %q in the pod; add it to %s.extraVolumes." $at $i .name $at) -}}
{{- end -}}
{{- end -}}
{{- range $i, $container := .values.initContainers -}}
{{- if has .name $containers -}}
{{- $problems = append $problems (printf "%s.initContainers[%d]: there is another container %q in the pod; give it another name." $at $i .name) -}}
{{- end -}}
{{- $containers = append $containers .name -}}
{{- end -}}
{{- $pod := .values.podSecurityContext -}}
{{- $own := .values.securityContext -}}
{{- if eq $at "driver" -}}
{{- if or (eq (toString $own.privileged) "false") (eq (toString $own.allowPrivilegeEscalation) "false") -}}
{{- $problems = append $problems "driver.securityContext: Kubernetes lets only a privileged container mount volumes for pods; remove privileged and allowPrivilegeEscalation." -}}
{{- end -}}
{{- if or (not (has (toString $own.runAsUser) (list "0" "<nil>"))) $own.runAsNonRoot $pod.runAsNonRoot -}}
{{- $problems = append $problems "driver.securityContext and driver.podSecurityContext: the driver has to be root, who owns the volumes' directories; remove runAsUser and runAsNonRoot." -}}
{{- end -}}
{{- else -}}
{{- $user := hasKey $own "runAsUser" | ternary $own.runAsUser $pod.runAsUser | toString -}}
{{- $check := hasKey $own "runAsNonRoot" | ternary $own.runAsNonRoot (hasKey $pod "runAsNonRoot" | ternary $pod.runAsNonRoot true) -}}
{{- if and (eq $user "0") $check -}}
{{- $problems = append $problems (printf "%s: runAsUser is 0, and runAsNonRoot is true; the kubelet starts no such container." $at) -}}
{{- end -}}
{{- if and $own.privileged (ne (toString $own.allowPrivilegeEscalation) "true") -}}
{{- $problems = append $problems (printf "%s.securityContext: a privileged container needs allowPrivilegeEscalation too; remove privileged, which it does not need." $at) -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{/* Takes $. A test compares the names with what is rendered. */}}
{{- define "hostpath-provisioner.problems.pods" -}}
{{- $all := list
  (dict "at" "driver" "values" .Values.driver "containers" (list "driver" "node-driver-registrar" "liveness-probe")
    "volumes" (list "config" "controller-token" "metrics-certificate" "host" "kubelet-dir" "state-dir" "socket-dir" "registration-dir"))
  (dict "at" "controller" "values" .Values.controller "containers" (list "controller" "csi-provisioner" "csi-resizer" "csi-snapshotter")
    "volumes" (list "socket-dir" "state-dir" "config" "metrics-certificate"))
  (dict "at" "operator" "values" .Values.operator "containers" (list "operator") "volumes" list) -}}
{{- $problems := list -}}
{{- range $all -}}
{{- $problems = concat $problems (include "hostpath-provisioner.problems.additions" . | fromYamlArray) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
