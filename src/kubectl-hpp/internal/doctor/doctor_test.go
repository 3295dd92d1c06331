package doctor_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/doctor"
)

const (
	driver    = "hpp.example"
	isDefault = "storageclass.kubernetes.io/is-default-class"
	gibi      = 1 << 30
)

func now() time.Time { return time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC) }

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func readyPod(name, node string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: meta("hpp", name)}
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// healthy is an installation on two nodes that nothing is wrong with.
func healthy() *doctor.Facts {
	no, yes := false, true
	f := &doctor.Facts{Plugin: "0.2.0", Server: "1.37.1", SnapshotAPI: &yes, SnapshotController: &yes}
	f.Controller = cluster.Controller{Namespace: "hpp", Pod: "controller-1", Driver: driver}
	f.ControllerPods = []corev1.Pod{readyPod("controller-1", "worker-1")}
	f.CSIDriver = &storagev1.CSIDriver{ObjectMeta: meta("", driver), Spec: storagev1.CSIDriverSpec{
		AttachRequired: &no, PodInfoOnMount: &yes, StorageCapacity: &yes,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
	}}
	f.Classes = []storagev1.StorageClass{{
		ObjectMeta:  metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{isDefault: "true"}},
		Provisioner: driver, Parameters: map[string]string{"storagePool": "nvme"},
	}}
	f.Now = now()
	f.Reported = nodeapi.Status{Driver: driver, Version: "0.2.0"}
	for _, name := range []string{"worker-1", "worker-2"} {
		n := corev1.Node{ObjectMeta: meta("", name)}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{
			KernelVersion: "6.1.0-26-amd64", OSImage: "Debian GNU/Linux 12 (bookworm)", Architecture: "amd64",
		}
		f.Nodes = append(f.Nodes, n)
		drivers := []storagev1.CSINodeDriver{{Name: driver}}
		f.CSINodes = append(f.CSINodes, storagev1.CSINode{
			ObjectMeta: n.ObjectMeta, Spec: storagev1.CSINodeSpec{Drivers: drivers},
		})
		f.DriverPods = append(f.DriverPods, readyPod("driver-"+name, name))
		f.Reported.Nodes = append(f.Reported.Nodes, nodeapi.NodeStatus{
			Name: name, State: "connected", Version: "0.2.0", Seen: now(),
			Pools: []nodeapi.PoolStatus{{
				Name: "nvme", Path: "/mnt/nvme", State: nodeapi.StatePresent, Backend: "xfs", Enforcement: "strict",
				Seen: now(), Size: 1000 * gibi, Free: 600 * gibi, Allocatable: 200 * gibi,
			}},
		})
	}
	return f
}

// TestExamine: what is wrong is said so, and testdata shows how; with UPDATE_GOLDEN=1 that is written anew.
func TestExamine(t *testing.T) {
	var text strings.Builder
	for _, row := range rows() {
		f := healthy()
		row.change(f)
		checks := doctor.Examine(*f)
		if fails, warns := doctor.Count(checks, doctor.Fail), doctor.Count(checks, doctor.Warn); fails != row.fails ||
			warns != row.warns || doctor.Failed(checks) != (row.fails > 0) {
			t.Errorf("%s: %d fail and %d warn, want %d and %d", row.name, fails, warns, row.fails, row.warns)
		}
		text.WriteString("# " + row.name + "\n")
		if row.name != "healthy" { // what is well is in the first
			checks = worse(checks)
		}
		if err := doctor.Write(&text, checks); err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n")
	}
	const file = "testdata/doctor.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), text.String()); err != nil || diff != "" {
		t.Errorf("%v: UPDATE_GOLDEN=1 writes it anew: %s", err, diff)
	}
}

func worse(checks []doctor.Check) (all []doctor.Check) {
	for _, c := range checks {
		if c.Level != doctor.OK {
			all = append(all, c)
		}
	}
	return all
}

type row struct {
	name         string
	change       func(*doctor.Facts)
	fails, warns int
}

func rows() []row {
	no := false
	return append(nodeRows(), []row{
		{"old Kubernetes", func(f *doctor.Facts) { f.Server = "1.29.4+k3s1" }, 1, 0},
		{"unknown Kubernetes", func(f *doctor.Facts) { f.Server = "" }, 0, 1},
		{"an operator that waits", func(f *doctor.Facts) {
			available := metav1.Condition{Type: v1beta1.Available, Status: metav1.ConditionTrue}
			f.Resources = resource(available, metav1.Condition{
				Type: v1beta1.NotServed, Status: metav1.ConditionTrue, Reason: "KubevirtOperatorRuns",
				Message: "kubevirt's operator runs",
			})
		}, 0, 1},
		{"an operator that does not get on", func(f *doctor.Facts) {
			f.Resources = resource(metav1.Condition{
				Type: v1beta1.Available, Status: metav1.ConditionFalse, Reason: "RolloutIncomplete",
				Message: "1 of 2 nodes",
			})
		}, 1, 0},
		{"no operator", func(f *doctor.Facts) {
			f.Resources = resource()
		}, 0, 1},
		{"an operator that serves", func(f *doctor.Facts) {
			f.Resources = resource(metav1.Condition{
				Type: v1beta1.Available, Status: metav1.ConditionTrue, Reason: "AsExpected",
			})
		}, 0, 0},
		{"no CSIDriver", func(f *doctor.Facts) { f.CSIDriver = nil }, 1, 0},
		{"a CSIDriver of others", func(f *doctor.Facts) {
			f.CSIDriver.Spec = storagev1.CSIDriverSpec{PodInfoOnMount: &no}
		}, 1, 0},
		{"the controller is away", func(f *doctor.Facts) {
			f.Away, f.Reported = "no pod is ready", nodeapi.Status{}
			f.ControllerPods[0].Status.Conditions = nil
			f.ControllerPods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:  "controller",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
			}}
		}, 2, 0},
		{"no right to ask the controller", func(f *doctor.Facts) {
			f.Reported = nodeapi.Status{}
			f.Missing = []string{"you may not run commands in pod hpp/controller-1"}
		}, 0, 2},
		{"an old plugin", func(f *doctor.Facts) { f.Plugin = "0.1.0"; f.Reported.Version = "0.3.1" }, 1, 2},
		{"an old node", func(f *doctor.Facts) { f.Reported.Nodes[0].Version = "0.0.9" }, 1, 1},
		{"no default class", func(f *doctor.Facts) { f.Classes[0].Annotations = nil }, 0, 1},
		{"two default classes, one of no pool", func(f *doctor.Facts) {
			second := *f.Classes[0].DeepCopy()
			second.Name, second.Parameters["storagePool"] = "slow", "hdd"
			f.Classes = append(f.Classes, second)
		}, 1, 1},
		{"no class", func(f *doctor.Facts) { f.Classes = nil }, 0, 2},
		{"no snapshots", func(f *doctor.Facts) { f.SnapshotAPI = &no }, 0, 1},
		{"no snapshot-controller", func(f *doctor.Facts) { f.SnapshotController = &no }, 0, 1},
		{"snapshots that may not be seen", func(f *doctor.Facts) { f.SnapshotController = nil }, 0, 1},
	}...)
}

// resource is a HostPathProvisioner with conditions.
func resource(is ...metav1.Condition) []v1beta1.HostPathProvisioner {
	one := v1beta1.HostPathProvisioner{ObjectMeta: meta("", "hostpath-provisioner")}
	one.Status.Conditions = is
	return []v1beta1.HostPathProvisioner{one}
}

func nodeRows() []row {
	yes := true
	return []row{
		{"healthy", func(*doctor.Facts) {}, 0, 0},
		{"no node has the driver", func(f *doctor.Facts) {
			f.DriverPods, f.Reported.Nodes, f.CSINodes = nil, nil, nil
		}, 1, 0},
		{"a node is not connected", func(f *doctor.Facts) {
			f.Reported.Nodes[0].State, f.Reported.Nodes[0].Pools = "not connected", nil
			f.Reported.Nodes[0].Seen = now().Add(-6 * time.Minute)
		}, 1, 0},
		{"a kernel that is too old", func(f *doctor.Facts) {
			f.Nodes[0].Status.NodeInfo = corev1.NodeSystemInfo{
				KernelVersion: "4.18.0-553.el8_10.x86_64", OSImage: "Rocky Linux 8.10", Architecture: "amd64",
			}
		}, 1, 0},
		{"a kernel that does not mount everything", func(f *doctor.Facts) {
			f.Nodes[1].Status.NodeInfo.KernelVersion = "5.8.0-63-generic"
		}, 0, 1},
		{"a kernel of no version", func(f *doctor.Facts) { f.Nodes[0].Status.NodeInfo.KernelVersion = "custom" }, 0, 1},
		{"the oldest kernel", func(f *doctor.Facts) { f.Nodes[0].Status.NodeInfo.KernelVersion = "5.12.0" }, 0, 0},
		{"another kubeletDir", func(f *doctor.Facts) { f.CSINodes[0].Spec.Drivers = nil }, 1, 0},
		{"a driver's pod that is not ready", func(f *doctor.Facts) {
			f.CSINodes[0].Spec.Drivers, f.DriverPods[0].Status.Conditions = nil, nil
		}, 1, 0},
		{"a node has no such disk, and never had", func(f *doctor.Facts) {
			f.Reported.Nodes[1].Pools[0].State = nodeapi.StateAbsent
		}, 0, 0},
		{"no node has such a disk", func(f *doctor.Facts) {
			for i := range f.Reported.Nodes {
				f.Reported.Nodes[i].Pools[0].State = nodeapi.StateAbsent
			}
		}, 3, 0},
		{"a pool is absent", func(f *doctor.Facts) {
			p := &f.Reported.Nodes[1].Pools[0]
			p.Used, p.State, p.Reason = true, nodeapi.StateAbsent, "NotMounted"
			p.Message = "nothing is mounted at /mnt/nvme"
		}, 1, 0},
		{"a pool is selected nowhere", func(f *doctor.Facts) {
			for i := range f.Reported.Nodes {
				f.Reported.Nodes[i].Pools[0].State = nodeapi.StateNotSelected
			}
		}, 0, 1},
		{"nothing is enforced, and the disk is the system's", func(f *doctor.Facts) {
			for i := range f.Reported.Nodes {
				p := &f.Reported.Nodes[i].Pools[0]
				p.Backend, p.Enforcement, p.WithOS = "plain", "none", &yes
				p.EnforcementReason = "the filesystem is mounted without prjquota: add it to /etc/fstab"
			}
		}, 0, 2},
		{"clocks", func(f *doctor.Facts) {
			f.Reported.Nodes[0].Pools[0].Since = now().Add(time.Hour)
			f.Reported.Nodes[1].Seen = now().Add(10 * time.Minute)
			f.Reported.Nodes[1].Pools[0].Seen = now().Add(10 * time.Minute)
		}, 1, 1},
	}
}
