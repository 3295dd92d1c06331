{{/* What is wrong with legacyProvisioner.shared, as a YAML list of sentences. */}}
{{- define "hostpath-provisioner.problems.networkFilesystem" -}}
{{- $root := . -}}
{{- $problems := list -}}
{{- if .Values.legacyProvisioner.shared.enabled -}}
{{- $instances := .Values.legacyProvisioner.shared.instances -}}
{{- if not $instances -}}
{{- $problems = append $problems "legacyProvisioner.shared.enabled: legacyProvisioner.shared.instances is empty; give one its name and the path where the storage is mounted on the nodes." -}}
{{- end -}}
{{- $classes := list -}}
{{- $defaults := list -}}
{{- $others := .Values.storageClasses -}}
{{- if .Values.legacyProvisioner.enabled }}{{ $others = concat $others .Values.legacyProvisioner.storageClasses }}{{ end -}}
{{- range $others -}}
{{- $classes = append $classes .name -}}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end -}}
{{- end -}}
{{- $own := list -}}
{{- $components := dict -}}
{{- range $i, $instance := $instances -}}
{{- $what := printf "legacyProvisioner.shared.instances[%d] %q" $i .name -}}
{{- if has .name (list "kubevirt.io/hostpath-provisioner" $root.Values.driver.name) -}}
{{- $problems = append $problems (printf "%s: that is the name of another provisioner of this chart, and both would take each other's claims; choose another." $what) -}}
{{- end -}}
{{- $component := include "hostpath-provisioner.networkFilesystem.component" . -}}
{{- with get $components $component -}}
{{- $problems = append $problems (printf "%s and %q: names must be unique, also where only letters and digits count; rename one." $what .) -}}
{{- end -}}
{{- $_ := set $components $component .name -}}
{{- range list (list "driver.stateDir" $root.Values.driver.stateDir) (list "kubeletDir" $root.Values.kubeletDir) -}}
{{- $other := index . 1 -}}
{{- if or (hasPrefix (printf "%s/" $other) (printf "%s/" $instance.path)) (hasPrefix (printf "%s/" $instance.path) (printf "%s/" $other)) -}}
{{- $problems = append $problems (printf "%s: its path %s and %s (%s) lie inside each other; name the directory where the storage is mounted." $what $instance.path (index . 0) $other) -}}
{{- end -}}
{{- end -}}
{{- range $j, $class := .storageClasses -}}
{{- $of := printf "%s: storageClasses[%d] %q" $what $j .name -}}
{{- if has .name $classes -}}
{{- $problems = append $problems (printf "%s: there is another class of that name; names must be unique." $of) -}}
{{- end -}}
{{- $classes = append $classes .name -}}
{{- if .default }}{{ $own = append $own .name }}{{ end -}}
{{- $pvDir := default $instance.path .pvDir -}}
{{- if not (hasPrefix (printf "%s/" $instance.path) (printf "%s/" $pvDir)) -}}
{{- $problems = append $problems (printf "%s: its pvDir %s is not in the instance's path %s, which is all that its pods see; move it there, or make another instance." $of $pvDir $instance.path) -}}
{{- end -}}
{{- range $root.Values.storagePools -}}
{{- if hasPrefix (printf "%s/csi/" .path) (printf "%s/" $pvDir) -}}
{{- $problems = append $problems (printf "%s: its pvDir %s lies where the pool %q keeps its volumes (%s/csi); give it another directory." $of $pvDir .name .path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $defaults = concat $defaults $own -}}
{{- if and $own (gt (len $defaults) 1) -}}
{{- $problems = append $problems (printf "legacyProvisioner.shared.instances: %s are all marked as the cluster's default class; mark one." (join ", " $defaults)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
