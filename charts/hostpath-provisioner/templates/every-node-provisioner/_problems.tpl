{{/* What is wrong with legacyProvisioner.everyNode, as a YAML list of sentences. */}}
{{- define "hostpath-provisioner.problems.everyNode" -}}
{{- $problems := list -}}
{{- $legacy := .Values.legacyProvisioner -}}
{{- if $legacy.everyNode.enabled -}}
{{- $path := $legacy.everyNode.path -}}
{{- with include "hostpath-provisioner.systemDirectory" $path -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.path %s is or lies in %s, a directory of the system; give it one that belongs to it alone, such as /var/hpvolumes." $path .) -}}
{{- end -}}
{{- $others := list (list "driver.stateDir" .Values.driver.stateDir) (list "kubeletDir" .Values.kubeletDir) -}}
{{- $names := list "kubevirt.io/hostpath-provisioner" .Values.driver.name -}}
{{- $classes := .Values.storageClasses -}}
{{- if $legacy.enabled -}}
{{- $others = append $others (list "legacyProvisioner.path" $legacy.path) -}}
{{- $classes = concat $classes $legacy.storageClasses -}}
{{- end -}}
{{- if $legacy.shared.enabled -}}
{{- range $i, $instance := $legacy.shared.instances -}}
{{- $others = append $others (list (printf "legacyProvisioner.shared.instances[%d].path" $i) .path) -}}
{{- $names = append $names .name -}}
{{- $classes = concat $classes (default list .storageClasses) -}}
{{- end -}}
{{- end -}}
{{- range $others -}}
{{- $other := index . 1 -}}
{{- if or (hasPrefix (printf "%s/" $other) (printf "%s/" $path)) (hasPrefix (printf "%s/" $path) (printf "%s/" $other)) -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.path %s and %s (%s) lie inside each other; give each its own directory." $path (index . 0) $other) -}}
{{- end -}}
{{- end -}}
{{- range $i, $pool := .Values.storagePools -}}
{{- if hasPrefix (printf "%s/csi/" $pool.path) (printf "%s/" $path) -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.path %s lies where storagePools[%d] %q keeps its volumes (%s/csi); give it another directory." $path $i .name .path) -}}
{{- end -}}
{{- end -}}
{{- if has $legacy.everyNode.name $names -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.name %s: that is the name of another provisioner of this chart, and both would take each other's claims; choose another." $legacy.everyNode.name) -}}
{{- end -}}
{{- if not (regexMatch "[1-9]" $legacy.everyNode.nodeGoneAfter) -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.nodeGoneAfter is %s; it must be more than 0." $legacy.everyNode.nodeGoneAfter) -}}
{{- end -}}
{{- $taken := list -}}
{{- $defaults := list -}}
{{- range $classes -}}
{{- $taken = append $taken .name -}}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end -}}
{{- end -}}
{{- $own := list -}}
{{- range $i, $class := $legacy.everyNode.storageClasses -}}
{{- if has .name $taken -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.storageClasses[%d] %q: there is another class of that name; names must be unique." $i .name) -}}
{{- end -}}
{{- $taken = append $taken .name -}}
{{- if .default }}{{ $own = append $own .name }}{{ end -}}
{{- if and (has .reusePolicy (list "SamePVCName" "Always")) (ne .reclaimPolicy "Retain") -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.storageClasses[%d] %q: reusePolicy %s is about volumes that are retained; set reclaimPolicy to Retain, or leave reusePolicy out." $i .name .reusePolicy) -}}
{{- end -}}
{{- end -}}
{{- $defaults = concat $defaults $own -}}
{{- if and $own (gt (len $defaults) 1) -}}
{{- $problems = append $problems (printf "legacyProvisioner.everyNode.storageClasses: %s are all marked as the cluster's default class; mark one." (join ", " $defaults)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
