package poolclaims

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// Plan says which pools are provided by claims, and which nodes may have them.
type Plan struct {
	// Placement is that of the driver.
	Placement Placement
	// Pools are served and have a template.
	Pools []v1beta1.StoragePool
}

// Mount is one pool on one node, with the claim that provides it. In JSON it is an entry of the chart's value
// mounter.mounts.
type Mount struct {
	Pool string `json:"pool"`
	// Path is the pool's.
	Path string `json:"path"`
	Node string `json:"node"`
	// Claim is a name in the operator's namespace.
	Claim string `json:"claim"`
	// Block says that the claim is a device, and not a filesystem.
	Block bool `json:"block"`
	// OncePod says that one pod at most may have the claim (ReadWriteOncePod).
	OncePod bool `json:"oncePod,omitempty"`
	// Shared says that all nodes of the pool have this claim.
	Shared bool `json:"-"`
}

// claims are those of pools in the operator's namespace, by name.
type claims map[string]*corev1.PersistentVolumeClaim

// findClaim is the claim with a name if it belongs to the pool, else nil.
func (c claims) findClaim(pool, name string) *corev1.PersistentVolumeClaim {
	if claim := c[name]; claim != nil && belongs(claim, pool) {
		return claim
	}
	return nil
}

// hasClaim reports whether a pool has a claim at all.
func (c claims) hasClaim(pool string) bool {
	for _, claim := range c {
		if belongs(claim, pool) {
			return true
		}
	}
	return false
}

func belongs(claim *corev1.PersistentVolumeClaim, pool string) bool {
	return claim.Labels[names.PoolClaimLabel] == LabelValue(pool)
}

// mounts are those that the nodes are to have, and those that they had: with a claim of its own or a mounter, on a node
// that is not selected any more. What is decided from pods would remove a mounter during a rollout of the driver.
func (p Plan) mounts(cluster Cluster, known claims) (wanted, former []Mount) {
	sorted := slices.SortedFunc(slices.Values(cluster.Nodes),
		func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for i := range p.Pools {
		pool := &p.Pools[i]
		selector := labels.SelectorFromSet(pool.NodeSelector)
		for j := range sorted {
			node := &sorted[j]
			mount := Mount{Pool: pool.Name, Path: pool.Path, Node: node.Name, Shared: pools.SharesClaim(*pool)}
			if mount.Claim = ClaimName(pool.Name, node.Name); mount.Shared {
				mount.Claim = SharedClaimName(pool.Name)
			}
			effects := []corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}
			claim, mounter := known.findClaim(pool.Name, mount.Claim), cluster.mounter(mount)
			there := mounter != nil || claim != nil && !mount.Shared
			if there {
				effects = effects[:1] // the driver runs there already
			}
			mount.Block, mount.OncePod = isBlock(pool.PVCTemplate, claim, mounter), isOncePod(pool.PVCTemplate, claim)
			switch {
			case selector.Matches(labels.Set(node.Labels)) && p.Placement.admits(node, effects...):
				wanted = append(wanted, mount)
			case there:
				former = append(former, mount)
			}
		}
	}
	return wanted, former
}

// isBlock reports whether a claim is a device. It was made when the template may have been another; and one that has
// lost its label is known only by its mounter.
func isBlock(
	template *corev1.PersistentVolumeClaimSpec, claim *corev1.PersistentVolumeClaim, mounter *appsv1.Deployment,
) bool {
	mode := template.VolumeMode
	switch {
	case claim != nil:
		mode = claim.Spec.VolumeMode
	case mounter != nil:
		return slices.ContainsFunc(mounter.Spec.Template.Spec.Containers,
			func(c corev1.Container) bool { return len(c.VolumeDevices) > 0 })
	}
	return mode != nil && *mode == corev1.PersistentVolumeBlock
}

// isOncePod reports whether one pod at most may have a claim.
func isOncePod(template *corev1.PersistentVolumeClaimSpec, claim *corev1.PersistentVolumeClaim) bool {
	if claim != nil {
		template = &claim.Spec
	}
	return slices.Contains(template.AccessModes, corev1.ReadWriteOncePod)
}

// inUse are the mounts whose pool has volumes on their node: those are served wherever they are, whatever is selected.
// One on a claim that nodes share may be used on each of them.
func (p Plan) inUse(mounts []Mount, volumes []gates.Volume, configured []string) []Mount {
	return slices.DeleteFunc(mounts, func(mount Mount) bool {
		return !slices.ContainsFunc(gates.InPool(volumes, mount.Pool, configured),
			func(volume gates.Volume) bool { return mount.Shared || slices.Contains(volume.Nodes, mount.Node) })
	})
}
