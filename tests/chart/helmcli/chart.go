package helmcli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Metadata is what the tests read of Chart.yaml.
type Metadata struct {
	Version     string            `json:"version"`
	AppVersion  string            `json:"appVersion"` // also the tag of the images that the chart asks for
	Icon        string            `json:"icon"`
	Annotations map[string]string `json:"annotations"`
}

// Chart reads Chart.yaml. A missing version fails the test.
func Chart(t *testing.T) Metadata {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(ChartDir(t), "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart Metadata
	if err := yaml.Unmarshal(data, &chart); err != nil {
		t.Fatalf("Chart.yaml: %v", err)
	}
	if chart.Version == "" || chart.AppVersion == "" {
		t.Fatalf("Chart.yaml says version %q and appVersion %q: both are needed", chart.Version, chart.AppVersion)
	}
	return chart
}

// Assets is a folder with kube-apiserver, etcd and kubectl: KUBEBUILDER_ASSETS, or what the cluster program has built.
func Assets(t *testing.T) string {
	t.Helper()
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		return folder
	}
	return strings.TrimSpace(golang(t, "run", "./cluster", "assets"))
}

// CertManager is a folder with cert-manager's controller, webhook and cainjector, which are compiled first if need be.
func CertManager(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(golang(t, "run", "./cluster", "assets", "cert-manager"))
}
