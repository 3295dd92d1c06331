{{/* The alerts about nodes and the controller, as a list. */}}
{{- define "hostpath-provisioner.monitoring.driverAlerts" -}}
{{- with .Values.monitoring.prometheusRule }}
- alert: HostpathDriverAbsent
  expr: absent(hpp_build_info)
  for: 10m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "critical" "critical") | nindent 4 }}
  annotations:
    summary: No hostpath-provisioner driver reports metrics.
    description: Volumes that are mounted keep working; no pod with a volume of this driver can start or stop.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathDriverAbsent") }}
# One that is dead: the controller misses it, or, while there is no controller to say so, Prometheus does. A driver
# that reports is not dead, and on a node that kube-state-metrics, where it is, says is not ready, it is not the driver.
- alert: HostpathDriverDown
  expr: |-
    (
      max by (node) (hpp_controller_node_connected) == 0
      or
      max by (node) (up{namespace="{{ include "hostpath-provisioner.namespace" $ }}", pod=~"{{ include "hostpath-provisioner.csi.name" $ | trunc 58 }}-?[a-z0-9]{5}"}) == 0
      unless on (node) hpp_controller_node_connected
    )
    unless on (node) hpp_build_info
    unless on (node) kube_node_status_condition{condition="Ready", status="true"} == 0
  for: 5m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "critical" "critical") | nindent 4 }}
  annotations:
    summary: {{ "The driver on {{ $labels.node }} is down." | quote }}
    description: Volumes that are mounted there keep working; no pod with a volume of this driver can start or stop there, and no volume is made.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathDriverDown") }}
- alert: HostpathNodeNotConnected
  expr: hpp_controller_node_connected == 0
  for: 5m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "warning") | nindent 4 }}
  annotations:
    summary: {{ "The driver on {{ $labels.node }} is not connected to the controller." | quote }}
    description: Volumes there are not made, deleted or grown, and new claims go elsewhere. Pods there keep their volumes; they start and end unless the driver is down.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathNodeNotConnected") }}
- alert: HostpathPoolAbsent
  expr: hpp_pool_present == 0
  for: 5m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "critical" "critical") | nindent 4 }}
  annotations:
    summary: {{ "Pool {{ $labels.pool }} on {{ $labels.node }} is absent." | quote }}
    description: The directory or disk that held the pool is not the one it was. Nothing is created, published or deleted there until it is back.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathPoolAbsent") }}
- alert: HostpathPoolNearlyFull
  expr: 100 * hpp_pool_free_bytes / hpp_pool_size_bytes < {{ .nearlyFullPercent }} and hpp_pool_present == 1
  for: 15m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "warning") | nindent 4 }}
  annotations:
    summary: {{ "Pool {{ $labels.pool }} on {{ $labels.node }} has {{ $value | printf \"%.1f\" }} % of its disk left." | quote }}
    description: Volumes, deleted volumes or other files fill it. Where no quota is enforced, pods get "no space left on device" when nothing is left.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathPoolNearlyFull") }}
- alert: HostpathTrashStuck
  expr: hpp_pool_trash_overdue_seconds > {{ int64 .trashStuckSeconds }}
  for: 15m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "warning") | nindent 4 }}
  annotations:
    summary: {{ "Deleted volumes of pool {{ $labels.pool }} on {{ $labels.node }} are not being removed." | quote }}
    description: A deleted volume should have been removed by now; its space is not free yet.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathTrashStuck") }}
- alert: HostpathVolumesOrphaned
  expr: hpp_controller_orphans > 0
  for: 1h
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "none") | nindent 4 }}
  annotations:
    summary: {{ "Pool {{ $labels.pool }} on {{ $labels.node }} has {{ $value }} {{ if eq $labels.kind `no-snapshot-content` }}snapshots without a VolumeSnapshotContent{{ else if eq $labels.kind `other-node` }}volumes whose PersistentVolume names another node{{ else if eq $labels.kind `other-pool` }}volumes whose PersistentVolume names another pool{{ else }}volumes without a PersistentVolume{{ end }}." | quote }}
    description: They are never removed by themselves. Look before you discard them.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathVolumesOrphaned") }}
- alert: HostpathVolumesLost
  expr: hpp_pool_lost_volumes > 0
  for: 5m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "critical" "critical") | nindent 4 }}
  annotations:
    summary: {{ "Pool {{ $labels.pool }} on {{ $labels.node }} misses the data of {{ $value }} volumes." | quote }}
    description: There is a record and no directory. Somebody removed it, or a disk was restored from an older copy.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathVolumesLost") }}
- alert: HostpathVolumesRefused
  expr: hpp_pool_refused_volumes > 0
  for: 5m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "warning") | nindent 4 }}
  annotations:
    summary: {{ "Pool {{ $labels.pool }} on {{ $labels.node }} has {{ $value }} volumes that cannot be used." | quote }}
    description: Their record or directory cannot be used. The rest of the pool works.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathVolumesRefused") }}
- alert: HostpathVolumesNotEnforced
  expr: hpp_pool_uncounted_volumes > 0
  for: 1h
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "none") | nindent 4 }}
  annotations:
    summary: {{ "Pool {{ $labels.pool }} on {{ $labels.node }} has {{ $value }} volumes that nothing keeps to their size." | quote }}
    description: They were copied or restored by hand. One command enforces their size again.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathVolumesNotEnforced") }}
- alert: HostpathPoolReadOnly
  expr: hpp_pool_read_only == 1
  for: 5m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "critical" "critical") | nindent 4 }}
  annotations:
    summary: {{ "The filesystem of pool {{ $labels.pool }} on {{ $labels.node }} is read-only." | quote }}
    description: Volumes can be read. None can be written to, made or deleted.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathPoolReadOnly") }}
- alert: HostpathPoolHangs
  expr: hpp_pool_seen_seconds > 300
  for: 5m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "critical" "critical") | nindent 4 }}
  annotations:
    summary: {{ "The disk of pool {{ $labels.pool }} on {{ $labels.node }} does not answer." | quote }}
    description: The pool's figures are old. Operations on its volumes hang; other pools are served.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathPoolHangs") }}
- alert: HostpathCapacityQueueGrows
  expr: min_over_time(workqueue_depth{name="csistoragecapacity"}[10m]) > 100
  for: 20m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "warning") | nindent 4 }}
  annotations:
    summary: csi-provisioner does not keep up with publishing how much room nodes have.
    description: The scheduler chooses nodes by figures that are getting older, and csi-provisioner needs more and more memory.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HostpathCapacityQueueGrows") }}
- alert: HPPSharingPoolPathWithOS
  expr: kubevirt_hpp_pool_path_shared_with_os == 1 unless hpp_pool_reserve_bytes > 0
  for: 1m
  labels:
    {{- include "hostpath-provisioner.monitoring.labels" (list $ "warning" "warning") | nindent 4 }}
  annotations:
    summary: {{ "Pool {{ $labels.pool }} on {{ $labels.node }} shares its filesystem with the operating system, without a reserve." | quote }}
    description: Volumes that fill it take the node down with them, because the kubelet evicts pods when its disk is full.
    runbook_url: {{ include "hostpath-provisioner.monitoring.runbook" (list $ "HPPSharingPoolPathWithOS") }}
{{- end }}
{{- end -}}
