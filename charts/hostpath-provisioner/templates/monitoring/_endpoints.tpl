{{/* What to scrape, for a PodMonitor and a ServiceMonitor alike. Takes (list $ "interval"). */}}
{{- define "hostpath-provisioner.monitoring.endpoints" -}}
{{- $root := index . 0 -}}
{{- $interval := index . 1 -}}
{{- $ports := list "http" -}}
{{- if $root.Values.sidecars.provisioner.httpPort }}{{ $ports = append $ports "provisioner" }}{{ end -}}
{{- range $ports }}
- port: {{ . }}
  path: /metrics
  {{- with $interval }}
  interval: {{ . }}
  {{- end }}
  relabelings:
    # Pools are per node, so the node belongs on every series.
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
{{- end }}
{{- end -}}
