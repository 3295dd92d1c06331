package persistentvolume_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume/pvtest"
)

func TestAffinity(t *testing.T) {
	const key = pvtest.Key
	need := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	label := func(needs ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: needs}
	}
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return label(need(key, corev1.NodeSelectorOpIn, values...))
	}
	exists := func(key string) corev1.NodeSelectorRequirement { return need(key, corev1.NodeSelectorOpExists) }
	byName := func(node string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{need("metadata.name", corev1.NodeSelectorOpIn, node)},
		}
	}
	for name, test := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		here  bool
		nodes []string
	}{
		"topology": {
			[]corev1.NodeSelectorTerm{in(key, "worker-2", "worker-1"), in(key, "worker-2")},
			true,
			[]string{"worker-1", "worker-2"},
		},
		"another node": {[]corev1.NodeSelectorTerm{in(key, "worker-2")}, false, []string{"worker-2"}},
		"not that node": {
			[]corev1.NodeSelectorTerm{label(need(key, corev1.NodeSelectorOpNotIn, "worker-2"))},
			true,
			nil,
		},
		"has the key":       {[]corev1.NodeSelectorTerm{label(exists(key))}, true, nil},
		"lacks a key":       {[]corev1.NodeSelectorTerm{label(exists("other"))}, false, nil},
		"both":              {[]corev1.NodeSelectorTerm{label(exists(key), exists("other"))}, false, nil},
		"either":            {[]corev1.NodeSelectorTerm{label(exists("other")), label(exists(key))}, true, nil},
		"by name":           {[]corev1.NodeSelectorTerm{byName("worker-1")}, true, []string{"worker-1"}},
		"by another's name": {[]corev1.NodeSelectorTerm{byName("worker-2")}, false, []string{"worker-2"}},
		"by another label":  {[]corev1.NodeSelectorTerm{in("kubernetes.io/hostname", "w2")}, false, []string{"w2"}},
		"nothing asked":     {[]corev1.NodeSelectorTerm{{}}, false, nil},
		"operator to come":  {[]corev1.NodeSelectorTerm{label(need(key, "Near", "worker-1"))}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object := pvtest.New("pvc-1", pvtest.Driver, "pvc-1", "")
			object.Spec.NodeAffinity = pvtest.Affinity(test.terms...)
			here := persistentvolume.IsOn(object, "worker-1", map[string]string{key: "worker-1"})
			named, labelled := persistentvolume.Nodes(object, key)
			if nodes := slices.Concat(named, labelled); here != test.here || !slices.Equal(nodes, test.nodes) {
				t.Errorf("here: %v, nodes %q; want %v, %q", here, nodes, test.here, test.nodes)
			}
		})
	}
}

// TestOnDelete: an adopted volume is disposed of as its class said; what no class of ours says is passed over.
func TestOnDelete(t *testing.T) {
	const driver = pvtest.Driver
	for attribute, want := range map[string]string{
		"retain": "retain", "purge": "purge", "trash": "trash", "shred": "", "": "",
	} {
		object := pvtest.New("pvc-1", driver, "pvc-1", "worker-1")
		object.Spec.CSI.VolumeAttributes["onDelete"] = attribute
		if got := persistentvolume.Describe(object, driver, pvtest.Key); got.OnDelete != want {
			t.Errorf("onDelete %q: %q, want %q", attribute, got.OnDelete, want)
		}
	}
}
