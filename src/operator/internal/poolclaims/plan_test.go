package poolclaims

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

const noSchedule, noExecute = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute

func node(name string, change ...func(*corev1.Node)) corev1.Node {
	made := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"os": "linux"}}}
	for _, apply := range change {
		apply(&made)
	}
	return made
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

// claimFor is a claim of the pool local that exists for a node.
func claimFor(node string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "hpp", Name: ClaimName("local", node), Labels: map[string]string{names.PoolClaimLabel: "local-hpp"},
	}}
	for _, apply := range change {
		apply(made)
	}
	return made
}

// mounterOn is that of the pool local on a node.
func mounterOn(node string) appsv1.Deployment {
	return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"app.kubernetes.io/component": "mounter", names.PoolLabel: "local"},
		Annotations: map[string]string{names.NodeAnnotation: node},
	}}
}

func knownOf(all ...*corev1.PersistentVolumeClaim) claims {
	known := claims{}
	for _, claim := range all {
		known[claim.Name] = claim
	}
	return known
}

func template() *corev1.PersistentVolumeClaimSpec {
	return &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"),
	}
}

// plan is one pool, and a driver on nodes with os=linux.
func plan(change ...func(*Plan)) Plan {
	made := Plan{
		Placement: Placement{NodeSelector: map[string]string{"os": "linux"}},
		Pools:     []v1beta1.StoragePool{{Name: "local", Path: "/pool", PVCTemplate: template()}},
	}
	for _, apply := range change {
		apply(&made)
	}
	return made
}

func tolerating(key string) func(*Plan) {
	return func(p *Plan) {
		p.Placement.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
}

func onNVMe(p *Plan) { p.Pools[0].NodeSelector = map[string]string{"disk": "nvme"} }

func zoneA(p *Plan) {
	terms := []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a"}}},
	}}
	p.Placement.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// TestNodes: where the DaemonSet controller would have a pod of the driver, and the pool's nodeSelector selects.
func TestNodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plan           Plan
		node           corev1.Node
		known          claims
		mounters       []appsv1.Deployment
		wanted, former bool
	}{
		"matching":          {plan: plan(), node: node("n"), wanted: true},
		"another label":     {plan: plan(), node: node("n", labelled("os", "windows"))},
		"outside the zone":  {plan: plan(zoneA), node: node("n", labelled("zone", "b"))},
		"in the zone":       {plan: plan(zoneA), node: node("n", labelled("zone", "a")), wanted: true},
		"NoSchedule":        {plan: plan(), node: node("n", tainted("gpu", noSchedule))},
		"NoExecute":         {plan: plan(), node: node("n", tainted("gpu", noExecute))},
		"PreferNoSchedule":  {plan: plan(), node: node("n", tainted("gpu", "PreferNoSchedule")), wanted: true},
		"tolerated":         {plan: plan(tolerating("gpu")), node: node("n", tainted("gpu", noExecute)), wanted: true},
		"tolerates another": {plan: plan(tolerating("x")), node: node("n", tainted("gpu", noExecute))},
		"cordoned": {
			plan: plan(), node: node("n", tainted(corev1.TaintNodeUnschedulable, noSchedule)), wanted: true,
		},
		"away for a moment": {
			plan: plan(), node: node("n", tainted(corev1.TaintNodeUnreachable, noExecute)), wanted: true,
		},
		"short of disk": {
			plan: plan(), node: node("n", tainted(corev1.TaintNodeDiskPressure, noSchedule)), wanted: true,
		},
		"shut down for good": {plan: plan(), node: node("n", tainted(corev1.TaintNodeOutOfService, noExecute))},
		// The driver's pod stays there until NoExecute.
		"NoSchedule, later": {
			plan: plan(), node: node("n", tainted("gpu", noSchedule)), known: knownOf(claimFor("n")), wanted: true,
		},
		"NoExecute, later": {
			plan: plan(), node: node("n", tainted("gpu", noExecute)), known: knownOf(claimFor("n")), former: true,
		},
		"not selected by the pool": {
			plan: plan(onNVMe),
			node: node("n"),
		},
		"selected by the pool": {
			plan: plan(onNVMe),
			node: node("n", labelled("disk", "nvme")), wanted: true,
		},
		"not selected any more": {
			plan: plan(onNVMe),
			node: node("n"), known: knownOf(claimFor("n")), former: true,
		},
		// As where the claim has lost its label.
		"not selected any more, known by its mounter": {
			plan: plan(onNVMe), node: node("n"), mounters: []appsv1.Deployment{mounterOn("n")}, former: true,
		},
		"NoSchedule, later, known by its mounter": {
			plan: plan(), node: node("n", tainted("gpu", noSchedule)), mounters: []appsv1.Deployment{mounterOn("n")},
			wanted: true,
		},
		"the mounter of another node": {
			plan: plan(onNVMe), node: node("n"), mounters: []appsv1.Deployment{mounterOn("m")},
		},
		"not selected, and another pool's claim": {
			plan: plan(onNVMe), node: node("n"),
			known: knownOf(claimFor("n", func(c *corev1.PersistentVolumeClaim) {
				c.Labels[names.PoolClaimLabel] = "other-hpp"
			})),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wanted, former := test.plan.mounts(Cluster{Nodes: []corev1.Node{test.node}, Deployments: test.mounters},
				test.known)
			if (len(wanted) == 1) != test.wanted || (len(former) == 1) != test.former {
				t.Errorf("wanted %v, former %v", wanted, former)
			}
		})
	}
}

// The claim that exists says whether it is a device and for one pod: the template may have been another when it was
// made.
func TestMounts(t *testing.T) {
	t.Parallel()
	block := new(corev1.PersistentVolumeBlock)
	both := plan(func(p *Plan) {
		p.Pools = append(p.Pools, v1beta1.StoragePool{Name: "raw", Path: "/raw", PVCTemplate: template()})
		p.Pools[1].PVCTemplate.VolumeMode = block
		p.Pools[1].PVCTemplate.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	known := knownOf(claimFor("b", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeMode, c.Spec.AccessModes = block, both.Pools[1].PVCTemplate.AccessModes
	}))
	device := mounterOn("c") // its claim has lost its label
	device.Spec.Template.Spec.Containers = []corev1.Container{{VolumeDevices: []corev1.VolumeDevice{{Name: "source"}}}}
	wanted, former := both.mounts(Cluster{
		Nodes: []corev1.Node{node("b"), node("c"), node("a")}, Deployments: []appsv1.Deployment{device},
	}, known)
	want := []Mount{
		{Pool: "local", Path: "/pool", Node: "a", Claim: "hpp-pool-local-a"},
		{Pool: "local", Path: "/pool", Node: "b", Claim: "hpp-pool-local-b", Block: true, OncePod: true},
		{Pool: "local", Path: "/pool", Node: "c", Claim: "hpp-pool-local-c", Block: true},
		{Pool: "raw", Path: "/raw", Node: "a", Claim: "hpp-pool-raw-a", Block: true, OncePod: true},
		{Pool: "raw", Path: "/raw", Node: "b", Claim: "hpp-pool-raw-b", Block: true, OncePod: true},
		{Pool: "raw", Path: "/raw", Node: "c", Claim: "hpp-pool-raw-c", Block: true, OncePod: true},
	}
	if diff := cmp.Diff(want, wanted); diff != "" || len(former) > 0 {
		t.Errorf("former %v, wanted (-want +got):\n%s", former, diff)
	}
}
