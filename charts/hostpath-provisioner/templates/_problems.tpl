{{/* Each of these prints a YAML list of sentences, empty when all is well. validate.yaml fails with them. */}}

{{- define "hostpath-provisioner.problems.pools" -}}
{{- $problems := list -}}
{{- $places := list (dict "what" "driver.stateDir" "path" .Values.driver.stateDir) (dict "what" "kubeletDir" "path" .Values.kubeletDir) -}}
{{- $names := list -}}
{{- range $i, $pool := .Values.storagePools -}}
{{- $what := printf "storagePools[%d] %q" $i .name -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "%s: there is another pool of that name; names must be unique." $what) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if eq (default "node" .scope) "shared" -}}
{{- $problems = append $problems (printf "%s: scope shared is not in this version; use scope node." $what) -}}
{{- end -}}
{{- if .pvcTemplate -}}
{{- $problems = append $problems (printf "%s: pvcTemplate is not in this version; give the path of a mounted filesystem and set requireMount." $what) -}}
{{- end -}}
{{- range $places -}}
{{- if or (hasPrefix (printf "%s/" .path) (printf "%s/" $pool.path)) (hasPrefix (printf "%s/" $pool.path) (printf "%s/" .path)) -}}
{{- $problems = append $problems (printf "%s: its path %s and that of %s (%s) lie inside each other; give each its own directory." $what $pool.path .what .path) -}}
{{- end -}}
{{- end -}}
{{- $places = append $places (dict "what" $what "path" .path) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{- define "hostpath-provisioner.problems.classes" -}}
{{- $problems := list -}}
{{- $pools := list -}}
{{- range .Values.storagePools }}{{ $pools = append $pools .name }}{{ end -}}
{{- $known := list "storagePool" "directoryMode" "uid" "gid" "inodeLimit" "onDelete" "overlayCSI" -}}
{{- $names := list -}}
{{- $defaults := list -}}
{{- range $i, $class := .Values.storageClasses -}}
{{- $what := printf "storageClasses[%d] %q" $i .name -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "%s: there is another class of that name; names must be unique." $what) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end -}}
{{- if .allowVolumeExpansion -}}
{{- $problems = append $problems (printf "%s: allowVolumeExpansion is not in this version; leave it out or set it to false." $what) -}}
{{- end -}}
{{- $parameters := default (dict) .parameters -}}
{{- if and .storagePool $parameters.storagePool -}}
{{- $problems = append $problems (printf "%s: the pool is given twice; remove parameters.storagePool." $what) -}}
{{- end -}}
{{- $pool := default $parameters.storagePool .storagePool -}}
{{- if and $pool (not (has $pool $pools)) -}}
{{- $problems = append $problems (printf "%s: there is no pool %q in storagePools (%s); set storageClasses together with storagePools." $what $pool (join ", " $pools | default "it is empty")) -}}
{{- else if and (not $pool) (ne (len $pools) 1) (not (has "legacy" $pools)) -}}
{{- $problems = append $problems (printf "%s: storagePool is needed because there are %d pools." $what (len $pools)) -}}
{{- end -}}
{{- range $key := keys $parameters | sortAlpha -}}
{{- if not (or (has $key $known) (hasPrefix "csi.storage.k8s.io/" $key)) -}}
{{- $problems = append $problems (printf "%s: the driver refuses the parameter %q; it knows %s." $what $key (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
{{- $problems = append $problems (printf "storageClasses: %s are all marked as the cluster's default class; mark one." (join ", " $defaults)) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{- define "hostpath-provisioner.problems.pod" -}}
{{- $problems := list -}}
{{- $ports := dict -}}
{{- range list
  (list "driver.httpPort" .Values.driver.httpPort)
  (list "sidecars.provisioner.httpPort" .Values.sidecars.provisioner.httpPort)
  (list "sidecars.livenessProbe.httpPort" (ternary .Values.sidecars.livenessProbe.httpPort 0 .Values.sidecars.livenessProbe.enabled)) -}}
{{- $what := index . 0 -}}
{{- $port := index . 1 | toString -}}
{{- if ne $port "0" -}}
{{- with get $ports $port -}}
{{- $problems = append $problems (printf "%s and %s are both %s; all containers of a pod share its ports." . $what $port) -}}
{{- end -}}
{{- $_ := set $ports $port $what -}}
{{- end -}}
{{- end -}}
{{- $surge := dig "rollingUpdate" "maxSurge" 0 .Values.driver.updateStrategy | toString -}}
{{- if not (has $surge (list "0" "0%")) -}}
{{- $problems = append $problems "driver.updateStrategy.rollingUpdate.maxSurge: the kubelet accepts one driver per name, so the old pod must be gone before the new one starts; use maxUnavailable." -}}
{{- end -}}
{{- $socket := printf "%s/csi.sock" (include "hostpath-provisioner.csi.socketDir" .) -}}
{{- if gt (len $socket) 107 -}}
{{- $problems = append $problems (printf "kubeletDir and driver.name: the socket's path %s has %d bytes, and Linux allows 107; shorten one of them." $socket (len $socket)) -}}
{{- end -}}
{{- if and .Values.monitoring.podMonitor.enabled .Values.monitoring.serviceMonitor.enabled -}}
{{- $problems = append $problems "monitoring: podMonitor and serviceMonitor would scrape every pod twice; enable one." -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
