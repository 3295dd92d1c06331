// Package crd tests the CustomResourceDefinition on a real API server: what it accepts, what it refuses and how it
// says so, and what users see of it.
package crd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

func TestCustomResourceDefinition(t *testing.T) {
	s := harness.Start(t)
	old := oldResources(t, s)
	s.Kinds(t, harness.OwnKinds(t))
	t.Run("structural", func(t *testing.T) { structural(t, s) })
	t.Run("explained", func(t *testing.T) { explained(t, s) })
	// First of those that need the one name that there is.
	t.Run("what was there before", func(t *testing.T) { ratcheting(t, s, old) })
	t.Run("seeds apply", func(t *testing.T) { seeds(t, s) })
	t.Run("refusals", func(t *testing.T) { refusals(t, s) })
	t.Run("status", func(t *testing.T) { status(t, s) })
}

func structural(t *testing.T, s *harness.Server) {
	definition := harness.Get(t, s, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "hostpathprovisioners." + names.Group},
	})
	for _, condition := range definition.Status.Conditions {
		want := apiextensionsv1.ConditionTrue
		if condition.Type == apiextensionsv1.NonStructuralSchema {
			want = apiextensionsv1.ConditionFalse
		}
		if condition.Status != want {
			t.Errorf("condition %s is %s: %s", condition.Type, condition.Status, condition.Message)
		}
	}
	if len(definition.Status.Conditions) < 2 {
		t.Errorf("only these conditions: %v", definition.Status.Conditions)
	}
	schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, field := range []string{"spec", "status"} {
		described(t, field, schema.Properties[field])
	}
}

// described wants a description on every field, which is what `kubectl explain` prints.
func described(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if strings.TrimSpace(schema.Description) == "" {
		t.Errorf("%s has no description", path)
	}
	fields := schema.Properties
	if schema.Items != nil && schema.Items.Schema != nil {
		fields = schema.Items.Schema.Properties
	}
	for name := range fields {
		described(t, path+"."+name, fields[name])
	}
}

func explained(t *testing.T, s *harness.Server) {
	for field, want := range map[string]string{
		"":                         "HostPathProvisioner makes directories on the nodes into volumes.",
		".spec":                    "What the provisioner should be.",
		".status":                  "What the operator last saw.",
		".status.conditions":       "Available, Progressing, Degraded; NotServed and Deleting where they apply.",
		".status.operatorVersion":  "Version of the operator.",
		".status.targetVersion":    "Version that is being rolled out.",
		".status.observedVersion":  "Version that runs on every node.",
		".spec.storagePools.quota": "required refuses the pool where it cannot",
	} {
		text := kubectl(t, s, "explain", "hostpathprovisioner"+field)
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("kubectl explain hostpathprovisioner%s does not say %q:\n%s", field, want, text)
		}
	}
}

// seeds are the resources of the predecessor's documentation, character for character.
func seeds(t *testing.T, s *harness.Server) {
	for _, name := range []string{"pool-cr.yaml", "pvctemplate-cr.yaml", "legacy-cr.yaml"} {
		objects := helmcli.Raw(t, harness.Seed(t, name))
		err := s.Client.Create(
			t.Context(), objects[0], client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict),
		)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func status(t *testing.T, s *harness.Server) {
	resource := valid()
	resource.Status.OperatorVersion = "written by a user"
	s.Create(t, resource)
	if got := harness.Get(t, s, resource); got.Status.OperatorVersion != "" {
		t.Errorf("create took the status too: %+v", got.Status)
	}
	generation := resource.Generation

	resource.Status.ObservedVersion = "1.2.3"
	resource.Status.Conditions = []metav1.Condition{
		{Type: v1beta1.Available, Status: metav1.ConditionTrue, Reason: "A", LastTransitionTime: metav1.Now()},
		{Type: v1beta1.Progressing, Status: metav1.ConditionFalse, Reason: "B", LastTransitionTime: metav1.Now()},
		{Type: v1beta1.Degraded, Status: metav1.ConditionUnknown, Reason: "C", LastTransitionTime: metav1.Now()},
		{Type: v1beta1.NotServed, Status: metav1.ConditionTrue, Reason: "D", LastTransitionTime: metav1.Now()},
	}
	resource.Spec.ImagePullPolicy = "Never"
	if err := s.Client.Status().Update(t.Context(), resource); err != nil {
		t.Fatal(err)
	}
	got := harness.Get(t, s, resource)
	if got.Generation != generation || got.Spec.ImagePullPolicy != "" || got.Status.ObservedVersion != "1.2.3" {
		t.Errorf("the status is no subresource: generation %d → %d, spec %+v, status %+v",
			generation, got.Generation, got.Spec, got.Status)
	}

	table := strings.Split(strings.TrimSpace(kubectl(t, s, "get", "hpp")), "\n")
	for i, want := range []string{
		"NAME AVAILABLE PROGRESSING DEGRADED NOTSERVED VERSION AGE",
		names.CustomResource + " True False Unknown True 1.2.3 ",
	} {
		if got := strings.Join(strings.Fields(table[i]), " "); !strings.HasPrefix(got+" ", want) {
			t.Errorf("kubectl get hpp, line %d: %q, want %q", i+1, got, want)
		}
	}
	s.Delete(t, resource)
}

// valid is a resource that nothing is wrong with.
func valid() *v1beta1.HostPathProvisioner {
	return &v1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: names.CustomResource},
		Spec: v1beta1.HostPathProvisionerSpec{
			StoragePools: []v1beta1.StoragePool{{Name: "local", Path: "/var/hpvolumes"}},
		},
	}
}

// oldResources makes resources that only a schema without rules lets in, as kubevirt's does,
// and gives them as they are stored.
func oldResources(t *testing.T, s *harness.Server) []*v1beta1.HostPathProvisioner {
	t.Helper()
	data, err := os.ReadFile(harness.OwnKinds(t))
	if err != nil {
		t.Fatal(err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(data, &definition); err != nil {
		t.Fatal(err)
	}
	withoutRules(definition)
	if data, err = yaml.Marshal(definition); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Kinds(t, path)
	old := valid()
	old.Spec.StoragePools = []v1beta1.StoragePool{
		{Name: "My Pool", Path: "var/hpvolumes", SnapshotProvider: "copy", Quota: "some"},
	}
	old.Spec.FeatureGates = []string{"Old"}
	named := valid()
	named.Name = "other"
	s.Create(t, old, named)
	return []*v1beta1.HostPathProvisioner{old, named}
}

// withoutRules removes every rule from a schema, however deep, and keeps its types.
func withoutRules(node any) {
	switch node := node.(type) {
	case map[string]any:
		for _, key := range []string{
			"x-kubernetes-validations", "pattern", "enum", "minLength", "maxLength", "maxItems", "minimum", "maximum",
		} {
			delete(node, key)
		}
		for _, child := range node {
			withoutRules(child)
		}
	case []any:
		for _, child := range node {
			withoutRules(child)
		}
	}
}

// ratcheting: what was accepted once may stay, and may be changed elsewhere.
func ratcheting(t *testing.T, s *harness.Server, old []*v1beta1.HostPathProvisioner) {
	for _, resource := range old {
		harness.Change(t, s, resource, func(r *v1beta1.HostPathProvisioner) {
			r.Spec.Workload.NodeSelector = map[string]string{"disk": "yes"}
			r.Finalizers = []string{names.KubevirtFinalizer}
			r.Labels = map[string]string{"a": "b"}
		})
		resource.Status.OperatorVersion = "1"
		if err := s.Client.Status().Update(t.Context(), resource); err != nil {
			t.Errorf("status of %s: %v", resource.Name, err)
		}
	}
	want := `HostPathProvisioner.hostpathprovisioner.kubevirt.io "hostpath-provisioner" is invalid: ` +
		`spec.storagePools[0].path: Invalid value: "other": the path has to be absolute: begin with /`
	err := harness.ChangeRefused(
		t, s, old[0], func(r *v1beta1.HostPathProvisioner) { r.Spec.StoragePools[0].Path = "other" },
	)
	if err.Error() != want {
		t.Errorf("a new violation is refused with\n%s\nwant\n%s", err, want)
	}
	for _, resource := range old {
		s.Delete(t, resource)
		harness.Change(t, s, resource, func(r *v1beta1.HostPathProvisioner) { r.Finalizers = nil })
		s.Gone(t, resource)
	}
}

func kubectl(t *testing.T, s *harness.Server, args ...string) string {
	t.Helper()
	command := exec.CommandContext(
		t.Context(), filepath.Join(helmcli.Assets(t), "kubectl"), append(args, "--kubeconfig="+s.Kubeconfig)...,
	)
	// Its discovery cache would otherwise outlive the server, in the home directory.
	command.Env = append(os.Environ(), "KUBECACHEDIR="+t.TempDir())
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}
