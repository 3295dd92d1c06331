package pods_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/pods"
)

const (
	hostname = corev1.LabelHostname
	zone     = corev1.LabelTopologyZone
)

// nodes a and b are in zone 1, c is in zone 2, tainted and without disks, d has no zone.
func nodes() []runtime.Object {
	node := func(name string, more map[string]string) *corev1.Node {
		more[hostname] = name
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: more}}
	}
	c := node("c", map[string]string{zone: "2"})
	c.Spec.Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoSchedule}}
	return []runtime.Object{
		node("a", map[string]string{zone: "1", "disk": "fast"}),
		node("b", map[string]string{zone: "1", "disk": "fast"}),
		c,
		node("d", map[string]string{"disk": "fast"}),
	}
}

func nodeB() *corev1.Node { return nodes()[1].(*corev1.Node) }

func pod(namespace, name, node string, labels ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		p.Labels[labels[i]] = labels[i+1]
	}
	p.Spec.NodeName = node
	return p
}

func db(name, node string) *corev1.Pod { return pod("shop", name, node, "app", "db", "revision", "1") }

func selectDB() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
}

// around is what is seen of pods by a user who may not do something, such as "list nodes".
func around(t *testing.T, leaving []corev1.Pod, mayNot string, all ...*corev1.Pod) pods.Surroundings {
	t.Helper()
	api := fake.NewClientset(nodes()...)
	for _, p := range all {
		if err := api.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	api.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		what := a.GetResource()
		if what.Resource == mayNot && a.GetNamespace() == "" {
			return true, nil, apierrors.NewForbidden(what.GroupResource(), "", nil)
		}
		return false, nil, nil
	})
	s, err := pods.Around(t.Context(), api, leaving)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestApart(t *testing.T) {
	const besideB = "pod db-1 may not run beside db-0 on node b (podAntiAffinity on kubernetes.io/hostname)"
	const besideA = "pod db-1 may not run beside db-0 on node b (podAntiAffinity on topology.kubernetes.io/zone)"
	term := func(key string, changes ...func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
		is := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selectDB()}
		for _, change := range changes {
			change(&is)
		}
		return is
	}
	expression := func(operator metav1.LabelSelectorOperator, values ...string) func(*corev1.PodAffinityTerm) {
		return func(is *corev1.PodAffinityTerm) {
			is.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "app", Operator: operator, Values: values,
			}}}
		}
	}
	namespaces := func(of ...string) func(*corev1.PodAffinityTerm) {
		return func(is *corev1.PodAffinityTerm) { is.Namespaces = of }
	}
	labelled := func(is *corev1.PodAffinityTerm) {
		is.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	}
	everywhere := func(is *corev1.PodAffinityTerm) { is.NamespaceSelector = &metav1.LabelSelector{} }
	over, elsewhere := db("db-0", "b"), db("db-0", "b")
	over.Status.Phase = corev1.PodFailed
	elsewhere.Namespace = "other"
	for name, test := range map[string]struct {
		term   corev1.PodAffinityTerm
		other  *corev1.Pod
		mayNot string
		want   string
	}{
		"on the node":               {term(hostname), db("db-0", "b"), "", besideB},
		"on another node":           {term(hostname), db("db-0", "c"), "", ""},
		"in its zone":               {term(zone), db("db-0", "a"), "", besideA},
		"in another zone":           {term(zone), db("db-0", "c"), "", ""},
		"on a node without a zone":  {term(zone), db("db-0", "d"), "", ""},
		"of no such key":            {term("rack"), db("db-0", "b"), "", ""},
		"that has ended":            {term(hostname), over, "", ""},
		"that is nowhere":           {term(hostname), db("db-0", ""), "", ""},
		"itself":                    {term(hostname), db("db-1", "b"), "", ""},
		"of the same claim":         {term(hostname), db("sidekick", "b"), "", ""},
		"of another label":          {term(hostname), pod("shop", "web", "b", "app", "web"), "", ""},
		"In":                        {term(hostname, expression("In", "x", "db")), db("db-0", "b"), "", besideB},
		"NotIn":                     {term(hostname, expression("NotIn", "db")), db("db-0", "b"), "", ""},
		"Exists":                    {term(hostname, expression("Exists")), db("db-0", "b"), "", besideB},
		"of another namespace":      {term(hostname), elsewhere, "", ""},
		"of a named namespace":      {term(hostname, namespaces("x", "other")), elsewhere, "", besideB},
		"of one that is not named":  {term(hostname, namespaces("x")), db("db-0", "b"), "", ""},
		"of a labelled namespace":   {term(hostname, labelled), elsewhere, "", ""},
		"of one without the label":  {term(hostname, labelled), db("db-0", "b"), "", ""},
		"of all namespaces":         {term(hostname, everywhere), elsewhere, "", besideB},
		"of one that is not seen":   {term(hostname, everywhere), elsewhere, "pods", ""},
		"where one namespace is":    {term(hostname, everywhere), db("db-0", "b"), "pods", besideB},
		"where no nodes are listed": {term(hostname), db("db-0", "b"), "nodes", besideB},
	} {
		moved := db("db-1", "a")
		moved.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{test.term},
		}}
		s := around(t, []corev1.Pod{*moved, *db("sidekick", "a")}, test.mayNot, test.other)
		if got := s.Unfit(*moved, nodeB()); got != test.want {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}

type constraint = corev1.TopologySpreadConstraint

const (
	tooMany = "pod db-1 may not run on node b, where it would be one of 2 while another place has 0 " +
		"(topologySpreadConstraints on "
	tooManyOnNode = tooMany + hostname + ")"
	tooManyInZone = tooMany + zone + ")"
)

// spread is why db-1, with a constraint that is changed, may not go from node a to b.
func spread(t *testing.T, change func(*constraint, *corev1.Pod), mayNot string, others ...*corev1.Pod) string {
	t.Helper()
	moved, c := db("db-1", "a"), constraint{
		MaxSkew: 1, TopologyKey: hostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selectDB(),
	}
	change(&c, moved)
	moved.Spec.TopologySpreadConstraints = []constraint{c}
	return around(t, []corev1.Pod{*moved, *db("sidekick", "a")}, mayNot, others...).Unfit(*moved, nodeB())
}

// TestSpread: which pods count.
func TestSpread(t *testing.T) {
	ending, over := db("db-0", "b"), db("db-0", "b")
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{}, []string{"x"}
	over.Status.Phase = corev1.PodSucceeded
	for name, test := range map[string]struct {
		others []*corev1.Pod
		mayNot string
		want   string
	}{
		"there":              {[]*corev1.Pod{db("db-0", "b")}, "", tooManyOnNode},
		"on each node":       {[]*corev1.Pod{db("0", "a"), db("2", "b"), db("3", "c"), db("4", "d")}, "", ""},
		"on all but one":     {[]*corev1.Pod{db("0", "a"), db("2", "b"), db("3", "c")}, "", tooManyOnNode},
		"elsewhere":          {[]*corev1.Pod{db("db-0", "d")}, "", ""},
		"itself":             {[]*corev1.Pod{db("db-1", "b")}, "", ""},
		"of the same claim":  {[]*corev1.Pod{db("sidekick", "b")}, "", ""},
		"that ends":          {[]*corev1.Pod{ending}, "", ""},
		"that has ended":     {[]*corev1.Pod{over}, "", ""},
		"of another label":   {[]*corev1.Pod{pod("shop", "web", "b", "app", "web")}, "", ""},
		"of other namespace": {[]*corev1.Pod{pod("other", "db-0", "b", "app", "db")}, "", ""},
		"of the only one":    {[]*corev1.Pod{db("db-0", "b")}, "pods", tooManyOnNode},
		"of no known nodes":  {[]*corev1.Pod{db("db-0", "b")}, "nodes", ""},
	} {
		if got := spread(t, func(*constraint, *corev1.Pod) {}, test.mayNot, test.others...); got != test.want {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}

// TestConstraints: what a constraint says, where db-0 is on b, which is in the same zone as a.
func TestConstraints(t *testing.T) {
	byZone := func(change func(*constraint, *corev1.Pod)) func(*constraint, *corev1.Pod) {
		return func(c *constraint, p *corev1.Pod) {
			c.TopologyKey = zone
			change(c, p)
		}
	}
	fast, honor, ignore := map[string]string{"disk": "fast"}, corev1.NodeInclusionPolicyHonor,
		corev1.NodeInclusionPolicyIgnore
	for name, test := range map[string]struct {
		change func(*constraint, *corev1.Pod)
		want   string
	}{
		"a zone":         {byZone(func(*constraint, *corev1.Pod) {}), tooManyInZone},
		"a larger skew":  {func(c *constraint, _ *corev1.Pod) { c.MaxSkew = 2 }, ""},
		"a wish":         {func(c *constraint, _ *corev1.Pod) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }, ""},
		"no selector":    {func(c *constraint, _ *corev1.Pod) { c.LabelSelector = nil }, ""},
		"not itself":     {func(_ *constraint, p *corev1.Pod) { p.Labels = nil }, ""},
		"taints honored": {byZone(func(c *constraint, _ *corev1.Pod) { c.NodeTaintsPolicy = &honor }), ""},
		"taints ignored": {
			byZone(func(c *constraint, _ *corev1.Pod) { c.NodeTaintsPolicy = &ignore }), tooManyInZone,
		},
		"affinity honored": {byZone(func(_ *constraint, p *corev1.Pod) { p.Spec.NodeSelector = fast }), ""},
		"affinity ignored": {byZone(func(c *constraint, p *corev1.Pod) {
			c.NodeAffinityPolicy, p.Spec.NodeSelector = &ignore, fast
		}), tooManyInZone},
		"its revision": {
			func(c *constraint, _ *corev1.Pod) { c.MatchLabelKeys = []string{"revision", "x"} }, tooManyOnNode,
		},
		"no revision": {func(c *constraint, p *corev1.Pod) {
			c.MatchLabelKeys = []string{"revision"}
			delete(p.Labels, "revision")
		}, tooManyOnNode},
		"another revision": {func(c *constraint, p *corev1.Pod) {
			c.MatchLabelKeys, p.Labels["revision"] = []string{"revision"}, "2"
		}, ""},
		"a key that b lacks": {
			func(c *constraint, _ *corev1.Pod) { c.TopologyKey = "rack" },
			"pod db-1 may not run on node b, which lacks a label (topologySpreadConstraints on rack)",
		},
	} {
		if got := spread(t, test.change, "", db("db-0", "b")); got != test.want {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
	atLeast := byZone(func(c *constraint, _ *corev1.Pod) { c.MinDomains = new(int32(3)) })
	if got := spread(t, atLeast, "", db("db-0", "b"), db("db-2", "c")); got != tooManyInZone {
		t.Errorf("of three zones there are two: %q", got)
	}
}

// TestAround: what cannot be read, though it may be, is an error; it is read only where a pod asks for it.
func TestAround(t *testing.T) {
	api, broken := fake.NewClientset(), errors.New("broken")
	api.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, broken
	})
	moved := db("db-1", "a")
	if _, err := pods.Around(t.Context(), api, []corev1.Pod{*moved}); err != nil {
		t.Error(err)
	}
	moved.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		TopologyKey: zone, WhenUnsatisfiable: corev1.DoNotSchedule,
	}}
	if _, err := pods.Around(t.Context(), api, []corev1.Pod{*moved}); !errors.Is(err, broken) {
		t.Error(err)
	}
}
