package install

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

func TestAppVersionIsTheCharts(t *testing.T) {
	dir := t.TempDir()
	if _, err := appVersion(dir); err == nil || !strings.Contains(err.Error(), "--chart") {
		t.Errorf("folder without a chart: %v, want a word about --chart", err)
	}
	for text, want := range map[string]string{
		"appVersion: \"1.2.3\"\n": "1.2.3", "appVersion: v2\n": "v2", "name: x\n": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := appVersion(dir)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// The keys are the chart's: values.schema.json refuses others at install.
func TestDigestValuesNameValuesOfTheChart(t *testing.T) {
	raw, err := os.ReadFile("../../../charts/hostpath-provisioner/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	digests := map[string]string{}
	for _, name := range product.Names() {
		digests[name] = "sha256:" + name
	}
	values, err := digestValues(digests)
	if err != nil {
		t.Fatal(err)
	}
	type image struct{ Repository, Digest string }
	var all, pinned map[string]struct{ Image image }
	if err := yaml.Unmarshal(values, &pinned); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(onlyObjects(t, raw), &all); err != nil {
		t.Fatal(err)
	}
	for key, value := range pinned {
		want := strings.TrimPrefix(value.Image.Digest, "sha256:")
		if got := ours("ghcr.io/" + all[key].Image.Repository + ":1"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s.image.repository is %q, which is %q and not %s", key, all[key].Image.Repository, got, want)
		}
	}
	if len(pinned) != len(product.Names()) {
		t.Errorf("digests for %d images, want %d", len(pinned), len(product.Names()))
	}
}

// onlyObjects leaves out what is no object at the top of values.yaml.
func onlyObjects(t *testing.T, raw []byte) []byte {
	t.Helper()
	var all map[string]any
	if err := yaml.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(all, func(_ string, value any) bool { _, isObject := value.(map[string]any); return !isObject })
	objects, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestImagesOf(t *testing.T) {
	pod := func(images ...string) string {
		return "kind: Pod\nspec:\n  containers:\n    - image: " + strings.Join(images, "\n    - image: ") + "\n---\n"
	}
	for name, tt := range map[string]struct {
		manifests string
		want      []string
	}{
		"nothing": {"", nil},
		"the chart's own": {
			pod("ghcr.io/hostpath-provisioner/selftest:0.1.0") + pod(
				"ghcr.io/hostpath-provisioner/driver:0.1.0", "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0",
			) + pod("ghcr.io/hostpath-provisioner/driver:0.1.0"),
			[]string{"driver", "selftest"},
		},
		"an operator may run any": {pod("ghcr.io/hostpath-provisioner/operator:0.1.0"), product.Names()},
		"registry with a port and a path, digest": {
			pod("mirror.example.com:5000/hub/hostpath-provisioner/legacyprovisioner:0.1.0@sha256:a",
				"localhost:5000/hostpath-provisioner/mounter"),
			[]string{"legacyprovisioner", "mounter"},
		},
		"somebody's own": {pod("ghcr.io/me/driver:1", "ghcr.io/hostpath-provisioner/other:1"), nil},
		"in text only": {
			"kind: ConfigMap\ndata:\n  a: |\n    image: ghcr.io/hostpath-provisioner/driver:1\n", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := imagesOf([]byte(tt.manifests))
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("imagesOf: %v, %v; want %v", got, err, tt.want)
			}
		})
	}
	if _, err := imagesOf([]byte("a: b: c\n")); err == nil {
		t.Error("imagesOf of what is no YAML: no error")
	}
}

func TestDemoIsUnprivilegedAndComplete(t *testing.T) {
	manifest := strings.NewReplacer("${CLASS}", "c", "${IMAGE}", "i@sha256:x").Replace(demoManifest)
	if strings.Contains(manifest, "${") {
		t.Errorf("something was left to replace:\n%s", manifest)
	}
	_, pod, _ := strings.Cut(manifest, "\n---\n")
	var got struct {
		Spec struct {
			SecurityContext struct{ RunAsNonRoot bool }
			Containers      []struct {
				Image        string
				VolumeMounts []struct{ MountPath string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(pod), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Spec.SecurityContext.RunAsNonRoot || len(got.Spec.Containers) != 1 ||
		got.Spec.Containers[0].Image != "i@sha256:x" {
		t.Errorf("%+v", got.Spec)
	}
}
