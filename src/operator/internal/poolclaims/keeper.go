package poolclaims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// Creator makes objects.
type Creator interface {
	Create(ctx context.Context, object client.Object, options ...client.CreateOption) error
}

// Keeper sees to it that there are claims.
type Keeper struct {
	creator Creator
	// cached knows the claims of pools in the namespace, live all.
	cached, live client.Reader
	namespace    string
}

// New makes a Keeper of the claims in the operator's namespace.
func New(creator Creator, cached, live client.Reader, namespace string) *Keeper {
	return &Keeper{creator: creator, cached: cached, live: live, namespace: namespace}
}

// Cluster is what decides, beside the plan, which claims there are.
type Cluster struct {
	Nodes []corev1.Node
	// Deployments are all that the operator has made, mounters among them.
	Deployments []appsv1.Deployment
	// Volumes gives those of all pools. It is asked only if a pool has left a node.
	Volumes func(context.Context) ([]gates.Volume, error)
	// Configured are the names of all pools.
	Configured []string
}

// mounter is the Deployment that mounts a pool on a node already, else nil.
func (c Cluster) mounter(of Mount) *appsv1.Deployment {
	for i := range c.Deployments {
		d := &c.Deployments[i]
		if IsMounter(d.Labels) && d.Labels[names.PoolLabel] == of.Pool &&
			d.Annotations[names.NodeAnnotation] == of.Node {
			return d
		}
	}
	return nil
}

// State is how the claims are.
type State struct {
	// Mounts are those for which there is a claim, and those that have their mounter whatever is wrong with the claim.
	Mounts []Mount
	// Claims are all of the plan's pools, also those that no node has a use for at the moment.
	Claims []Claim
	// Kept says that there are mounters only for the sake of volumes, whose end has to be looked for.
	Kept bool
	// Problems are what keeps a pool from its claims.
	Problems []Problem
	// Failed is what is worth trying again; it is among the problems.
	Failed error
}

// Claim is one of a pool, for a node or for all.
type Claim struct {
	Pool string
	// Node is "" if there is no node whose claim has this name.
	Node string
	// Shared says that all nodes of the pool have it.
	Shared bool
	*corev1.PersistentVolumeClaim
}

// Problem is a sentence about a pool, or about a node of it.
type Problem struct{ Pool, Node, Text string }

// Keep makes the claims that are missing. An error means that nothing is known.
func (k *Keeper) Keep(ctx context.Context, plan Plan, cluster Cluster) (State, error) {
	known, err := k.listClaims(ctx)
	if err != nil {
		return State{}, err
	}
	wanted, former := plan.mounts(cluster, known)
	var state State
	if len(former) > 0 {
		volumes, err := cluster.Volumes(ctx)
		if err != nil {
			return State{}, err
		}
		used := plan.inUse(former, volumes, cluster.Configured)
		wanted, state.Kept = append(wanted, used...), len(used) > 0
	}
	elsewhere := map[string]string{}
	begun := func(pool string) bool {
		return known.hasClaim(pool) ||
			slices.ContainsFunc(wanted, func(m Mount) bool { return m.Pool == pool && cluster.mounter(m) != nil })
	}
	if slices.ContainsFunc(wanted, func(m Mount) bool { return !begun(m.Pool) }) {
		if elsewhere, err = k.elsewhere(ctx); err != nil {
			return State{}, err
		}
	}
	for _, pool := range plan.Pools {
		p := provision{template: pool.PVCTemplate, known: known, mounter: cluster.mounter}
		p.mounts = slices.DeleteFunc(slices.Clone(wanted), func(m Mount) bool { return m.Pool != pool.Name })
		if !begun(pool.Name) {
			p.elsewhere = elsewhere
		}
		if pools.SharesClaim(pool) {
			k.shareClaim(ctx, &state, p)
		} else {
			k.provide(ctx, &state, p)
		}
	}
	state.Claims = listed(plan, cluster.Nodes, known)
	return state, nil
}

func (k *Keeper) listClaims(ctx context.Context) (claims, error) {
	var list corev1.PersistentVolumeClaimList
	err := k.cached.List(ctx, &list, client.InNamespace(k.namespace), client.HasLabels{names.PoolClaimLabel})
	if err != nil {
		return nil, fmt.Errorf("list the claims of pools: %w", err)
	}
	known := claims{}
	for i := range list.Items {
		known[list.Items[i].Name] = &list.Items[i]
	}
	return known, nil
}

// elsewhere are the namespaces of claims of pools in other namespaces, by the claims' names.
func (k *Keeper) elsewhere(ctx context.Context) (map[string]string, error) {
	var list corev1.PersistentVolumeClaimList
	if err := k.live.List(ctx, &list, client.HasLabels{names.PoolClaimLabel}); err != nil {
		return nil, fmt.Errorf("find out whether another namespace has claims of pools: %w", err)
	}
	found := map[string]string{}
	for i := range list.Items {
		if at := list.Items[i].Namespace; at != k.namespace {
			found[list.Items[i].Name] = at
		}
	}
	return found, nil
}

// provision is what one pool is to have.
type provision struct {
	template *corev1.PersistentVolumeClaimSpec
	mounts   []Mount
	known    claims
	mounter  func(Mount) *appsv1.Deployment
	// elsewhere is looked at only for a pool without a claim here: all claims that were taken over are in one
	// namespace, and somebody with another namespace could keep a pool that is served from new nodes.
	elsewhere map[string]string
}

// provide makes the claims of one pool. While they are in another namespace it makes none: the pool would be new, and
// what is on its nodes would not be seen.
func (k *Keeper) provide(ctx context.Context, state *State, p provision) {
	taken, away := map[string]string{}, k.describeElsewhere(p) // taken are nodes by claim
	for _, mount := range p.mounts {
		problem := Problem{Pool: mount.Pool, Node: mount.Node}
		claim := p.known.findClaim(mount.Pool, mount.Claim)
		other, twice := taken[mount.Claim]
		switch {
		case twice:
			problem.Text = fmt.Sprintf("its claim would be %s, which node %s has: the shortened names of the two are "+
				"the same; give one of them another name, or leave it out by the pool's nodeSelector", mount.Claim,
				other)
		case claim == nil && away != "":
			problem.Node, problem.Text = "", away
		case claim == nil:
			var err error
			if problem.Text, err = k.create(ctx, mount, p.template); err != nil {
				state.Failed = errors.Join(state.Failed, err)
			}
		}
		// Without its mounter what is mounted would not be there any more after the node's next start.
		if problem.Text == "" || !twice && p.mounter(mount) != nil {
			taken[mount.Claim] = mount.Node
			state.Mounts = append(state.Mounts, mount)
		}
		if problem.Text != "" && !slices.Contains(state.Problems, problem) {
			state.Problems = append(state.Problems, problem)
		}
	}
}

// describeElsewhere says that claims of the pool are in another namespace, "" if none is.
func (k *Keeper) describeElsewhere(p provision) string {
	for _, mount := range p.mounts {
		if at, found := p.elsewhere[mount.Claim]; found {
			return fmt.Sprintf("its claim %s is in the namespace %s, as kubevirt's operator made it, and a pod can "+
				"use only claims of its own namespace: install this operator in the namespace %s instead of %s; "+
				"until then no claim is made for the pool", mount.Claim, at, at, k.namespace)
		}
	}
	return ""
}

// create makes a claim. Without owner: it outlives the resource, because volumes are on it. It gives what keeps it from
// being the pool's, and the error if that may pass.
func (k *Keeper) create(
	ctx context.Context, mount Mount, template *corev1.PersistentVolumeClaimSpec,
) (problem string, err error) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.namespace, Name: mount.Claim,
			// As kubevirt's operator labels its claims, so that it would know these again.
			Labels: map[string]string{
				names.PoolClaimLabel:           LabelValue(mount.Pool),
				"k8s-app":                      "hostpath-provisioner",
				"app.kubernetes.io/managed-by": "hostpath-provisioner-operator",
				"app.kubernetes.io/component":  "storage",
			},
		},
		Spec: *template.DeepCopy(),
	}
	if !mount.Shared {
		claim.Annotations = map[string]string{names.NodeAnnotation: mount.Node}
	}
	err = k.creator.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		// The cache may be behind, or has it not for want of the label.
		found := &corev1.PersistentVolumeClaim{}
		if err = k.live.Get(ctx, client.ObjectKeyFromObject(claim), found); err == nil && !belongs(found, mount.Pool) {
			return fmt.Sprintf("the claim %s/%s is there and is not the pool's: it has the label %s=%q, not %q; "+
				"rename the pool, or remove the claim if nobody needs it", k.namespace, mount.Claim,
				names.PoolClaimLabel, found.Labels[names.PoolClaimLabel], LabelValue(mount.Pool)), nil
		}
	}
	if err != nil {
		err = fmt.Errorf("make the claim %s/%s: %w", k.namespace, mount.Claim, err)
		return err.Error(), err
	}
	return "", nil
}

// listed are the known claims of the plan's pools, by pool and name.
func listed(plan Plan, nodes []corev1.Node, known claims) []Claim {
	var all []Claim
	for i := range plan.Pools {
		pool := plan.Pools[i].Name
		shared := ""
		if pools.SharesClaim(plan.Pools[i]) {
			shared = SharedClaimName(pool)
		}
		of := map[string]string{}
		for j := range nodes {
			of[ClaimName(pool, nodes[j].Name)] = nodes[j].Name
		}
		first := len(all)
		for name, claim := range known {
			if belongs(claim, pool) {
				made := Claim{Pool: pool, Node: of[name], Shared: name == shared, PersistentVolumeClaim: claim}
				if made.Shared {
					made.Node = ""
				}
				all = append(all, made)
			}
		}
		slices.SortFunc(all[first:], func(a, b Claim) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}
