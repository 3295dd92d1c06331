package app

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
)

// TestMetricsPage: what the provisioner exports is what docs/reference/metrics.md lists. Half of it has no sample until
// something fails, so it is the registry that is asked, which knows no types.
func TestMetricsPage(t *testing.T) {
	registry, err := registered(collectorsOf(metrics.New("controller"))...)
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descriptions)
		close(descriptions)
	}()
	exported := map[string]docs.Metric{}
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	labels := regexp.MustCompile(`variableLabels: \{([\w,]*)\}`)
	for d := range descriptions {
		text := d.String()
		exported[name.FindStringSubmatch(text)[1]] = docs.Metric{
			Labels: strings.FieldsFunc(labels.FindStringSubmatch(text)[1], func(r rune) bool { return r == ',' }),
		}
	}
	if err := docs.CheckMetrics(exported, "The legacy provisioner"); err != nil {
		t.Error(err)
	}
}
