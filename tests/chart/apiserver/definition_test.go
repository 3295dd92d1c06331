package apiserver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestDefinitionIsTheOperators: the chart brings none of the HostPathProvisioner, and gets on with whichever is there.
func TestDefinitionIsTheOperators(t *testing.T) {
	t.Parallel()
	s := start(t)
	helmcli.Each(t, func(t *testing.T, helm helmcli.Helm) {
		helm.Kubeconfig = s.kubeconfig
		t.Run("none", func(t *testing.T) { noDefinition(t, s, helm) })
		t.Run("kubevirt's", func(t *testing.T) { kubevirtsDefinition(t, s, helm) })
		t.Run("an older chart's", func(t *testing.T) { olderChartsDefinition(t, s, helm) })
	})
}

func noDefinition(t *testing.T, s *server, helm helmcli.Helm) {
	for _, operator := range []string{"false", "true"} {
		install(t, helm, helmcli.ChartDir(t), operator)
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(definition()), definition())
		if !apierrors.IsNotFound(err) {
			t.Errorf("operator.enabled=%s: the definition: %v, want none", operator, err)
		}
		uninstall(t, helm)
	}
}

func kubevirtsDefinition(t *testing.T, s *server, helm helmcli.Helm) {
	file := filepath.Join(helmcli.Root(t), "tests", "api", "operator", "testdata", "kubevirt", "definition.yaml")
	kubectl := exec.CommandContext(t.Context(), filepath.Join(helmcli.Assets(t), "kubectl"), "apply", "--filename",
		file)
	kubectl.Env = helm.Environment(t)
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", kubectl, err, out)
	}
	defer remove(t, s)
	before := get(t, s, client.ObjectKeyFromObject(definition()), definition())
	if !slices.Contains(managers(before), "kubectl-client-side-apply") {
		t.Fatalf("the definition is managed by %v: it is not as kubevirt's users applied it", managers(before))
	}
	install(t, helm, helmcli.ChartDir(t), "true")
	same(t, s, before)
	uninstall(t, helm)
	same(t, s, before)
}

// olderChartsDefinition: that chart had the definition in crds/, from where Helm never removes one.
func olderChartsDefinition(t *testing.T, s *server, helm helmcli.Helm) {
	older, chart := filepath.Join(t.TempDir(), "chart"), os.DirFS(helmcli.ChartDir(t))
	files, err := fs.Sub(chart, "files")
	if err == nil {
		err = errors.Join(os.CopyFS(older, chart), os.CopyFS(filepath.Join(older, "crds"), files))
	}
	if err != nil {
		t.Fatal(err)
	}
	install(t, helm, older, "true")
	defer remove(t, s)
	before := get(t, s, client.ObjectKeyFromObject(definition()), definition())
	values := helmcli.Values{Set: map[string]string{"operator.enabled": "true"}}
	if _, err := helm.Run(t, values, "upgrade", helmcli.Release, helmcli.ChartDir(t)); err != nil {
		t.Fatalf("upgrade: %v", err)
	}
	same(t, s, before)
	uninstall(t, helm)
	same(t, s, before)
}

func definition() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("apiextensions.k8s.io/v1")
	object.SetKind("CustomResourceDefinition")
	object.SetName("hostpathprovisioners.hostpathprovisioner.kubevirt.io")
	return object
}

func managers(object client.Object) []string {
	var all []string
	for _, entry := range object.GetManagedFields() {
		all = append(all, entry.Manager)
	}
	return all
}

// same wants the definition that was there, as it was. Its conditions are the server's.
func same(t *testing.T, s *server, before *unstructured.Unstructured) {
	t.Helper()
	after := get(t, s, client.ObjectKeyFromObject(before), definition())
	if after.GetUID() != before.GetUID() || after.GetDeletionTimestamp() != nil {
		t.Errorf("the definition has uid %s and is deleted at %v; it was %s", after.GetUID(),
			after.GetDeletionTimestamp(), before.GetUID())
	}
	if diff := cmp.Diff(before.Object["spec"], after.Object["spec"]); diff != "" {
		t.Errorf("the definition has changed (-before +after):\n%s", diff)
	}
}

func install(t *testing.T, helm helmcli.Helm, chart, operator string) {
	t.Helper()
	values := helmcli.Values{Set: map[string]string{"operator.enabled": operator}}
	if _, err := helm.Run(t, values, "install", helmcli.Release, chart); err != nil {
		t.Fatalf("install with operator.enabled=%s: %v", operator, err)
	}
}

// uninstall runs no hooks: nothing here runs their Job.
func uninstall(t *testing.T, helm helmcli.Helm) {
	t.Helper()
	if _, err := helm.Run(t, helmcli.Values{}, "uninstall", helmcli.Release, "--no-hooks"); err != nil {
		t.Fatalf("uninstall: %v", err)
	}
}

// remove waits until the definition is gone. It is served before it is deleted: the API server looks for its objects
// then, and comes back to those that it could not list yet only after minutes.
func remove(t *testing.T, s *server) {
	t.Helper()
	objects := &unstructured.UnstructuredList{}
	objects.SetAPIVersion("hostpathprovisioner.kubevirt.io/v1beta1")
	objects.SetKind("HostPathProvisionerList")
	harness.Eventually(t, "it is served", func(context.Context) error { return s.client.List(t.Context(), objects) })
	if err := s.client.Delete(t.Context(), definition()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is gone", func(context.Context) error {
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(definition()), definition())
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}
