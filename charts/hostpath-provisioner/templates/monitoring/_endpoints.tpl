{{/* What to scrape of the driver's pods, for a PodMonitor and a ServiceMonitor alike. Takes (list $ "interval"). */}}
{{- define "hostpath-provisioner.monitoring.endpoints" -}}
{{- $root := index . 0 -}}
{{- $interval := index . 1 -}}
{{- $tls := $root.Values.driver.metricsTLS -}}
{{- $ports := list (ternary "metrics" "http" $tls.enabled) -}}
{{- if $root.Values.sidecars.provisioner.httpPort }}{{ $ports = append $ports "provisioner" }}{{ end -}}
{{- range $ports }}
- port: {{ . }}
  path: /metrics
  {{- with $interval }}
  interval: {{ . }}
  {{- end }}
  {{- if eq . "metrics" }}
  scheme: https
  tlsConfig:
    # Pods are scraped by their address; the certificate is for this name, whether the Service is there or not.
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
