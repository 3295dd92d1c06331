package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// ClassOf is the class of a claim, nil where there is none, or none of that name.
func (f Facts) ClassOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	name := claim.Spec.StorageClassName
	return find(f.Classes, func(c storagev1.StorageClass) bool {
		if name == nil {
			return c.Annotations[DefaultClass] == "true"
		}
		return c.Name == *name
	})
}

// PoolOf is the pool, or the pools, that a class of the driver names, "" for others.
func (f Facts) PoolOf(class string) string {
	for _, c := range f.Classes {
		if c.Name == class && c.Provisioner == f.Controller.Driver {
			return cmp.Or(c.Parameters[names.StoragePoolParameter], names.LegacyPool)
		}
	}
	return ""
}

// Waiting is how many claims of the driver's classes wait for a volume, by the node that is selected for them.
func (f Facts) Waiting() map[string]int64 {
	waiting := map[string]int64{}
	for _, c := range f.Claims {
		class := c.Spec.StorageClassName
		if c.Status.Phase == corev1.ClaimPending && class != nil && f.PoolOf(*class) != "" {
			waiting[c.Annotations[SelectedNode]]++
		}
	}
	return waiting
}

// mayWait is for how long claims and pods may wait before that is said.
const mayWait = 5 * time.Minute

// Stuck are the claims of the driver's classes that are lost, or have waited for some minutes: for their pod, if their
// class makes volumes for pods, and not for a copy that is being made.
func (f Facts) Stuck() (all []corev1.PersistentVolumeClaim) {
	for _, c := range f.Claims {
		class := f.ClassOf(&c)
		if class == nil || class.Provisioner != f.Controller.Driver {
			continue
		}
		waits := c.Status.Phase == corev1.ClaimPending && f.old(&c) && !f.copied(c)
		if c.Status.Phase == corev1.ClaimLost || waits && (!Delayed(class) || f.delays(c)) {
			all = append(all, c)
		}
	}
	return all
}

// old reports whether an object is, as far as is known.
func (f Facts) old(o metav1.Object) bool {
	since := o.GetCreationTimestamp()
	return !since.IsZero() && f.Now.Sub(since.Time) > mayWait
}

// delays reports whether a pod has waited for a claim for some minutes.
func (f Facts) delays(c corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(f.Pods, func(p corev1.Pod) bool {
		return p.Namespace == c.Namespace && p.Status.Phase == corev1.PodPending && f.old(&p) &&
			slices.Contains(ClaimsOf(p), c.Name)
	})
}

// IDOf is what csi-provisioner calls the volume that it makes for a claim.
func IDOf(claim metav1.Object) string { return "pvc-" + string(claim.GetUID()) }

// copied reports whether the volume of a claim is being copied.
func (f Facts) copied(c corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(f.Listed, func(v nodeapi.VolumeStatus) bool {
		return v.ID == IDOf(&c) && StateOf(v.State) == Copying
	})
}

// Room is the room for a new volume that Kubernetes has been told of, of which node, "" where that is not said.
func (f Facts) Room(c storagev1.CSIStorageCapacity) (node string, bytes int64) {
	if c.MaximumVolumeSize != nil {
		bytes = c.MaximumVolumeSize.Value()
	} else if c.Capacity != nil {
		bytes = c.Capacity.Value()
	}
	if c.NodeTopology != nil {
		node = c.NodeTopology.MatchLabels[f.Controller.TopologyKey]
	}
	return node, bytes
}

// Pools are those that nodes show, by name: of their configuration nothing but that and the scope is known.
func Pools(s nodeapi.Status) (all []poolspec.Pool) {
	for _, n := range s.Nodes {
		for _, p := range n.Pools {
			if !slices.ContainsFunc(all, func(q poolspec.Pool) bool { return q.Name == p.Name }) {
				is := poolspec.Pool{Name: p.Name}
				if p.Shared {
					is.Scope = poolspec.ScopeShared
				}
				all = append(all, is)
			}
		}
	}
	slices.SortFunc(all, func(a, b poolspec.Pool) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// PoolsOf are the pools that a class means, among those that nodes show. An error names the parameter that is wrong.
func (f Facts) PoolsOf(class *storagev1.StorageClass) (pools []string, err error) {
	all := slices.Sorted(slices.Values(append(nodeapi.Parameters(), names.StoragePoolParameter)))
	for _, key := range slices.Sorted(maps.Keys(class.Parameters)) {
		if !slices.Contains(all, key) && !strings.HasPrefix(key, nodeapi.KeysOfKubernetes) {
			return nil, fmt.Errorf("parameters: unknown key %.64q; known are %s", key, strings.Join(all, ", "))
		}
	}
	named := class.Parameters[names.StoragePoolParameter]
	shown := Pools(f.Reported)
	if len(shown) == 0 { // what a prefix means is not known
		return strings.Split(named, ","), nil
	}
	known := make([]string, 0, len(shown))
	for _, p := range shown {
		known = append(known, p.Name)
	}
	pools, err = poolspec.PoolsOf(shown, named)
	switch {
	case err != nil:
	case pools[0] == "":
		err = fmt.Errorf("missing: name one of %s", strings.Join(known, ", "))
	case !slices.Contains(known, pools[0]):
		err = fmt.Errorf("no node has pool %q; there are: %s", pools[0], strings.Join(known, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("parameters.%s: %w", names.StoragePoolParameter, err)
	}
	return pools, nil
}

// ClaimsOf are the names of the claims that a pod uses.
func ClaimsOf(pod corev1.Pod) (all []string) {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			all = append(all, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			all = append(all, pod.Name+"-"+v.Name)
		}
	}
	return all
}

// NodeOf is the node of a claim's volume, "" where it has none or it is on all.
func (f Facts) NodeOf(c corev1.PersistentVolumeClaim) string {
	pv := find(f.Volumes, func(v corev1.PersistentVolume) bool { return v.Name == c.Spec.VolumeName })
	if pv == nil {
		return ""
	}
	if nodes, _ := persistentvolume.Nodes(pv, f.Controller.TopologyKey); len(nodes) > 0 {
		return nodes[0]
	}
	return ""
}

// Delayed reports whether volumes of a class are made for pods.
func Delayed(c *storagev1.StorageClass) bool {
	return c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Unmeasured reports whether no quota says what the volumes of a pool take, on some node.
func (f Facts) Unmeasured(pool string) bool {
	return slices.ContainsFunc(f.Reported.Nodes, func(n nodeapi.NodeStatus) bool {
		is := Pool(n, pool)
		return is.Served() && is.Enforcement == nodeapi.NotEnforced
	})
}

// Expands reports whether volumes of a class can grow, as far as is known.
func Expands(c *storagev1.StorageClass) bool {
	return c == nil || c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion
}

// Trashed is how many deleted volumes some pools keep.
func (f Facts) Trashed(pools []string) (deleted int) {
	for _, n := range f.Reported.Nodes {
		for _, p := range n.Pools {
			if slices.Contains(pools, p.Name) {
				deleted += p.TrashEntries
			}
		}
	}
	return deleted
}

// Unschedulable is why the scheduler finds no node for a pod, "" where it has one or has not looked.
func Unschedulable(pod corev1.Pod) string {
	for _, is := range pod.Status.Conditions {
		if is.Type == corev1.PodScheduled && is.Status == corev1.ConditionFalse && pod.Spec.NodeName == "" {
			return is.Message
		}
	}
	return ""
}

// Inline reports whether a pod has a volume of the driver that lives and dies with it.
func (f Facts) Inline(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.CSI != nil && v.CSI.Driver == f.Controller.Driver
	})
}

// About are the events about an object, the newest last. Those about what had its name before have another UID.
func (f Facts) About(kind string, object metav1.Object) (about []corev1.Event) {
	for _, e := range f.Events {
		of := e.InvolvedObject
		if of.Kind == kind && of.Name == object.GetName() && of.Namespace == object.GetNamespace() &&
			(of.UID == "" || of.UID == object.GetUID()) {
			about = append(about, e)
		}
	}
	slices.SortStableFunc(about, func(a, b corev1.Event) int { return cluster.Last(a).Compare(cluster.Last(b)) })
	return about
}

// Refusal is why a claim got no volume: the driver's newest answer, else what anyone else has said last.
func (f Facts) Refusal(events []corev1.Event) string {
	ours := slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool {
		return !strings.HasPrefix(e.Source.Component, f.Controller.Driver)
	})
	return cmp.Or(LastOf(ours, "ProvisioningFailed"), LastOf(events, "ProvisioningFailed"))
}

// LastOf is the message of the newest event with one of these reasons, "" without one. Of conflicts nothing is said:
// whoever has one tries again.
func LastOf(events []corev1.Event, reasons ...string) (message string) {
	for _, e := range events {
		if slices.Contains(reasons, e.Reason) && !strings.Contains(e.Message, "the object has been modified") {
			message = strings.TrimSpace(e.Message)
		}
	}
	return message
}

// WithoutCode is what the driver has said, without what gRPC puts before it.
func WithoutCode(said string) string {
	if _, after, found := strings.Cut(said, "desc = "); found {
		return after
	}
	return said
}
