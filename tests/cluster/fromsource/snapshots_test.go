package fromsource_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
)

// TestSnapshotManifests: the modules carry what they did, and the Deployment runs the image that the cluster has.
func TestSnapshotManifests(t *testing.T) {
	manifests, err := fromsource.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"CustomResourceDefinition volumesnapshotclasses.snapshot.storage.k8s.io",
		"CustomResourceDefinition volumesnapshotcontents.snapshot.storage.k8s.io",
		"CustomResourceDefinition volumesnapshots.snapshot.storage.k8s.io",
	}
	if diff := cmp.Diff(want, named(t, manifests.Definitions)); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
	want = []string{
		"ClusterRole snapshot-controller-runner", "ClusterRoleBinding snapshot-controller-role",
		"Deployment snapshot-controller", "Role snapshot-controller-leaderelection",
		"RoleBinding snapshot-controller-leaderelection", "ServiceAccount snapshot-controller",
	}
	if diff := cmp.Diff(want, named(t, manifests.Controller)); diff != "" {
		t.Errorf("objects of the controller (-want +got):\n%s", diff)
	}
	image := []byte("image: registry.k8s.io/" + fromsource.SnapshotController + "\n")
	if !bytes.Contains(manifests.Controller, image) {
		t.Errorf("the Deployment does not run %s:\n%s", image, manifests.Controller)
	}
}

// named are the kinds and names of objects, sorted.
func named(t *testing.T, text []byte) (all []string) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var object unstructured.Unstructured
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			all = append(all, object.GetKind()+" "+object.GetName())
		}
	}
}
