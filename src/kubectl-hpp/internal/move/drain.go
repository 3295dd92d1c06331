package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/pods"
)

// Drain is a node whose volumes all go elsewhere.
type Drain struct {
	Node, To       string // To may be empty: then each goes where its pool has the most room
	Driver         string
	LeaveSnapshots bool
	Apply          bool
}

// Drain moves all volumes of a cordoned node, one after the other. It goes on after one that fails, and lists those.
func (m *Mover) Drain(ctx context.Context, d Drain) error {
	node, err := m.API.CoreV1().Nodes().Get(ctx, d.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at node %s: %w", d.Node, err)
	}
	if !node.Spec.Unschedulable {
		return fmt.Errorf("%w: node %s is not cordoned, so evicted pods would start there again: kubectl cordon %s",
			ErrRefused, d.Node, d.Node)
	}
	volumes, err := m.volumesOf(ctx, d)
	if err != nil {
		return err
	}
	var failed []string
	for _, pv := range volumes {
		if err := m.drainOne(ctx, d, pv); err != nil {
			m.say("  %v", err)
			failed = append(failed, pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("of %d volumes, %d stay on node %s: %s", len(volumes), len(failed), d.Node,
			strings.Join(failed, ", "))
	}
	switch {
	case len(volumes) == 0:
		m.say("no claim has a volume on node %s", d.Node)
	case !d.Apply:
		m.say("nothing was done; add --apply to do it")
	}
	return nil
}

// volumesOf are those that claims have on a node.
func (m *Mover) volumesOf(ctx context.Context, d Drain) ([]corev1.PersistentVolume, error) {
	pvs, err := m.API.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look which volumes are on node %s: %w", d.Node, err)
	}
	return slices.DeleteFunc(pvs.Items, func(pv corev1.PersistentVolume) bool {
		return !persistentvolume.IsOf(&pv, d.Driver) || NodeOf(&pv) != d.Node || pv.Spec.ClaimRef == nil ||
			pv.Status.Phase != corev1.VolumeBound
	}), nil
}

func (m *Mover) drainOne(ctx context.Context, d Drain, pv corev1.PersistentVolume) error {
	q := Request{
		Namespace: pv.Spec.ClaimRef.Namespace, Claim: pv.Spec.ClaimRef.Name, To: d.To, LeaveSnapshots: d.LeaveSnapshots,
	}
	if q.To == "" {
		to, err := m.choose(ctx, pv)
		if err != nil {
			return fmt.Errorf("claim %s/%s: %w", q.Namespace, q.Claim, err)
		}
		q.To = to
	}
	p, err := m.Plan(ctx, q)
	if err != nil || !d.Apply {
		return err
	}
	return m.Apply(ctx, q, p)
}

// choose gives the node where a volume's pool has the most room, of those where a pod can be scheduled.
func (m *Mover) choose(ctx context.Context, pv corev1.PersistentVolume) (string, error) {
	if is, found, err := m.find(ctx, pv.Name); found && err == nil {
		return is.To, nil
	}
	var status nodeapi.Status
	if err := m.Controller.Ask(ctx, &status, "status"); err != nil {
		return "", err
	}
	pool, size := pv.Spec.CSI.VolumeAttributes["storagePool"], pv.Spec.Capacity[corev1.ResourceStorage]
	using, err := pods.Using(ctx, m.API, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	if err != nil {
		return "", err
	}
	around, err := pods.Around(ctx, m.API, using)
	if err != nil {
		return "", err
	}
	var trouble error
	for _, name := range roomy(status.Nodes, pool, size.Value()) {
		if name == NodeOf(&pv) {
			continue
		}
		ok, err := m.schedulable(ctx, name, using, around)
		if ok {
			return name, nil
		}
		trouble = errors.Join(trouble, err)
	}
	return "", cmp.Or(trouble, fmt.Errorf("%w: no other node, on which its pods may run, has room for %s in "+
		"pool %s", ErrRefused, bytesize.Format(size.Value()), pool))
}

// roomy are the nodes whose pool has room for a volume, the one with the most first.
func roomy(nodes []nodeapi.NodeStatus, pool string, bytes int64) (names []string) {
	room := map[string]int64{}
	for _, n := range nodes {
		i := slices.IndexFunc(n.Pools, func(p nodeapi.PoolStatus) bool {
			return p.Name == pool && p.State == nodeapi.StatePresent && p.Selected
		})
		if n.State == "connected" && i >= 0 && n.Pools[i].Allocatable >= bytes {
			names, room[n.Name] = append(names, n.Name), n.Pools[i].Allocatable
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(room[b], room[a]) })
	return names
}

// schedulable reports whether pods can be scheduled on a node: those that use a volume, or any where none does.
func (m *Mover) schedulable(ctx context.Context, name string, using []corev1.Pod, around pods.Surroundings,
) (bool, error) {
	node, err := m.API.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("look at node %s: %w", name, err)
	}
	if len(using) == 0 {
		using = []corev1.Pod{{}}
	}
	if slices.ContainsFunc(using, func(pod corev1.Pod) bool { return around.Unfit(pod, node) != "" }) {
		return false, nil
	}
	return !node.Spec.Unschedulable && facts.Ready(node), nil
}
