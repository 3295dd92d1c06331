package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestEveryValueIsRendered by one of the renderings, which are decoded strictly.
func TestEveryValueIsRendered(t *testing.T) {
	t.Parallel()
	all := map[string]bool{}
	for _, values := range renderings() {
		maps.Copy(all, given(t, values.Files))
		for _, one := range []map[string]string{values.Set, values.JSON} {
			for key := range one {
				all[key] = true
			}
		}
	}
	for _, path := range valuePaths(defaults(t), "") {
		if !all[path] {
			t.Errorf("%s: no rendering has it; add it to testdata/rest.yaml", path)
		}
	}
}

// notInstalled are the values that no ci file has, and why: `ct install` runs on a plain cluster, without other
// operators, and with the chart's images alone.
func notInstalled() map[string]string {
	const (
		images   = "the cluster has each image under its own name alone"
		foreign  = "its kinds are another operator's"
		operates = "the operator's to set"
		unbuilt  = "there is no image of that sidecar"
		place    = "the cluster's own"
	)
	return map[string]string{
		"global.imageRegistry": images, "global.imagePullSecrets": images, "driver.image": images,
		"controller.image": images,
		"operator.image":   images, "mounter": operates, "legacyProvisioner.image": images, "selftest.image": images,
		"sidecars.provisioner.image": images, "sidecars.resizer.image": images,
		"sidecars.snapshotter.image":   images,
		"sidecars.nodeDriverRegistrar": unbuilt, "sidecars.livenessProbe": unbuilt,
		"monitoring.podMonitor": foreign, "monitoring.serviceMonitor": foreign, "monitoring.prometheusRule": foreign,
		"controller.certManager": foreign, "operator.webhook.certManager": foreign, "openshift": foreign,
		"driver.metricsTLS":         "nobody makes its certificate",
		"controller.existingSecret": "nobody makes it", "operator.webhook.existingSecret": "nobody makes it",
		"kubeletDir": place, "namespaceOverride": "ct looks for pods in the release's namespace",
		"networkPolicies.apiServerPorts": place, "enabled": "it has no effect",
	}
}

// TestEveryValueIsInstalled by `ct install`, unless there is a reason.
func TestEveryValueIsInstalled(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(helmcli.ChartDir(t), "ci", "*-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	installed, excused := given(t, files), map[string]bool{}
	for _, path := range valuePaths(defaults(t), "") {
		reason := ""
		for prefix, why := range notInstalled() {
			if path == prefix || strings.HasPrefix(path, prefix+".") {
				reason, excused[prefix] = why, true
			}
		}
		if !installed[path] && reason == "" {
			t.Errorf("%s: no ci file has it; add it, or a reason here", path)
		}
		if installed[path] && reason != "" {
			t.Errorf("%s: a ci file has it, in spite of the reason %q", path, reason)
		}
	}
	for prefix := range notInstalled() {
		if !excused[prefix] {
			t.Errorf("%s: values.yaml has no such value", prefix)
		}
	}
}

// TestCIFilesUseTheChartsImages: a cluster without a network has no other.
func TestCIFilesUseTheChartsImages(t *testing.T) {
	t.Parallel()
	known := strings.Fields(manifest(t, "images.txt"))
	checked := 0
	for name, values := range renderings() {
		if len(values.Files) == 0 || !strings.HasSuffix(filepath.Dir(values.Files[0]), "ci") {
			continue
		}
		for _, image := range images(t, values) {
			checked++
			if !slices.Contains(known, image) {
				t.Errorf("%s: the image %s is not among those of deploy/images.txt", name, image)
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d images were looked at", checked)
	}
}

// given are the dotted paths of all that stands in files of values, and of the maps around it.
func given(t *testing.T, files []string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var values map[string]any
		if err := yaml.UnmarshalStrict(data, &values); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, path := range valuePaths(values, "") {
			for at := range path {
				if path[at] == '.' {
					all[path[:at]] = true
				}
			}
			all[path] = true
		}
	}
	return all
}

// valuePaths are the dotted paths of all values below a map; what takes any key is one.
func valuePaths(values map[string]any, prefix string) []string {
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		path := prefix + key
		below, isMap := values[key].(map[string]any)
		if !isMap || len(below) == 0 || path != "global" && slices.Contains(openMaps(), path) {
			paths = append(paths, path)
			continue
		}
		paths = append(paths, valuePaths(below, path+".")...)
	}
	return paths
}
