package explain_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func volumes() []row {
	return append(append(phases(), served()...), []row{
		{"well", func(*world) {}, "Well"},
		{"full, and can grow", func(w *world) { w.Listed[0].Used = 196 * gibi }, "Full!"},
		{"full, and its class lets nothing grow", func(w *world) {
			w.Listed[0].Used, w.class.AllowVolumeExpansion = 200*gibi, nil
		}, "Full!"},
		{"full, and little is left", func(w *world) {
			w.Listed[0].Used, w.pools[0].Allocatable = 200*gibi, 40*gibi
		}, "Full!"},
		{
			"full, and so is the pool", func(w *world) { w.Listed[0].Used, w.pools[0].Allocatable = 200*gibi, 0 },
			"Full!",
		},
		{"not grown", func(w *world) {
			w.ask("600Gi")
			w.tell("PersistentVolumeClaim", "shop", "pg", "VolumeResizeFailed", "resize volume failed: rpc error: "+
				"code = OutOfRange desc = no room in the pool nvme")
		}, "NotGrown!"},
		{"growing", func(w *world) { w.ask("300Gi") }, "Well Growing"},
		{"its node is gone", func(w *world) { w.Nodes, w.Reported.Nodes = w.Nodes[1:], nil }, "NodeGone!"},
		{"its node is not connected", (*world).disconnect, "NodeNotConnected!"},
		{"given up", func(w *world) {
			w.disconnect()
			w.pv.Annotations = map[string]string{driver + "/release-volume": "worker-1"}
		}, "GivenUp NodeNotConnected!"},
		{"its node lacks the driver", func(w *world) { w.CSINodes[0].Spec.Drivers = nil }, "DriverMissing!"},
		{
			"the controller is away", func(w *world) { w.Away, w.Reported.Nodes = "no pod is ready", nil },
			"ControllerAway!",
		},
	}...)
}

func served() []row {
	return []row{
		{"its pool is absent", func(w *world) {
			w.pools[0].State, w.pools[0].Reason = nodeapi.StateAbsent, "MarkerMissing"
			w.pools[0].Message = "nothing is mounted at /mnt/nvme"
		}, "PoolAbsent!"},
		{"its pool is none of the node's", func(w *world) { w.pools[0].Name = "other" }, "PoolAbsent!"},
		{"its pool was renamed", func(w *world) { w.pools[0].Name, w.Listed[0].Pool = "other", "other" }, "Well"},
		{"its pool hangs", func(w *world) { w.pools[0].Seen = now().Add(-10 * time.Minute) }, "PoolHangs!"},
		{"its pool is read-only", func(w *world) { w.pools[0].ReadOnly = true }, "PoolReadOnly!"},
		{"its claim is being deleted", func(w *world) {
			w.claim.DeletionTimestamp = &metav1.Time{Time: now()}
		}, "Deleting!"},
		{"its claim is being deleted, and is full", func(w *world) {
			w.claim.DeletionTimestamp, w.claim.Finalizers = &metav1.Time{Time: now()}, []string{"example.com/backup"}
			w.Pods, w.Listed[0].Used = nil, 200*gibi
		}, "Deleting! Full!"},
		{"its claim is being deleted, and it is kept", func(w *world) {
			w.claim.DeletionTimestamp = &metav1.Time{Time: now()}
			w.pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, "Deleting"},
		{"its directory is lost", func(w *world) { w.warn(nodeapi.WarningVolumeLost) }, "VolumeLost!"},
		{"its record cannot be used", func(w *world) { w.warn(nodeapi.WarningVolumeRefused) }, "VolumeRefused!"},
		{"it is not found", func(w *world) { w.Listed[0].State = "not found" }, "VolumeMissing!"},
		{"nothing holds it to its size", func(w *world) { w.warn(nodeapi.WarningVolumeNotEnforced) }, "NotEnforced!"},
		{"being moved", func(w *world) { w.Listed[0].State = nodeapi.MovingAway }, "Well Moving"},
		{"a copy elsewhere", func(w *world) {
			other := w.Listed[0]
			other.Node, other.State = "worker-2", "orphan, of node worker-1"
			w.Listed = append(w.Listed, other)
		}, "Well Copy"},
		{"of a shared pool", func(w *world) {
			w.pv.Spec.NodeAffinity = nil
			w.disconnect()
		}, "Well"},
		{"lost and full", func(w *world) {
			w.warn(nodeapi.WarningVolumeLost)
			w.Listed[0].Used = 200 * gibi
		}, "VolumeLost! Full!"},
	}
}

func phases() []row {
	release := func(policy corev1.PersistentVolumeReclaimPolicy, change func(*world)) func(*world) {
		return func(w *world) {
			w.Claims, w.Pods, w.pv.Status.Phase = nil, nil, corev1.VolumeReleased
			w.pv.Spec.PersistentVolumeReclaimPolicy = policy
			change(w)
		}
	}
	return []row{
		{"released, and kept", release(corev1.PersistentVolumeReclaimRetain, func(*world) {}), "Retained"},
		{"released", release(corev1.PersistentVolumeReclaimDelete, func(*world) {}), "Deleting"},
		{"cannot be deleted", release(corev1.PersistentVolumeReclaimDelete, func(w *world) {
			w.disconnect()
			w.tell("PersistentVolume", "", "pvc-1-2", "VolumeFailedDelete", "rpc error: code = Unavailable desc = "+
				"node worker-1 is not connected to the controller")
		}), "NodeNotConnected! DeleteFails!"},
		{"failed", release(corev1.PersistentVolumeReclaimDelete, func(w *world) {
			w.pv.Status.Phase, w.pv.Status.Message = corev1.VolumeFailed, "volume is published"
		}), "Failed!"},
		{"available", release(corev1.PersistentVolumeReclaimRetain, func(w *world) {
			w.pv.Status.Phase, w.pv.Spec.ClaimRef = corev1.VolumeAvailable, nil
		}), "Available"},
	}
}

func pods() []row {
	bound := func(change func(*world)) func(*world) {
		return func(w *world) {
			w.unschedule("0/3 nodes are available: 1 Insufficient memory, 2 volume node affinity conflict.")
			change(w)
		}
	}
	starting := func(change func(*world)) func(*world) {
		return func(w *world) { w.pod.Status.Phase = corev1.PodPending; change(w) }
	}
	return []row{
		{"runs", func(*world) {}, "Running Well"},
		{"without a volume of the driver", func(w *world) { w.pod.Spec.Volumes = nil }, "Running"},
		{"its claim is missing", func(w *world) { w.pend(); w.Claims = nil }, "ClaimMissing!"},
		{"its claim has no room", func(w *world) { w.pend() }, "NoRoom! Unschedulable!"},
		{
			"its volume's node is cordoned", bound(func(w *world) { w.Nodes[0].Spec.Unschedulable = true }),
			"NodeCordoned! Well",
		},
		{
			"its volume's node is not ready", bound(func(w *world) { w.Nodes[0].Status.Conditions = nil }),
			"NodeNotReady! Well",
		},
		{
			"its volume's node is gone", bound(func(w *world) { w.Nodes, w.Reported.Nodes = w.Nodes[1:], nil }),
			"NodeGone! NodeGone!", //nolint:dupword // the pod's answer, and its claim's
		},
		{"its volume's node is full", bound(func(*world) {}), "NodeFull! Well"},
		{"its claims are on two nodes", bound(func(w *world) {
			second, pv := *w.claim.DeepCopy(), *w.pv.DeepCopy()
			second.Name, second.Spec.VolumeName, second.UID = "logs", "pvc-3", "3"
			pv.Name, pv.Spec.CSI.VolumeHandle, pv.Spec.ClaimRef.Name = "pvc-3", "pvc-3", "logs"
			place(&pv, "worker-2")
			w.Claims, w.Volumes = append(w.Claims, second), append(w.Volumes, pv)
			w.pod.Spec.Volumes = append(w.pod.Spec.Volumes, uses("logs"))
		}), "TwoNodes! Well Well"}, //nolint:dupword // one for each claim
		{"its volume cannot be mounted", starting(func(w *world) {
			w.tell("Pod", "shop", "pg-0", "FailedMount", "MountVolume.SetUp failed for volume \"pvc-1-2\" : rpc "+
				"error: code = Unavailable desc = pool is absent: nothing is mounted at /mnt/nvme")
			w.pools[0].State = nodeapi.StateAbsent
		}), "NotMounted! PoolAbsent!"},
		{"its volume is being moved", starting(func(w *world) {
			w.tell("Pod", "shop", "pg-0", "FailedMount", "rpc error: code = FailedPrecondition desc = volume pvc-1-2 "+
				"is being moved to node worker-2")
		}), "Moving Well"},
		{
			"its node lacks the driver", starting(func(w *world) { w.CSINodes[0].Spec.Drivers = nil }),
			"DriverMissing! DriverMissing!", //nolint:dupword // the pod's answer, and its claim's
		},
		{"its node is down", func(w *world) {
			w.pod.DeletionTimestamp, w.Nodes[0].Status.Conditions = &metav1.Time{Time: now()}, nil
		}, "NodeDown! Well"},
		{"failed", func(w *world) { w.pod.Status.Phase = corev1.PodFailed }, "Failed! Well"},
		{"evicted", func(w *world) {
			w.pod.Status.Phase, w.pod.Status.Reason = corev1.PodFailed, "Evicted"
			w.pod.Status.Message = "The node was low on resource: ephemeral-storage. "
		}, "Failed! Well"},
		{"its node is silent", func(w *world) { w.pod.Status.Phase = corev1.PodUnknown }, "NodeSilent! Well"},
		{"ended", func(w *world) { w.pod.Status.Phase = corev1.PodSucceeded }, "Ended Well"},
		{"nothing known", starting(func(w *world) {
			w.tell("Pod", "shop", "pg-0", "Pulling", "Pulling image")
		}), "Unknown Well"},
	}
}

func nodes() []row {
	return []row{
		{"well", func(*world) {}, "Well"},
		{"cordoned", func(w *world) { w.Nodes[0].Spec.Unschedulable = true }, "Cordoned"},
		{"gone", func(w *world) { w.Nodes = w.Nodes[1:]; w.disconnect() }, "NodeGone! NodeNotConnected!"},
		{"not ready", func(w *world) { w.Nodes[0].Status.Conditions = nil }, "NodeNotReady!"},
		{
			"without a pod of the driver", func(w *world) { w.CSINodes[0].Spec.Drivers, w.DriverPods = nil, nil },
			"DriverMissing!",
		},
		{"its driver's pod does not start", func(w *world) {
			w.Controller.Namespace = "" // there is no controller that would say it
			w.CSINodes[0].Spec.Drivers, w.DriverPods[0].Status.Conditions = nil, nil
			w.DriverPods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "driver"}}
			w.DriverPods[0].Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: "back-off 5m0s",
			}
		}, "DriverNotReady!"},
		{"the kubelet has another directory", func(w *world) { w.CSINodes[0].Spec.Drivers = nil }, "NotRegistered!"},
		{"not connected", (*world).disconnect, "NodeNotConnected!"},
		{"never connected", func(w *world) { w.Reported.Nodes = w.Reported.Nodes[1:] }, "NodeNotConnected!"},
		{
			"the controller is away", func(w *world) { w.Away, w.Reported.Nodes = "no pod is ready", nil },
			"ControllerAway!",
		},
		{"another version", func(w *world) { w.Reported.Nodes[0].Version = "0.1.0" }, "OtherVersion"},
		{"its pools", func(w *world) {
			pools := &w.Reported.Nodes[0].Pools
			is := (*pools)[0]
			add := func(name string, change func(*nodeapi.PoolStatus)) {
				p := is
				p.Name = name
				change(&p)
				*pools = append(*pools, p)
			}
			add("absent", func(p *nodeapi.PoolStatus) {
				p.State, p.Reason, p.Message = nodeapi.StateAbsent, "NotMounted", "requireMount is set"
			})
			add("elsewhere", func(p *nodeapi.PoolStatus) { p.State = nodeapi.StateNotSelected })
			add("hanging", func(p *nodeapi.PoolStatus) { p.Seen = now().Add(-time.Hour) })
			add("read-only", func(p *nodeapi.PoolStatus) { p.ReadOnly = true })
			add("lax", func(p *nodeapi.PoolStatus) {
				p.EnforcementLost, p.EnforcementReason = true, "the quota is off: mount it with prjquota"
			})
			add("closed", func(p *nodeapi.PoolStatus) {
				p.Reason, p.Message = nodeapi.ReasonNoNewVolumes, "a record cannot be read"
			})
			add("left", func(p *nodeapi.PoolStatus) { p.State = nodeapi.StateNotConfigured })
			add("warns", func(p *nodeapi.PoolStatus) {
				p.Warnings = []nodeapi.Warning{{Reason: nodeapi.WarningVolumeLost, Message: "no directory for: pvc-1"}}
			})
		}, "PoolAbsent! PoolHangs! PoolReadOnly! EnforcementLost! NoNewVolumes! NotConfigured VolumeLost!"},
	}
}

func orphans() []row {
	return []row{
		{"of no PersistentVolume", func(w *world) { w.Listed[0].State = "orphan" }, "Orphan!"},
		{"a snapshot", func(w *world) { w.Listed[0].SnapshotOf = "pvc-0" }, "Snapshot"},
		{"new", func(*world) {}, "Unnamed"},
	}
}
