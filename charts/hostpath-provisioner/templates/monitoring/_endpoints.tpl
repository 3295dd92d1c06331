{{/* Whose pods are scraped, as a list: the component, its full name, the Service of a ServiceMonitor, the sidecars with a port for metrics,
and whether the pods' node belongs on every series: the controller's series name the node that they are about. */}}
{{- define "hostpath-provisioner.monitoring.targets" -}}
{{- $sidecars := list -}}
{{- range $name := include "hostpath-provisioner.controller.sidecars" . | fromYamlArray -}}
{{- with (get $.Values.sidecars $name).httpPort }}{{ $sidecars = append $sidecars (dict "name" $name "port" .) }}{{ end -}}
{{- end -}}
{{- toYaml (list
  (dict "component" "csi-driver" "name" (include "hostpath-provisioner.csi.name" .) "node" true "sidecars" list
    "service" (include "hostpath-provisioner.suffixed" (list . "csi-metrics")))
  (dict "component" "csi-controller" "name" (include "hostpath-provisioner.controller.name" .) "node" false "sidecars" $sidecars
    "service" (include "hostpath-provisioner.suffixed" (list . "controller-metrics")))) -}}
{{- end -}}

{{/* What all endpoints of a monitor have. Takes the monitor's values. */}}
{{- define "hostpath-provisioner.monitoring.scrape" -}}
path: /metrics
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A time such as 1m30s in milliseconds. */}}
{{- define "hostpath-provisioner.monitoring.milliseconds" -}}
{{- $all := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 -}}
{{- $unit := regexReplaceAll "[0-9]+" . "" -}}
{{- $all = add $all (mul (trimSuffix $unit . | int64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit)) -}}
{{- end -}}
{{- $all -}}
{{- end -}}

{{/* What is wrong with the monitors, as a YAML list of sentences. */}}
{{- define "hostpath-provisioner.problems.monitors" -}}
{{- $problems := list -}}
{{- if and .Values.monitoring.dashboard.enabled (not .Values.monitoring.dashboard.labels) -}}
{{- $problems = append $problems "monitoring.dashboard.labels is empty; Grafana's sidecar finds a dashboard by its label, such as grafana_dashboard." -}}
{{- end -}}
{{- range $which := list "podMonitor" "serviceMonitor" -}}
{{- with get $.Values.monitoring $which -}}
{{- if and .interval .scrapeTimeout (gt (include "hostpath-provisioner.monitoring.milliseconds" .scrapeTimeout | int64) (include "hostpath-provisioner.monitoring.milliseconds" .interval | int64)) -}}
{{- $problems = append $problems (printf "monitoring.%s.scrapeTimeout is %s, and its interval is %s; Prometheus refuses a time limit beyond the interval." $which .scrapeTimeout .interval) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{/* What to scrape of a target, for a PodMonitor and a ServiceMonitor alike. Takes (list $ target monitor). */}}
{{- define "hostpath-provisioner.monitoring.endpoints" -}}
{{- $root := index . 0 -}}
{{- $target := index . 1 -}}
{{- $monitor := index . 2 -}}
{{- $tls := $root.Values.driver.metricsTLS -}}
{{- $ports := list (ternary "metrics" "http" $tls.enabled) -}}
{{- range $target.sidecars }}{{ $ports = append $ports .name }}{{ end -}}
{{- range $ports }}
- port: {{ . }}
  {{- include "hostpath-provisioner.monitoring.scrape" $monitor | nindent 2 }}
  {{- if eq . "metrics" }}
  scheme: https
  tlsConfig:
    # Pods are scraped by their address; the one certificate is for this name, whether the Service is there or not.
    serverName: {{ include "hostpath-provisioner.suffixed" (list $root "csi-metrics") }}.{{ include "hostpath-provisioner.namespace" $root }}.svc
    ca:
      secret:
        name: {{ $tls.secretName }}
        key: ca.crt
  {{- end }}
  {{- if or $target.node $monitor.relabelings }}
  relabelings:
    {{- if $target.node }}
    # Pools are per node, so the node belongs on every series.
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
    {{- end }}
    {{- with $monitor.relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* What to scrape of the operator's pods. Takes (list $ monitor). */}}
{{- define "hostpath-provisioner.monitoring.operatorEndpoints" -}}
{{- $root := index . 0 -}}
- port: metrics
  {{- include "hostpath-provisioner.monitoring.scrape" (index . 1) | nindent 2 }}
  {{- with (index . 1).relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  scheme: https
  tlsConfig:
    serverName: {{ include "hostpath-provisioner.operator.name" $root }}.{{ include "hostpath-provisioner.namespace" $root }}.svc
    ca:
      {{- if eq $root.Values.operator.webhook.certificates "openshift" }}
      # OpenShift puts its service CA into every namespace.
      configMap:
        name: openshift-service-ca.crt
        key: service-ca.crt
      {{- else }}
      secret:
        name: {{ include "hostpath-provisioner.operator.certificateSecret" $root }}
        key: ca.crt
      {{- end }}
{{- end -}}
