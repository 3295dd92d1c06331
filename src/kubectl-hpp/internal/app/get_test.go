package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster/clustertest"
)

const (
	driver = "hpp.example"
	gib    = int64(1) << 30
)

// clock is the time in all tests.
func clock() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func before(age time.Duration) time.Time { return clock().Add(-age) }

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// claim is one with its volume and its pod.
func claim(namespace, name, node string, bytes int64, age time.Duration) []runtime.Object {
	id := "pvc-" + name
	pv := &corev1.PersistentVolume{ObjectMeta: named("", id)}
	pv.CreationTimestamp = metav1.NewTime(before(age))
	pv.Spec = corev1.PersistentVolumeSpec{
		Capacity:         corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)},
		ClaimRef:         &corev1.ObjectReference{Namespace: namespace, Name: name},
		StorageClassName: "fast",
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: topologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}},
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: driver, VolumeHandle: id,
		VolumeAttributes: map[string]string{"storagePool": "nvme", "enforcement": "strict"},
	}
	pv.Status.Phase = corev1.VolumeBound
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: named(namespace, name)}
	pvc.Spec.VolumeName, pvc.Status.Phase = id, corev1.ClaimBound
	pod := &corev1.Pod{ObjectMeta: named(namespace, name)}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}
	pod.Spec.NodeName = node
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}}
	return []runtime.Object{pv, pvc, pod}
}

// controllerPod is the controller's.
func controllerPod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: named("hpp", "hpp-controller-1")}
	pod.Labels = map[string]string{
		"app.kubernetes.io/component": "csi-controller", "app.kubernetes.io/part-of": "hostpath-provisioner",
		"app.kubernetes.io/version": buildinfo.Version(),
	}
	pod.Spec.Containers = []corev1.Container{{Name: "controller", Args: []string{
		"--driver-name=" + driver, "--topology-key=" + topologyKey,
	}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "controller", Ready: true}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func withoutProvisioner(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name:  "csi-provisioner",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	})
	return pod
}

func readyNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: named("", name)}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// driverPod is one on whose conditions the controller has written what the node's pools are.
func driverPod(node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: named("hpp", "driver-"+node)}
	pod.Labels = map[string]string{
		"app.kubernetes.io/component": "csi-driver", "app.kubernetes.io/part-of": "hostpath-provisioner",
	}
	pod.Spec.NodeName = node
	tell := func(pool, reason, message string) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType("pool.hostpathprovisioner.kubevirt.io/" + pool), Reason: reason,
			Message: message, LastTransitionTime: metav1.NewTime(before(2 * time.Hour)),
		})
	}
	switch node {
	case "worker-4":
		tell("nvme", "PoolDegraded", "/mnt/nvme can be used, but its filesystem is read-only")
		tell("hdd", "PoolNotSelected", "the nodeSelector does not match")
	case "worker-9":
		tell("nvme", "PoolAbsent", "NotMounted: nothing is mounted at /mnt/nvme")
		tell("hdd", "PoolPresent", "/mnt/hdd can be used; enforcement of sizes: strict")
	case "worker-17":
		tell("nvme", "PoolUnknown", "the driver of this node is not connected to the controller")
	}
	return pod
}

// objects are a small shop.
func objects() []runtime.Object {
	const day = 24 * time.Hour
	class := &storagev1.StorageClass{
		ObjectMeta: named("", "fast"), Provisioner: driver, Parameters: map[string]string{"storagePool": "nvme"},
	}
	waits := &corev1.PersistentVolumeClaim{ObjectMeta: named("shop", "pg-3")}
	waits.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "worker-17"}
	waits.Spec.StorageClassName, waits.Status.Phase = &class.Name, corev1.ClaimPending
	all := []runtime.Object{controllerPod(), class, waits}
	all = append(all, claim("shop", "pg-0", "worker-4", 100*gib, 41*day)...)
	all = append(all, claim("shop", "pg-2", "worker-4", 200*gib, 41*day)...)
	all = append(all, claim("blog", "media", "worker-17", 50*gib, 3*day)...)
	for _, node := range []string{"worker-4", "worker-9", "worker-17"} {
		all = append(all, &storagev1.CSINode{
			ObjectMeta: named(
				"",
				node,
			),
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver}}},
		}, readyNode(node), driverPod(node), &storagev1.CSIStorageCapacity{
			ObjectMeta: named("hpp", "csisc-"+node), StorageClassName: "fast",
			Capacity:     resource.NewQuantity(212*gib, resource.BinarySI),
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{topologyKey: node}},
		})
	}
	return all
}

// stuck are claims that wait, of which two have to be seen to, and one that is lost.
func stuck() (all []runtime.Object) {
	class := &storagev1.StorageClass{
		ObjectMeta: named("", "late"), Provisioner: driver, Parameters: map[string]string{"storagePool": "nvme"},
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	add := func(class, name string, pod time.Duration, phase corev1.PersistentVolumeClaimPhase) {
		of := claim("shop", name, "", gib, time.Hour)
		for _, o := range of[1:] {
			switch is := o.(type) {
			case *corev1.PersistentVolumeClaim:
				is.UID, is.CreationTimestamp = types.UID(name), metav1.NewTime(before(time.Hour))
				is.Spec = corev1.PersistentVolumeClaimSpec{StorageClassName: &class}
				is.Status.Phase = phase
				all = append(all, is)
			case *corev1.Pod:
				is.Status.Phase, is.CreationTimestamp = corev1.PodPending, metav1.NewTime(before(pod))
				if pod > 0 {
					all = append(all, is)
				}
			}
		}
	}
	add("late", "waits", time.Hour, corev1.ClaimPending)
	add("late", "new-pod", time.Minute, corev1.ClaimPending)
	add("late", "unused", 0, corev1.ClaimPending)
	add("late", "copied", time.Hour, corev1.ClaimPending)
	add("fast", "at-once", 0, corev1.ClaimPending)
	add("fast", "lost", 0, corev1.ClaimLost)
	add("theirs", "other", time.Hour, corev1.ClaimPending)
	return append(all, class)
}

// pool is one where all is well.
func pool(name string) nodeapi.PoolStatus {
	return nodeapi.PoolStatus{
		Name: name, Path: "/mnt/" + name, State: nodeapi.StatePresent, Selected: true, Used: true, Backend: "project",
		Enforcement: "strict", Size: 1024 * gib, Free: 600 * gib, Promised: 300 * gib, Allocatable: 500 * gib,
		Volumes: 2, TrashEntries: 1, Since: before(50 * time.Hour),
	}
}

// well is an installation of which nothing is wrong.
func well() nodeapi.Status {
	connected := func(name string, pools ...nodeapi.PoolStatus) nodeapi.NodeStatus {
		return nodeapi.NodeStatus{
			Name: name, State: "connected", Version: buildinfo.Version(), Seen: before(2 * time.Second), Pools: pools,
		}
	}
	return nodeapi.Status{Driver: driver, Version: buildinfo.Version(), Nodes: []nodeapi.NodeStatus{
		connected("worker-4", pool("nvme")), connected("worker-9", pool("nvme"), pool("hdd")),
		connected("worker-17", pool("nvme")),
	}}
}

// troubled is one of which much is.
func troubled() nodeapi.Status {
	s := well()
	full, absent, away := &s.Nodes[0].Pools[0], &s.Nodes[1].Pools[0], &s.Nodes[2]
	full.Free, full.Lost, full.TrashDue = 50*gib, 1, before(5*time.Hour)
	full.Warnings = []nodeapi.Warning{{
		Reason: nodeapi.WarningVolumeLost, Message: "no directory for: pvc-pg-0", Volumes: []string{"pvc-pg-0"},
	}}
	absent.State, absent.Message, absent.Since = nodeapi.StateAbsent, "nothing is mounted at /mnt/nvme", before(
		2*time.Hour,
	)
	s.Nodes[1].Version = "0.0.9"
	away.State, away.Seen, away.Pools, away.Version = "not connected", before(6*time.Minute), nil, ""
	return s
}

func volumes() []nodeapi.VolumeStatus {
	return []nodeapi.VolumeStatus{
		{
			ID: "pvc-media", Node: "worker-17", Pool: "nvme", Claim: "blog/media", Bytes: 50 * gib, Used: -1,
			PV: "pvc-media", State: "node not connected",
		},
		{
			ID: "pvc-pg-0", Node: "worker-4", Pool: "nvme", Claim: "shop/pg-0", Bytes: 100 * gib, Used: 10 * gib,
			PV: "pvc-pg-0", Enforcement: "strict",
		},
		{
			ID: "pvc-pg-2", Node: "worker-4", Pool: "nvme", Claim: "shop/pg-2", Bytes: 200 * gib, Used: 188 * gib,
			PV: "pvc-pg-2", Enforcement: "strict",
		},
		{
			ID: "pvc-old", Node: "worker-9", Pool: "hdd", Claim: "shop/old", Bytes: 50 * gib, Used: 12 * gib,
			Enforcement: "none", State: "orphan", Created: before(100 * time.Hour),
		},
		{ID: "left", Node: "worker-9", Pool: "hdd", Bytes: gib, Used: -1, Enforcement: "none", State: "orphan"},
	}
}

func deleted() []nodeapi.DeletedVolume {
	return []nodeapi.DeletedVolume{
		{
			Entry: "pvc-pg-1.1", Node: "worker-4", ID: "pvc-pg-1", Pool: "nvme", Claim: "shop/pg-1", Bytes: 188 * gib,
			Deleted: before(3 * time.Hour), Due: clock().Add(21 * time.Hour),
		},
		{Entry: "x.2", Node: "worker-9", ID: "x", Pool: "hdd", Bytes: gib, Deleted: before(48 * time.Hour)},
		{Node: "worker-17", State: "node worker-17 is not connected"},
	}
}

// planned is what the controller says of a move.
func planned() nodeapi.Move {
	return nodeapi.Move{
		PV: "pvc-pg-0", Claim: "shop/pg-0", From: "worker-4", To: "worker-9", Pool: "nvme", Bytes: 100 * gib,
		Used: 10 * gib, Room: 500 * gib, Snapshots: 2, Published: true,
	}
}

// others are a volume of local-path with its claim.
func others() []runtime.Object {
	all := claim("shop", "pics", "worker-4", 10*gib, time.Hour)
	for _, o := range all {
		switch is := o.(type) {
		case *corev1.PersistentVolume:
			is.UID, is.Spec.ClaimRef.UID = "pv", "claim"
			is.Annotations = map[string]string{
				"pv.kubernetes.io/provisioned-by": "rancher.io/local-path",
				"kubevirt.io/provisionOnNode":     "worker-4",
			}
			is.Spec.NodeAffinity = nil
			is.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/opt/pvc-pics"},
			}
		case *corev1.PersistentVolumeClaim:
			is.UID = "claim"
		}
	}
	return all
}

// setting is what the plugin finds.
type setting struct {
	objects []runtime.Object
	status  nodeapi.Status
	volumes []nodeapi.VolumeStatus
	execErr error
	lacks   []string // rights
	// resources are HostPathProvisioners.
	resources []runtime.Object
}

// dynamicClient has HostPathProvisioners.
func dynamicClient(resources ...runtime.Object) dynamic.Interface {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return dynamicfake.NewSimpleDynamicClient(scheme, resources...)
}

// waitingResource is one that kubevirt's operator still serves.
func waitingResource() runtime.Object {
	r := &v1beta1.HostPathProvisioner{ObjectMeta: named("", "hostpath-provisioner")}
	r.Status.Conditions = []metav1.Condition{
		{Type: v1beta1.Available, Status: metav1.ConditionTrue, Reason: "Complete"},
		{
			Type: v1beta1.NotServed, Status: metav1.ConditionTrue, Reason: "KubevirtOperatorRuns",
			Message: "stop it: kubectl scale deployment --namespace=storage hostpath-provisioner-operator --replicas=0",
		},
	}
	return r
}

// run gives what the plugin writes, and how it ends.
func (s setting) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	t.Setenv("KUBECONFIG", os.DevNull)
	var out, problems bytes.Buffer
	p := &plugin{
		IOStreams: genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &problems},
		flags:     genericclioptions.NewConfigFlags(true), now: clock,
		client: clustertest.Allow(fake.NewClientset(s.objects...), s.lacks...), objects: dynamicClient(s.resources...),
	}
	p.exec = func(_ context.Context, command []string) ([]byte, []byte, error) {
		if s.execErr != nil {
			return nil, nil, s.execErr
		}
		answers := map[string]any{
			"/controller status --output json":                s.status,
			"/controller volume list --output json":           s.volumes,
			"/controller volume list --deleted --output json": deleted(),
			"/controller move list --output json":             []nodeapi.Move{},

			"/controller move start pvc-pg-0 --to worker-9 --dry-run --output json": planned(),
			"/controller move start pvc-pg-2 --to worker-9 --dry-run --output json": nodeapi.Move{
				PV: "pvc-pg-2", Claim: "shop/pg-2", From: "worker-4", To: "worker-9", Pool: "nvme", Bytes: 200 * gib,
				Used: 188 * gib, Room: 500 * gib,
			},
			"/controller directory look /opt/pvc-pics --pool nvme --node worker-4 --output json": nodeapi.Directory{
				Exists: true, SameMount: true, Enforceable: true, Files: 4711, Bytes: 3 * gib,
				UsedAt: "/data (process 7)",
			},
		}
		answer, ok := answers[strings.Join(command, " ")]
		if !ok {
			t.Errorf("nobody expected %q", command)
		}
		text, err := json.Marshal(answer)
		return text, nil, err
	}
	code = p.run(t.Context(), args)
	return out.String(), problems.String(), code
}

// TestPictures holds what people see to files. UPDATE_GOLDEN=1 writes them.
func TestPictures(t *testing.T) {
	usual := setting{objects: objects(), status: troubled(), volumes: volumes()}
	waiting := setting{objects: append(objects(), stuck()...), status: well(), volumes: append(volumes()[1:3],
		nodeapi.VolumeStatus{ID: "pvc-copied", Node: "worker-4", Pool: "nvme", State: "1Gi of 2Gi are copied"})}
	forbidden := setting{
		objects: objects(),
		execErr: apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "hpp-controller-1",
			errors.New("ask an admin")),
	}
	operated := setting{
		objects: objects(), status: well(), volumes: volumes()[1:3], resources: []runtime.Object{waitingResource()},
	}
	half := setting{objects: objects(), status: well(), volumes: volumes()[1:3]}
	half.objects[0] = withoutProvisioner(controllerPod())
	shop := setting{objects: objects(), status: well(), volumes: volumes()}
	unknownPool := errors.New(`the driver refused: node worker-4: pool is in no configuration: "nope"`)
	evicting := shop
	evicting.lacks = []string{"create pods/eviction"}
	cordoned := setting{objects: objects(), status: well()}
	for _, o := range cordoned.objects {
		if n, ok := o.(*corev1.Node); ok && n.Name == "worker-4" {
			n.Spec.Unschedulable = true
		}
	}
	for name, c := range map[string]struct {
		setting
		args string
	}{
		"status-troubled":       {usual, "status"},
		"status-well":           {setting{objects: objects(), status: well(), volumes: volumes()[1:3]}, "status"},
		"status-half":           {half, "status"},
		"status-operator-waits": {operated, "status"},
		"status-without-rights": {forbidden, "status"},
		"status-no-controller":  {setting{objects: objects()[1:]}, "status --driver " + driver},
		"status-guessed-driver": {setting{objects: objects()[1:]}, "status"},
		"status-waiting":        {waiting, "status"},
		"status-waiting-no-controller": {
			setting{objects: append(objects()[1:], stuck()...)}, "status --driver " + driver,
		},
		"status-json":            {usual, "status -o json"},
		"volumes-by-use":         {usual, "get volumes -n shop --sort use"},
		"volumes-all":            {usual, "get volumes -A"},
		"volumes-wide":           {usual, "get volumes -A -o wide --sort -size"},
		"volumes-orphans":        {usual, "get volumes -A --state orphan,lost --sort age"},
		"volumes-of-node":        {usual, "get volumes -A --node worker-4 --pool nvme --class fast -o name"},
		"volumes-names":          {usual, "get volumes -A -o name"},
		"volumes-json":           {usual, "get volumes -n shop pg-2 -o json"},
		"volumes-yaml":           {usual, "get volumes -n shop pg-2 -o yaml"},
		"volumes-without-rights": {forbidden, "get volumes -A"},
		"volumes-none":           {usual, "get volumes -n nothing"},
		"volumes-none-json":      {usual, "get volumes -n nothing -o json"},
		"volumes-unknown-claim":  {usual, "get volumes -n shop missing"},
		"pools":                  {usual, "get pools"},
		"pools-by-largest":       {usual, "get pools --state present,absent --sort -free"},
		"pools-wide":             {usual, "get pools -o wide --node worker-9"},
		"pools-without-rights":   {forbidden, "get pools"},
		"nodes":                  {usual, "get nodes"},
		"nodes-without-rights":   {forbidden, "get nodes"},
		"trash":                  {usual, "get trash"},
		"trash-wide":             {usual, "get trash -n shop -o wide"},
		"trash-without-rights":   {forbidden, "get trash"},
		"wrong-verb":             {usual, "statsu"},
		"wrong-verb-below":       {usual, "get volume-s"},
		"unknown-verb":           {usual, "balance -n shop"},
		"wrong-state":            {usual, "get volumes --state lots"},
		"wrong-sort":             {usual, "get volumes --sort colour"},
		"wrong-output":           {usual, "get pools -o xml"},
		"wrong-flag":             {usual, "get pools --colour"},
		"wrong-argument":         {usual, "get trash pg-0"},
		"wrong-pool-state":       {usual, "get pools --state lost"},
		"wrong-pool-sort":        {usual, "get pools --sort used"},
		"pools-told":             {forbidden, "get pools --state degraded,absent,unknown -o wide"},
		"move":                   {shop, "move pg-0 -n shop --to worker-9"},
		"move-without-rights":    {evicting, "move pg-0 -n shop --to worker-9 --apply"},
		"drain":                  {cordoned, "drain worker-4 --to worker-9"},
		"node-release":           {usual, "node release worker-17"},
		"discard":                {usual, "discard pvc-old left"},
		"migrate": {
			setting{objects: append(objects(), others()...)}, "migrate --from local-path --pool nvme -n shop",
		},
		"migrate-nowhere": {shop, "migrate --from local-path --pool nvme -n shop"},
		"migrate-nothing": {shop, "migrate --from local-path --pool nvme -A"},
		"migrate-unknown-pool": {
			setting{objects: append(objects(), others()...), execErr: unknownPool},
			"migrate --from local-path --pool nope -n shop",
		},
		"complete-claims": {usual, "__complete get volumes -n shop p"},
		"complete-nodes":  {usual, "__complete get pools --node w"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := c.run(t, strings.Fields(c.args)...)
			got := "$ kubectl hpp " + c.args + "\n" + stdout
			if stderr != "" {
				got += "--- standard error\n" + stderr
			}
			if code != 0 {
				got += "--- exit code " + string(rune('0'+code)) + "\n"
			}
			file := filepath.Join("testdata", name+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if diff := cmp.Diff(string(want), got); err != nil || diff != "" {
				t.Errorf("%v: %s\nUPDATE_GOLDEN=1 go test writes it anew", err, diff)
			}
		})
	}
}
