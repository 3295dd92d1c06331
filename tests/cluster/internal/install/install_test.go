package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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
	raw, err := os.ReadFile("../../../../charts/hostpath-provisioner/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var ours map[string]struct{ Image map[string]any }
	var all map[string]any
	if err := yaml.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(
		[]byte(digestValues(map[string]string{"driver": "sha256:a", "selftest": "sha256:b"})), &ours,
	); err != nil {
		t.Fatal(err)
	}
	for name, value := range ours {
		section, _ := all[name].(map[string]any)
		image, _ := section["image"].(map[string]any)
		if _, known := image["digest"]; !known {
			t.Errorf("the chart has no value %s.image.digest", name)
		}
		if value.Image["digest"] == "" {
			t.Errorf("%s.image.digest is empty", name)
		}
	}
	if len(ours) != 2 {
		t.Errorf("digests for %d images, want driver and selftest", len(ours))
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
