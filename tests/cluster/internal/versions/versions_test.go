package versions_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
)

// The node files come from the module of kind, the cluster from its library:
// they must be of one version.
func TestKindIsTheVersionInGoMod(t *testing.T) {
	if want := "sigs.k8s.io/kind " + versions.Kind; !strings.Contains(read(t, "../../../go.mod"), want) {
		t.Errorf("tests/go.mod does not say %q", want)
	}
}

// The types and definitions that tests read are those of the cluster.
func TestSnapshotsAreTheVersionInGoMod(t *testing.T) {
	want := "github.com/kubernetes-csi/external-snapshotter/client/v8 " + versions.CSISnapshotter
	if !strings.Contains(read(t, "../../../go.mod"), want) {
		t.Errorf("tests/go.mod does not say %q", want)
	}
}

// TestNodeImagesAreNamedByDigest: kind's tags are pushed again for later versions of kind, with other contents. CI runs
// the image that `make up` takes, and those of older Kubernetes.
func TestNodeImagesAreNamedByDigest(t *testing.T) {
	workflow := read(t, "../../../../.github/workflows/e2e.yaml")
	images := regexp.MustCompile(`kindest/node:\S+`).FindAllString(workflow, -1)
	if len(images) < 4 || !slices.Contains(images, versions.PublicNodeImage) {
		t.Errorf("CI's node images are %q; want %s among them", images, versions.PublicNodeImage)
	}
	for _, image := range images {
		if !regexp.MustCompile(`^kindest/node:v1\.\d+\.\d+@sha256:[0-9a-f]{64}$`).MatchString(image) {
			t.Errorf("%s: want a version and a digest", image)
		}
	}
}

// TestPublicNodeImageIsKinds: the version's own default.
func TestPublicNodeImageIsKinds(t *testing.T) {
	if versions.PublicNodeImage != defaults.Image {
		t.Errorf("%s, kind's own is %s", versions.PublicNodeImage, defaults.Image)
	}
}

// A sidecar that the chart names and the cluster does not have would leave
// the driver's pods pending.
func TestSidecarsAreTheVersionsInTheChart(t *testing.T) {
	values := read(t, "../../../../charts/hostpath-provisioner/values.yaml")
	for name, version := range map[string]string{
		"csi-provisioner": versions.CSIProvisioner, "csi-resizer": versions.CSIResizer,
		"csi-snapshotter": versions.CSISnapshotter,
	} {
		_, after, found := strings.Cut(values, "repository: sig-storage/"+name+"\n")
		if !found {
			t.Errorf("the chart's values name no sig-storage/%s", name)
			continue
		}
		tag := regexp.MustCompile(`(?m)^\s*tag: "?([^"\n]*)`).FindStringSubmatch(after)
		if tag == nil || tag[1] != version {
			t.Errorf("the chart's %s is %v, the cluster's %s", name, tag, version)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
