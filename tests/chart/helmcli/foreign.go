package helmcli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// OpenShiftKinds are the files with the CustomResourceDefinitions of OpenShift that the chart and the operator know.
func OpenShiftKinds(t *testing.T) []string {
	t.Helper()
	module := strings.TrimSpace(golang(t, "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api"))
	return []string{
		filepath.Join(module, "security", "v1", "zz_generated.crd-manifests",
			"0000_03_config-operator_01_securitycontextconstraints.crd.yaml"),
		filepath.Join(module, "config", "v1", "zz_generated.crd-manifests",
			"0000_10_config-operator_01_apiservers-Default.crd.yaml"),
	}
}

// SnapshotKinds are the files with the CustomResourceDefinitions of VolumeSnapshots.
func SnapshotKinds(t *testing.T) []string {
	t.Helper()
	module := strings.TrimSpace(golang(t, "list", "-m", "-f", "{{.Dir}}",
		"github.com/kubernetes-csi/external-snapshotter/client/v8"))
	files, err := filepath.Glob(filepath.Join(module, "config", "crd", "snapshot.storage.k8s.io_*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("definitions of VolumeSnapshots: %q, %v; want three", files, err)
	}
	return files
}

// MonitoringKinds are the files with the CustomResourceDefinitions of the Prometheus operator.
func MonitoringKinds(t *testing.T) []string {
	t.Helper()
	// Of this module only the types are a requirement; the definitions lie in its parent.
	folder := filepath.Join(Download(t, "github.com/prometheus-operator/prometheus-operator@v0.94.1"), "example",
		"prometheus-operator-crd")
	return []string{
		filepath.Join(folder, "monitoring.coreos.com_podmonitors.yaml"),
		filepath.Join(folder, "monitoring.coreos.com_servicemonitors.yaml"),
		filepath.Join(folder, "monitoring.coreos.com_prometheusrules.yaml"),
	}
}

// CertManagerKinds are files with the CustomResourceDefinitions of cert-manager that the chart knows. The module has
// them as its own chart's templates, in which only the labels are to be filled in; these copies have none.
func CertManagerKinds(t *testing.T) []string {
	t.Helper()
	folder := filepath.Join(Download(t, "github.com/cert-manager/cert-manager@v1.11.5"), "deploy", "crds")
	labels := regexp.MustCompile(`(?m)^  labels:\n(    .*\n)+`)
	var files []string
	for _, name := range []string{
		"crd-issuers.yaml", "crd-clusterissuers.yaml", "crd-certificates.yaml", "crd-certificaterequests.yaml",
	} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, labels.ReplaceAll(data, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// Download brings a module that is no requirement (PATH@VERSION) and gives its folder.
func Download(t *testing.T, module string) string {
	t.Helper()
	var answer struct{ Dir string }
	if err := json.Unmarshal([]byte(golang(t, "mod", "download", "-json", module)), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Dir
}

// golang runs the go command in tests/ and gives its stdout.
func golang(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = filepath.Join(Root(t), "tests")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, stderr.String())
	}
	return string(out)
}
