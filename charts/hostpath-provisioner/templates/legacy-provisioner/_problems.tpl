{{/* What is wrong with legacyProvisioner, as a YAML list of sentences. Its path may be a pool's, as spec.pathConfig wants it: the pool's volumes
are in csi/ below it. */}}
{{- define "hostpath-provisioner.problems.legacy" -}}
{{- $problems := list -}}
{{- if .Values.legacyProvisioner.enabled -}}
{{- $path := .Values.legacyProvisioner.path -}}
{{- with include "hostpath-provisioner.systemDirectory" $path -}}
{{- $problems = append $problems (printf "legacyProvisioner.path %s is or lies in %s, a directory of the system; give it one that belongs to it alone, such as /var/hpvolumes." $path .) -}}
{{- end -}}
{{- range list (list "driver.stateDir" .Values.driver.stateDir) (list "kubeletDir" .Values.kubeletDir) -}}
{{- $other := index . 1 -}}
{{- if or (hasPrefix (printf "%s/" $other) (printf "%s/" $path)) (hasPrefix (printf "%s/" $path) (printf "%s/" $other)) -}}
{{- $problems = append $problems (printf "legacyProvisioner.path %s and %s (%s) lie inside each other; give each its own directory." $path (index . 0) $other) -}}
{{- end -}}
{{- end -}}
{{- range $i, $pool := .Values.storagePools -}}
{{- if hasPrefix (printf "%s/csi/" $pool.path) (printf "%s/" $path) -}}
{{- $problems = append $problems (printf "legacyProvisioner.path %s lies where storagePools[%d] %q keeps its volumes (%s/csi); give it another directory." $path $i .name .path) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- $defaults := list -}}
{{- range .Values.storageClasses -}}
{{- $names = append $names .name -}}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end -}}
{{- end -}}
{{- $own := list -}}
{{- range $i, $class := .Values.legacyProvisioner.storageClasses -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "legacyProvisioner.storageClasses[%d] %q: there is another class of that name; names must be unique." $i .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if .default }}{{ $own = append $own .name }}{{ end -}}
{{- end -}}
{{- $defaults = concat $defaults $own -}}
{{- if and $own (gt (len $defaults) 1) -}}
{{- $problems = append $problems (printf "legacyProvisioner.storageClasses: %s are all marked as the cluster's default class; mark one." (join ", " $defaults)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
