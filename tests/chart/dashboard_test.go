package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// dashboard is as much of Grafana's as the tests look at.
type dashboard struct {
	UID        string
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Targets     []struct{ Expr, LegendFormat string }
	}
}

// boards renders the ConfigMap and reads the dashboard in it.
func boards(t *testing.T, values helmcli.Values) (*corev1.ConfigMap, dashboard) {
	t.Helper()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
	config := helmcli.Find[*corev1.ConfigMap](t, objects, "hpp-hostpath-provisioner-dashboard")
	var board dashboard
	if err := json.Unmarshal([]byte(config.Data["hostpath-provisioner.json"]), &board); err != nil {
		t.Fatal(err)
	}
	return config, board
}

// queries are those of all panels and variables.
func queries(t *testing.T) []string {
	t.Helper()
	_, board := boards(t, renderings()["dashboard"])
	var all []string
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, variable := range board.Templating.List {
		all = append(all, variable.Definition)
	}
	return all
}

// documented are the metrics of docs/reference/metrics.md with their series: a histogram has three.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(helmcli.Root(t), "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|([^|]*)").FindAllStringSubmatch(string(data), -1) {
		if !strings.Contains(row[2], "histogram") {
			all[row[1]] = true
			continue
		}
		for _, series := range []string{"_bucket", "_count", "_sum"} {
			all[row[1]+series] = true
		}
	}
	return all
}

// TestDashboardAsksForWhatThereIs: every panel for metrics that the binaries export, in words that Prometheus knows.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	known := documented(t)
	for _, name := range []string{ // of the kubelet, and of kube-state-metrics
		"kubelet_volume_stats_used_bytes", "kubelet_volume_stats_capacity_bytes", "kube_persistentvolumeclaim_info",
		"kube_persistentvolume_info",
	} {
		known[name] = true
	}
	metric := regexp.MustCompile(`\b(kubevirt_|kube_|kubelet_)?(hpp|grpc_server|volume|persistentvolume(claim)?)_\w+`)
	var rules []monitoringv1.Rule
	for _, query := range queries(t) {
		names := metric.FindAllString(query, -1)
		if query != "" && len(names) == 0 {
			t.Errorf("%q asks for no metric", query)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%q asks for %s, which docs/reference/metrics.md does not have", query, name)
			}
		}
		if query != "" && !strings.HasPrefix(query, "label_values(") {
			query = regexp.MustCompile(`\$(pool|node|class)`).ReplaceAllString(query, ".*")
			query = strings.ReplaceAll(query, "$__rate_interval", "5m")
			rules = append(rules, monitoringv1.Rule{Record: "panel", Expr: intstr.FromString(query)})
		}
	}
	if len(rules) < 21 {
		t.Errorf("%d queries, want those of all panels", len(rules))
	}
	// Twice the same name is not the question here.
	for i := range rules {
		rules[i].Record += strings.Repeat("_", i)
	}
	data, err := yaml.Marshal(monitoringv1.PrometheusRuleSpec{
		Groups: []monitoringv1.RuleGroup{{Name: "panels", Rules: rules}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "panels.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "rules", "panels.yaml")
}

// TestFullestVolumesAreOurs: of two volumes in one class, the panel shows that of this driver, under a name of its own.
func TestFullestVolumesAreOurs(t *testing.T) {
	t.Parallel()
	const series = `{series: '%s', values: '%d'}`
	claim := func(name, csi string, used int) string {
		of := fmt.Sprintf(`{namespace="shop", persistentvolumeclaim=%q`, name)
		return strings.Join([]string{
			fmt.Sprintf(series, "kubelet_volume_stats_used_bytes"+of+"}", used),
			fmt.Sprintf(series, "kubelet_volume_stats_capacity_bytes"+of+"}", 100),
			fmt.Sprintf(series, "kube_persistentvolumeclaim_info"+of+`, volumename="pv-`+name+`"}`, 1),
			fmt.Sprintf(series, `kube_persistentvolume_info{persistentvolume="pv-`+name+`", csi_driver="`+csi+`"}`, 1),
		}, ", ")
	}
	_, board := boards(t, helmcli.Values{Set: map[string]string{
		"monitoring.dashboard.enabled": "true", "driver.name": "disks.example.com",
	}})
	var query string
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			if strings.Contains(target.Expr, "topk(20") {
				query = strings.ReplaceAll(target.Expr, "$class", ".*")
			}
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fullest.yaml"), fmt.Appendf(nil, `
tests:
  - interval: 1m
    input_series: [%s, %s]
    promql_expr_test:
      - expr: %q
        exp_samples: [{labels: '{namespace="shop", persistentvolumeclaim="ours"}', value: 0.5}]
`, claim("ours", "disks.example.com", 50), claim("theirs", "ebs.csi.aws.com", 90), query), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "test", "rules", "fullest.yaml")
}

// TestDashboard: where the sidecar looks, also beside an operator, and each panel with a number and a title of its own.
func TestDashboard(t *testing.T) {
	t.Parallel()
	config, board := boards(t, withOperator(helmcli.Values{Set: map[string]string{
		"monitoring.dashboard.enabled": "true", "monitoring.dashboard.namespace": "grafana",
		"monitoring.dashboard.annotations.grafana_folder": "Storage",
	}}, nil))
	if config.Namespace != "grafana" || config.Labels["grafana_dashboard"] != "1" ||
		config.Annotations["grafana_folder"] != "Storage" || board.UID != "hostpath-provisioner" {
		t.Errorf("ConfigMap %+v with the dashboard %q", config.ObjectMeta, board.UID)
	}
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, panel := range board.Panels {
		if ids[panel.ID] || titles[panel.Title] || panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %d %q is there twice or asks for nothing", panel.ID, panel.Title)
		}
		ids[panel.ID], titles[panel.Title] = true, true
	}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"nobody finds it": {
				json: map[string]string{
					"monitoring.dashboard.enabled": "true", "monitoring.dashboard.labels": `{"grafana_dashboard":null}`,
				},
				want: []string{
					"monitoring.dashboard.labels is empty; Grafana's sidecar finds a dashboard by its label",
				},
			},
			"maybe": {
				set: set("monitoring.dashboard.enabled", "maybe"), want: []string{"/monitoring/dashboard/enabled"},
			},
			"a number": {
				json: set("monitoring.dashboard.labels.a", "1"), want: []string{"/monitoring/dashboard/labels/a"},
			},
			"some notes": {
				set: set("monitoring.dashboard.annotations", "a"), want: []string{"/monitoring/dashboard/annotations"},
			},
			"two places": {
				set: set("monitoring.dashboard.namespace", "a/b"), want: []string{"/monitoring/dashboard/namespace"},
			},
		})
	})
}
