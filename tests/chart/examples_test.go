package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// example is what whoever starts from a file of the chart's examples gets.
type example struct {
	Driver  string
	Pools   []map[string]any  // as the driver reads them
	Classes map[string]string // a class's pool and policies, by its name
}

func examples() map[string]example {
	const driver = "kubevirt.io.hostpath-provisioner"
	disk := func(name string) map[string]any {
		return map[string]any{"name": name, "path": "/mnt/" + name, "requireMount": true, "quota": "required"}
	}
	ssd := disk("ssd")
	ssd["reserve"] = "5%"
	ssd["trash"] = map[string]any{"retention": "24h", "purgeWhenFull": true}
	return map[string]example{
		"one-disk-values.yaml": {
			Driver: driver, Pools: []map[string]any{ssd},
			Classes: map[string]string{"fast": "ssd Delete default"},
		},
		"several-disks-with-quota-values.yaml": {
			Driver: driver, Pools: []map[string]any{disk("nvme0"), disk("nvme1"), disk("nvme2"), disk("nvme3")},
			Classes: map[string]string{"nvme": "nvme* Delete", "nvme-retain": "nvme* Retain"},
		},
		// docs/how-to/take-over-from-kubevirt.md: kubevirt's classes stay, and the driver has the name of kubevirt's.
		"from-kubevirt-values.yaml": {
			Driver: driver, Pools: []map[string]any{{"name": "local", "path": "/var/hpvolumes"}},
			Classes: map[string]string{},
		},
	}
}

// TestExamples renders each of the chart's examples with both Helms, and finds the pools and classes that it promises.
func TestExamples(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(helmcli.ChartDir(t), "examples")
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		for name, want := range examples() {
			values := helmcli.Values{Files: []string{filepath.Join(folder, name)}}
			got := exampleOf(t, helmcli.Objects(t, helm.MustTemplate(t, values)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// exampleOf reads out of a rendering what an example promises. The driver and the controller that all nodes connect to
// are there in any case.
func exampleOf(t *testing.T, objects []client.Object) example {
	t.Helper()
	helmcli.Find[*appsv1.DaemonSet](t, objects, "hpp-hostpath-provisioner-csi")
	helmcli.Find[*appsv1.Deployment](t, objects, controller)
	got := example{Classes: map[string]string{}}
	var config struct {
		StoragePools []map[string]any `json:"storagePools"`
	}
	data := helmcli.Find[*corev1.ConfigMap](t, objects, "hpp-hostpath-provisioner-csi").Data["config.yaml"]
	if err := yaml.UnmarshalStrict([]byte(data), &config); err != nil {
		t.Fatal(err)
	}
	got.Pools = config.StoragePools
	for _, object := range objects {
		switch object := object.(type) {
		case *storagev1.CSIDriver:
			got.Driver = object.Name
		case *storagev1.StorageClass:
			class := object.Parameters["storagePool"] + " " + string(*object.ReclaimPolicy)
			if object.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
				class += " default"
			}
			got.Classes[object.Name] = class
		}
	}
	return got
}

// TestExamplesAreReadable: each file is short, has a test, is named in the chart's README, and leads to pages that are
// there.
func TestExamplesAreReadable(t *testing.T) {
	t.Parallel()
	const most = 40
	page := regexp.MustCompile(`docs/[a-zA-Z/-]+\.md`)
	readme, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(helmcli.ChartDir(t), "examples", "*"))
	if err != nil || len(files) != len(examples()) {
		t.Fatalf("%d files, %d tests: %v", len(files), len(examples()), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(data), "\n"); lines > most {
			t.Errorf("%s has %d lines, want at most %d", name, lines, most)
		}
		if _, tested := examples()[name]; !tested {
			t.Errorf("%s: examples has no entry", name)
		}
		if !strings.Contains(string(readme), "examples/"+name) {
			t.Errorf("the chart's README does not name examples/%s", name)
		}
		for _, to := range page.FindAllString(string(data), -1) {
			if _, err := os.Stat(filepath.Join(helmcli.Root(t), to)); err != nil {
				t.Errorf("%s leads to %s: %v", name, to, err)
			}
		}
	}
}
