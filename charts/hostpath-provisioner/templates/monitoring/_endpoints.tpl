{{/* Whose pods are scraped, as a list: the component, its full name, the Service of a ServiceMonitor, the sidecars with a port for metrics,
and whether the pods' node belongs on every series: the controller's series name the node that they are about. */}}
{{- define "hostpath-provisioner.monitoring.targets" -}}
{{- $sidecars := list -}}
{{- range $name := list "provisioner" "resizer" -}}
{{- with (get $.Values.sidecars $name).httpPort }}{{ $sidecars = append $sidecars (dict "name" $name "port" .) }}{{ end -}}
{{- end -}}
{{- toYaml (list
  (dict "component" "csi-driver" "name" (include "hostpath-provisioner.csi.name" .) "node" true "sidecars" list
    "service" (include "hostpath-provisioner.suffixed" (list . "csi-metrics")))
  (dict "component" "csi-controller" "name" (include "hostpath-provisioner.controller.name" .) "node" false "sidecars" $sidecars
    "service" (include "hostpath-provisioner.suffixed" (list . "controller-metrics")))) -}}
{{- end -}}

{{/* What to scrape of a target, for a PodMonitor and a ServiceMonitor alike. Takes (list $ target "interval"). */}}
{{- define "hostpath-provisioner.monitoring.endpoints" -}}
{{- $root := index . 0 -}}
{{- $target := index . 1 -}}
{{- $interval := index . 2 -}}
{{- $tls := $root.Values.driver.metricsTLS -}}
{{- $ports := list (ternary "metrics" "http" $tls.enabled) -}}
{{- range $target.sidecars }}{{ $ports = append $ports .name }}{{ end -}}
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
  {{- if $target.node }}
  relabelings:
    # Pools are per node, so the node belongs on every series.
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
  {{- end }}
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
