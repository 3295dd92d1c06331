{{/* Each of these prints a YAML list of sentences, empty when all is well. validate.yaml fails with them. */}}

{{/* The directory of the system that a path is or lies in, which belongs to that altogether; nothing where there is none. As src/internal/poolspec has it. */}}
{{- define "hostpath-provisioner.systemDirectory" -}}
{{- $path := . -}}
{{- $in := list -}}
{{- range splitList " " "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /lost+found /proc /sbin /sys /usr /var/lib/cni /var/lib/containerd /var/lib/containers /var/lib/docker /var/lib/etcd /var/lib/kubelet /var/lib/rancher/k3s/agent /var/lib/rancher/k3s/server /var/lib/rancher/rke2/agent /var/lib/rancher/rke2/server" -}}
{{- if and (hasPrefix (printf "%s/" .) (printf "%s/" $path)) (not (hasPrefix "/usr/local/" (printf "%s/" $path))) -}}
{{- $in = append $in . -}}
{{- end -}}
{{- end -}}
{{- with $in }}{{ first . }}{{ end -}}
{{- end -}}

{{- define "hostpath-provisioner.problems.pools" -}}
{{- $problems := list -}}
{{- range splitList " " "/dev /proc /run /sys /tmp /var/run" -}}
{{- if hasPrefix (printf "%s/" .) (printf "%s/" $.Values.driver.stateDir) -}}
{{- $problems = append $problems (printf "driver.stateDir: %s is or lies in %s, which a boot empties: nodes would forget their pools, and take an empty directory for one whose disk is not mounted; give it one that stays, such as /var/lib/hostpath-provisioner-state." $.Values.driver.stateDir .) -}}
{{- end -}}
{{- end -}}
{{- $places := list (dict "what" "driver.stateDir" "path" .Values.driver.stateDir) (dict "what" "kubeletDir" "path" .Values.kubeletDir) -}}
{{- /* As src/internal/poolspec has them: pools may lie below. */ -}}
{{- $parents := splitList " " "/ /home /media /mnt /opt /root /run /srv /tmp /usr/local /var /var/cache /var/lib /var/log /var/run /var/tmp" -}}
{{- $names := list -}}
{{- range $i, $pool := .Values.storagePools -}}
{{- $what := printf "storagePools[%d] %q" $i .name -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "%s: there is another pool of that name; names must be unique." $what) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if and (kindIs "string" .reserve) (not (regexMatch "^([0-9]{1,18}|[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)|[0-9]{1,2}(\\.[0-9]+)?%)$" .reserve)) -}}
{{- $problems = append $problems (printf "%s: its reserve is %q; it takes bytes, a quantity such as 10Gi, or a share of the size such as 5%%." $what .reserve) -}}
{{- else if and .reserve (not (kindIs "string" .reserve)) (lt (int64 .reserve) 1048576) -}}
{{- $problems = append $problems (printf "%s: its reserve is %d bytes; write %d%% for a share of the size, or a quantity such as 10Gi." $what (int64 .reserve) (int64 .reserve)) -}}
{{- end -}}
{{- $retention := dig "trash" "retention" "0" . -}}
{{- if not (regexMatch "^([0-9]{1,9}(\\.[0-9]+)?(ns|us|µs|ms|s)|[0-9]{1,7}(\\.[0-9]+)?m|[0-9]{1,6}(\\.[0-9]+)?h)+$|^0$" $retention) -}}
{{- $problems = append $problems (printf "%s: its trash.retention is %q; it takes hours, minutes and seconds, such as 72h for three days." $what $retention) -}}
{{- end -}}
{{- if eq (default "node" .scope) "shared" -}}
{{- range list "overcommit" "maxVolumes" "inline" -}}
{{- if get $pool . -}}
{{- $problems = append $problems (printf "%s: a pool with scope shared has no %s; leave it out, or give the pool scope node." $what .) -}}
{{- end -}}
{{- end -}}
{{- if ne (default "none" .quota) "none" -}}
{{- $problems = append $problems (printf "%s: a pool with scope shared has no quota; leave it out, or say none." $what) -}}
{{- end -}}
{{- end -}}
{{- if and .sharedAccess (eq (default "node" .scope) "shared") -}}
{{- $problems = append $problems (printf "%s: scope shared allows ReadWriteMany on all nodes; remove sharedAccess." $what) -}}
{{- end -}}
{{- if not (regexMatch "^(/([^/.\\p{Cc}][^/\\p{Cc}]*|\\.[^/.\\p{Cc}][^/\\p{Cc}]*|\\.\\.[^/\\p{Cc}]+))+$" .path) -}}
{{- $problems = append $problems (printf "%s: its path is %q; it takes an absolute one, such as /mnt/ssd, without .. or // in it and / at its end." $what .path) -}}
{{- else if regexMatch "[*?,<>${}]| $" .path -}}
{{- $problems = append $problems (printf "%s: its path %q would be taken as it is written, as the name of one directory; write that without any of *?,<>${} and a space at its end." $what .path) -}}
{{- end -}}
{{- with include "hostpath-provisioner.systemDirectory" .path | default (ternary .path "" (has .path $parents)) -}}
{{- $problems = append $problems (printf "%s: its path %s is or lies in %s, a directory of the system; give it one that belongs to it alone, such as /var/lib/hostpath-provisioner." $what $pool.path .) -}}
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
{{- $root := . -}}
{{- $problems := list -}}
{{- $pools := list -}}
{{- range .Values.storagePools }}{{ $pools = append $pools .name }}{{ end -}}
{{- $known := list "storagePool" "directoryMode" "uid" "gid" "inodeLimit" "onDelete" "restoreTo" "overlayCSI" -}}
{{- $number := list "^[0-9]+$" "a whole number" -}}
{{- $wants := dict "uid" $number "gid" $number "inodeLimit" $number "directoryMode" (list "^0*[0-3]?[0-7]{1,3}$" "octal permissions such as 0750")
  "onDelete" (list "^(trash|purge|retain)$" "trash, purge or retain") "restoreTo" (list "^(pod|source)$" "pod or source") -}}
{{- $names := list -}}
{{- $defaults := list -}}
{{- range $i, $class := .Values.storageClasses -}}
{{- $what := printf "storageClasses[%d] %q" $i .name -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "%s: there is another class of that name; names must be unique." $what) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end -}}
{{- $parameters := default (dict) .parameters -}}
{{- if and .storagePool $parameters.storagePool -}}
{{- $problems = append $problems (printf "%s: the pool is given twice; remove parameters.storagePool." $what) -}}
{{- end -}}
{{- $pool := default $parameters.storagePool .storagePool | default "" -}}
{{- if $root.Values.operator.enabled -}}
{{- /* The pools are those of a HostPathProvisioner that is not written yet. */ -}}
{{- else if regexMatch "[,*]" $pool -}}
{{- with include "hostpath-provisioner.problems.severalPools" (list $root.Values.storagePools $pool) -}}
{{- $problems = append $problems (printf "%s: storagePool %q: %s" $what $pool .) -}}
{{- end -}}
{{- else if and $pool (not (has $pool $pools)) -}}
{{- $problems = append $problems (printf "%s: there is no pool %q in storagePools (%s); set storageClasses together with storagePools." $what $pool (join ", " $pools | default "it is empty")) -}}
{{- else if and (not $pool) (ne (len $pools) 1) (not (has "legacy" $pools)) -}}
{{- $problems = append $problems (printf "%s: storagePool is needed because there are %d pools." $what (len $pools)) -}}
{{- end -}}
{{- range $key, $want := $wants -}}
{{- if and (hasKey $parameters $key) (not (regexMatch (index $want 0) (toString (index $parameters $key)))) -}}
{{- $problems = append $problems (printf "%s: parameter %s is %q; it takes %s." $what $key (toString (index $parameters $key)) (index $want 1)) -}}
{{- end -}}
{{- end -}}
{{- range .mountOptions -}}
{{- if not (regexMatch "^((ro|nosuid|nodev|noexec|noatime|nodiratime|relatime|strictatime)(,|$))+$" .) -}}
{{- $problems = append $problems (printf "%s: the driver refuses the mount option %q; it takes ro, nosuid, nodev, noexec, noatime, nodiratime, relatime and strictatime. Those of a disk belong in /etc/fstab." $what .) -}}
{{- end -}}
{{- end -}}
{{- range $key := keys $parameters | sortAlpha -}}
{{- if not (or (has $key $known) (hasPrefix "csi.storage.k8s.io/" $key)) -}}
{{- $problems = append $problems (printf "%s: the driver refuses the parameter %q; it knows %s." $what $key (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- range .allowedTopologies -}}
{{- range .matchLabelExpressions -}}
{{- if ne .key $root.Values.driver.topologyKey -}}
{{- $problems = append $problems (printf "%s: allowedTopologies names %q, and the driver knows nodes by %q alone (driver.topologyKey); use that, with names of nodes, or leave the choice to the pool's nodeSelector." $what .key $root.Values.driver.topologyKey) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
{{- $problems = append $problems (printf "storageClasses: %s are all marked as the cluster's default class; mark one." (join ", " $defaults)) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{/* What is wrong with a list of pools, or a prefix, that a class names; nothing where all is well. As src/internal/poolspec has it. */}}
{{- define "hostpath-provisioner.problems.severalPools" -}}
{{- $pools := index . 0 -}}
{{- $names := list -}}
{{- range $pools }}{{ $names = append $names .name }}{{ end -}}
{{- $configured := join ", " $names | default "none" -}}
{{- $problems := list -}}
{{- $chosen := list -}}
{{- range $item := splitList "," (index . 1) -}}
{{- $prefix := trimSuffix "*" $item -}}
{{- $many := hasSuffix "*" $item -}}
{{- $matched := list -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9]|[-a-z0-9]{0,61}\\*)?$" $item) -}}
{{- $problems = append $problems (printf "%q is neither a pool's name nor the beginning of names with a * after it; write such as nvme0,nvme1 or nvme*, with commas alone between them." $item) -}}
{{- else -}}
{{- range $names -}}
{{- if or (eq . $item) (and $many (hasPrefix $prefix .)) }}{{ $matched = append $matched . }}{{ end -}}
{{- end -}}
{{- if and $many (not $matched) -}}
{{- $problems = append $problems (printf "no pool's name begins with %q; storagePools has %s." $prefix $configured) -}}
{{- else if not $matched -}}
{{- $problems = append $problems (printf "no pool is named %q; storagePools has %s." $item $configured) -}}
{{- end -}}
{{- end -}}
{{- range $matched -}}
{{- if has . $chosen }}{{ $problems = append $problems (printf "it names pool %s twice; name each pool once." .) }}{{ end -}}
{{- $chosen = append $chosen . -}}
{{- end -}}
{{- end -}}
{{- $first := dict -}}
{{- range $pools -}}
{{- if has .name $chosen -}}
{{- $is := dict "name" .name "quota" (default "auto" .quota) "overcommit" (default 0 .overcommit | toString) -}}
{{- if not $first }}{{ $first = $is }}{{ end -}}
{{- if eq (default "node" .scope) "shared" -}}
{{- $problems = append $problems (printf "pool %s has scope shared; name it as the only one, or name pools with scope node." .name) -}}
{{- else if ne $is.quota $first.quota -}}
{{- $problems = append $problems (printf "pool %s has quota %s and pool %s has %s; want one quota for all of them." $first.name $first.quota .name $is.quota) -}}
{{- else if ne $is.overcommit $first.overcommit -}}
{{- $problems = append $problems (printf "pool %s has overcommit %s and pool %s has %s; want one overcommit for all of them." $first.name $first.overcommit .name $is.overcommit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $problems }}{{ first . }}{{ end -}}
{{- end -}}

{{- define "hostpath-provisioner.problems.snapshotClasses" -}}
{{- $problems := list -}}
{{- $names := list -}}
{{- $defaults := list -}}
{{- range $i, $class := .Values.snapshotClasses -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "snapshotClasses[%d] %q: there is another class of that name; names must be unique." $i .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
{{- $problems = append $problems (printf "snapshotClasses: %s are all marked as the driver's default class; mark one." (join ", " $defaults)) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{- define "hostpath-provisioner.problems.pod" -}}
{{- $problems := list -}}
{{- $driver := list (list "driver.httpPort" .Values.driver.httpPort)
  (list "driver.metricsTLS.port" (ternary .Values.driver.metricsTLS.port 0 .Values.driver.metricsTLS.enabled)) -}}
{{- $controller := list (list "controller.port" .Values.controller.port) -}}
{{- range include "hostpath-provisioner.controller.sidecars" . | fromYamlArray -}}
{{- $controller = append $controller (list (printf "sidecars.%s.httpPort" .) (get $.Values.sidecars .).httpPort) -}}
{{- end -}}
{{- range $pod := list
  (list (list "sidecars.livenessProbe.httpPort" (ternary .Values.sidecars.livenessProbe.httpPort 0 .Values.sidecars.livenessProbe.enabled)))
  $controller -}}
{{- $ports := dict -}}
{{- range concat $driver $pod -}}
{{- $what := index . 0 -}}
{{- $port := index . 1 | toString -}}
{{- if ne $port "0" -}}
{{- with get $ports $port -}}
{{- $problems = append $problems (printf "%s and %s are both %s; all containers of a pod share its ports." . $what $port) -}}
{{- end -}}
{{- $_ := set $ports $port $what -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.driver.metricsTLS.enabled (not .Values.driver.metricsTLS.secretName) -}}
{{- $problems = append $problems "driver.metricsTLS.enabled: driver.metricsTLS.secretName is empty; name a Secret of the namespace with tls.crt and tls.key." -}}
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
{{- toYaml (uniq $problems) -}}
{{- end -}}

{{- define "hostpath-provisioner.problems.operator" -}}
{{- $problems := list -}}
{{- $operator := .Values.operator -}}
{{- $webhook := $operator.webhook -}}
{{- if $operator.enabled -}}
{{- $problems = include "hostpath-provisioner.problems.certificates" (list . "operator.webhook" $webhook) | fromYamlArray -}}
{{- $ports := dict -}}
{{- range list (list "operator.healthPort" $operator.healthPort) (list "operator.metricsPort" $operator.metricsPort) (list "operator.webhook.port" $webhook.port) -}}
{{- $what := index . 0 -}}
{{- $port := index . 1 | toString -}}
{{- with get $ports $port -}}
{{- $problems = append $problems (printf "%s and %s are both %s; give each its own port." . $what $port) -}}
{{- end -}}
{{- $_ := set $ports $port $what -}}
{{- end -}}
{{- if eq ($operator.metricsPort | toString) "443" -}}
{{- $problems = append $problems "operator.metricsPort: 443 is the webhook's port in the same Service; choose another." -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{- define "hostpath-provisioner.problems.accounts" -}}
{{- $problems := list -}}
{{- $owners := dict -}}
{{- range $who, $name := include "hostpath-provisioner.accounts" . | fromYaml -}}
{{- $values := $.Values -}}
{{- range splitList "." $who }}{{ $values = get $values . }}{{ end -}}
{{- if not (or $values.serviceAccount.create $values.serviceAccount.name) -}}
{{- $problems = append $problems (printf "%s.serviceAccount.create is false, and %s.serviceAccount.name is empty; name the ServiceAccount that is there." $who $who) -}}
{{- end -}}
{{- with get $owners $name -}}
{{- $problems = append $problems (printf "%s.serviceAccount.name and %s.serviceAccount.name are both %q; each would have the other's rights: name two." . $who $name) -}}
{{- end -}}
{{- $_ := set $owners $name $who -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{/* The ServiceAccounts of all that may ask the API, by the place of their values. */}}
{{- define "hostpath-provisioner.accounts" -}}
driver: {{ include "hostpath-provisioner.csi.serviceAccountName" . | quote }}
controller: {{ include "hostpath-provisioner.controller.serviceAccountName" . | quote }}
{{- if .Values.operator.enabled }}
operator: {{ include "hostpath-provisioner.operator.serviceAccountName" . | quote }}
{{- end }}
legacyProvisioner: {{ include "hostpath-provisioner.legacy.serviceAccountName" . | quote }}
legacyProvisioner.shared: {{ include "hostpath-provisioner.networkFilesystem.serviceAccountName" . | quote }}
legacyProvisioner.everyNode: {{ include "hostpath-provisioner.everyNode.serviceAccountName" . | quote }}
legacyProvisioner.everyNode.manager: {{ include "hostpath-provisioner.everyNode.managerAccountName" . | quote }}
{{- end -}}
