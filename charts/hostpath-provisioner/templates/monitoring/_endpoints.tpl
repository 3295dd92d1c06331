{{/* Whose pods are scraped, as a list: the component, its full name, the Service of a ServiceMonitor, and the port of the sidecar's
metrics, 0 for none. csi-resizer's pods hold the driver as well. */}}
{{- define "hostpath-provisioner.monitoring.targets" -}}
{{- $targets := list (dict "component" "csi-driver" "name" (include "hostpath-provisioner.csi.name" .)
  "service" (include "hostpath-provisioner.suffixed" (list . "csi-metrics"))
  "sidecar" "provisioner" "sidecarPort" .Values.sidecars.provisioner.httpPort) -}}
{{- if .Values.sidecars.resizer.enabled -}}
{{- $targets = append $targets (dict "component" "csi-resizer" "name" (include "hostpath-provisioner.resizer.name" .)
  "service" (include "hostpath-provisioner.suffixed" (list . "csi-resizer-metrics"))
  "sidecar" "resizer" "sidecarPort" .Values.sidecars.resizer.httpPort) -}}
{{- end -}}
{{- toYaml $targets -}}
{{- end -}}

{{/* What to scrape of a target, for a PodMonitor and a ServiceMonitor alike. Takes (list $ target "interval"). */}}
{{- define "hostpath-provisioner.monitoring.endpoints" -}}
{{- $root := index . 0 -}}
{{- $target := index . 1 -}}
{{- $interval := index . 2 -}}
{{- $tls := $root.Values.driver.metricsTLS -}}
{{- $ports := list (ternary "metrics" "http" $tls.enabled) -}}
{{- if $target.sidecarPort }}{{ $ports = append $ports $target.sidecar }}{{ end -}}
{{- range $ports }}
- port: {{ . }}
  path: /metrics
  {{- with $interval }}
  interval: {{ . }}
  {{- end }}
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
  relabelings:
    # Pools are per node, so the node belongs on every series.
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
{{- end }}
{{- end -}}

{{/* What to scrape of the operator's pods. Takes (list $ "interval"). */}}
{{- define "hostpath-provisioner.monitoring.operatorEndpoints" -}}
{{- $root := index . 0 -}}
- port: metrics
  path: /metrics
  {{- with index . 1 }}
  interval: {{ . }}
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
