package explain_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// pending makes a change to a world whose claim waits.
func pending(change func(*world)) func(*world) {
	return func(w *world) {
		w.pend()
		change(w)
	}
}

const notSelected = "this node's labels do not match the pool's nodeSelector: disktype=nvme"

func claims() []row {
	return append(append(classes(), waiting()...), []row{
		{"no node has the room", pending(func(w *world) {
			w.pools[1].State, w.pools[1].Message = nodeapi.StateAbsent, "nothing mounted at /mnt/nvme"
			for i := range 46 {
				w.Reported.Nodes = append(w.Reported.Nodes, nodeapi.NodeStatus{
					Name: fmt.Sprint("other-", i), State: "connected",
					Pools: []nodeapi.PoolStatus{{Name: "nvme", State: nodeapi.StateNotSelected, Message: notSelected}},
				})
				meta := metav1.ObjectMeta{Name: fmt.Sprint("other-", i)}
				drivers := []storagev1.CSINodeDriver{{Name: driver}}
				w.CSINodes = append(w.CSINodes, storagev1.CSINode{
					ObjectMeta: meta, Spec: storagev1.CSINodeSpec{Drivers: drivers},
				})
			}
		}), "NoRoom!"},
		{"room, but the nodes take no pods", pending(func(w *world) {
			w.ask("100Gi")
			w.Nodes[0].Spec.Unschedulable, w.Nodes[1].Status.Conditions = true, nil
			w.Reported.Nodes[2].State = "not connected"
		}), "NodesUnfit!"},
		{"all promised, or maxVolumes", pending(func(w *world) {
			w.ask("100Gi")
			for _, p := range w.pools {
				p.Allocatable, p.TrashEntries = 0, 2
			}
		}), "NoRoom!"},
		{"the disk is full, and has no quota", pending(func(w *world) {
			for _, p := range w.pools {
				p.Free, p.Allocatable, p.Enforcement = 0, 0, "none"
			}
		}), "NoRoom!"},
		{"the pool can be used nowhere", pending(func(w *world) {
			w.pools[0].State, w.pools[0].Message = nodeapi.StateAbsent, "nothing mounted at /mnt/nvme"
			w.pools[1].ReadOnly = true
			w.pools[2].Reason, w.pools[2].Message = nodeapi.ReasonNoNewVolumes, "quota is off"
		}), "PoolMissing!"},
		{"a disk hangs", pending(func(w *world) {
			w.pools[0].Seen = now().Add(-10 * time.Minute)
		}), "NoRoom!"},
		{"larger than any pool", pending(func(w *world) { w.ask("2Ti") }), "ClaimTooLarge!"},
		{"without the right to ask the controller", pending(func(w *world) {
			w.Reported.Nodes = nil
			size := resource.MustParse("212Gi")
			w.Capacities = []storagev1.CSIStorageCapacity{{
				StorageClassName: "fast", MaximumVolumeSize: &size,
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{topology: "worker-1"}},
			}}
		}), "NoRoom!"},
	}...)
}

func waiting() []row {
	return []row{
		{
			"chosen node is not connected", pending(func(w *world) { w.annotate("worker-1"); w.disconnect() }),
			"NodeNotConnected!",
		},
		{"chosen node is gone", pending(func(w *world) { w.annotate("worker-9") }), "NodeGone!"},
		{"chosen node lacks the driver", pending(func(w *world) {
			w.annotate("worker-1")
			w.CSINodes[0].Spec.Drivers = nil
		}), "DriverMissing!"},
		{"no node has the driver", pending(func(w *world) {
			for i := range w.CSINodes {
				w.CSINodes[i].Spec.Drivers = nil
			}
		}), "DriverNowhere!"},
		{"the controller is away", pending(func(w *world) { w.Away = "no pod is ready" }), "ControllerAway!"},
		{"the pod waits for something else", pending(func(w *world) {
			w.ask("100Gi")
			w.unschedule("0/3 nodes are available: 3 Insufficient cpu.")
		}), "PodUnschedulable!"},
		{"refused by the driver", pending(func(w *world) {
			w.ask("100Gi")
			w.pod.Status.Conditions = nil
			w.tell("PersistentVolumeClaim", "shop", "pg", "ProvisioningFailed", "failed to provision volume with "+
				"StorageClass \"fast\": rpc error: code = InvalidArgument desc = parameters.uid: \"x\"\x1b[2J")
		}), "Refused!"},
		{"refused by the driver, and then a conflict", pending(func(w *world) {
			w.ask("100Gi")
			w.pod.Status.Conditions = nil
			w.tell("PersistentVolumeClaim", "shop", "pg", "ProvisioningFailed", "rpc error: code = InvalidArgument "+
				"desc = access mode MULTI_NODE_MULTI_WRITER: want ReadWriteOnce, or a pool with sharedAccess: true")
			w.tell("PersistentVolumeClaim", "shop", "pg", "ProvisioningFailed", "Operation cannot be fulfilled on "+
				"persistentvolumeclaims \"pg\": the object has been modified; please apply your changes to the "+
				"latest version and try again")
			w.tell("PersistentVolumeClaim", "shop", "pg", "ProvisioningFailed", "of another component")
			w.Events[0].Source.Component = driver + "_csi-provisioner"
		}), "Refused!"},
		{"nothing known", pending(func(w *world) {
			w.ask("100Gi")
			w.pod.Status.Conditions = nil
			w.Missing = []string{"nodes were not read: you may not list nodes"}
			w.tell("PersistentVolumeClaim", "shop", "pg", "ExternalProvisioning", "Waiting for a volume to be created")
		}), "Unknown"},
	}
}

func classes() []row {
	return []row{
		{"bound and well", func(*world) {}, "Well"},
		{"no pod yet", pending(func(w *world) { w.Pods = nil }), "WaitsForPod"},
		{"no such class", pending(func(w *world) { w.Classes[0].Name = "slow" }), "ClassMissing!"},
		{"no class, and no default", pending(func(w *world) { w.claim.Spec.StorageClassName = nil }), "NoClass!"},
		{"class of another driver", pending(func(w *world) { w.class.Provisioner = "other.example" }), "OtherDriver"},
		{"bound to another driver's volume", func(w *world) { w.claim.Spec.VolumeName = "nfs" }, "OtherDriver"},
		{
			"class names a pool of no node", pending(func(w *world) { w.class.Parameters["storagePool"] = "nvm" }),
			"PoolUnknown!",
		},
		{"a parameter is misspelt", pending(func(w *world) {
			delete(w.class.Parameters, "storagePool")
			w.class.Parameters["storagepool"] = "nvme"
		}), "PoolUnknown!"},
		{"class names none of several pools", pending(func(w *world) {
			delete(w.class.Parameters, "storagePool")
			w.Reported.Nodes[0].Pools = append(w.Reported.Nodes[0].Pools, nodeapi.PoolStatus{Name: "ssd"})
		}), "PoolUnknown!"},
		{
			"class names pools that no node has",
			pending(func(w *world) { w.class.Parameters["storagePool"] = "ssd*" }),
			"PoolUnknown!",
		},
		{"being restored", pending(func(w *world) {
			w.Listed = []nodeapi.VolumeStatus{{
				ID: "pvc-1-2", Node: "worker-2", State: "3Gi of about 8Gi, and 1200 files, are copied",
			}}
		}), "Copying"},
		{"a restore that was interrupted", pending(func(w *world) {
			w.Listed = []nodeapi.VolumeStatus{{ID: "pvc-1-2", Node: "worker-2", State: nodeapi.NotWhole}}
		}), "CopyWaits"},
		{"clone of a claim whose node is away", pending(func(w *world) {
			w.claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "old"}
			source := corev1.PersistentVolume{}
			source.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "old"}
			place(&source, "worker-1")
			w.Volumes = []corev1.PersistentVolume{source}
			w.disconnect()
		}), "SourceAway!"},
		{"restore of a snapshot whose node is away", pending(func(w *world) {
			w.claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "before"}
			w.tell("PersistentVolumeClaim", "shop", "pg", "ProvisioningFailed", "rpc error: code = Unavailable desc = "+
				"node worker-1 is not connected to the controller")
		}), "SourceAway!"},
		{"being deleted, with a pod", pending(func(w *world) {
			w.claim.DeletionTimestamp = &metav1.Time{Time: now()}
		}), "Deleting!"},
		{"being deleted, with a volume and a pod", func(w *world) {
			w.claim.DeletionTimestamp = &metav1.Time{Time: now()}
		}, "Deleting!"},
		{
			"its volume is gone", func(w *world) { w.claim.Status.Phase, w.Volumes = corev1.ClaimLost, nil },
			"VolumeGone!",
		},
		{
			"asks for a volume that is not there", pending(func(w *world) { w.claim.Spec.VolumeName = "pvc-9" }),
			"VolumeMissing!",
		},
		{"asks for another's volume", func(w *world) {
			w.claim.Status.Phase = corev1.ClaimPending
			uid(w, "7")
		}, "VolumeTaken!"},
	}
}
