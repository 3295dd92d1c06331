package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// TestMonitorsTakeEveryValue: both kinds, of the driver, the controller and the operator.
func TestMonitorsTakeEveryValue(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"podMonitor", "serviceMonitor"} {
		for _, of := range []string{"driver", "controller", "operator"} {
			values := monitored(of, kind)
			at := "monitoring." + kind
			values.JSON = map[string]string{
				at + ".interval": `"1m"`, at + ".scrapeTimeout": `"59s"`,
				at + ".relabelings":       `[{"targetLabel":"cluster","replacement":"one"}]`,
				at + ".metricRelabelings": `[{"sourceLabels":["__name__"],"regex":"go_.*","action":"drop"}]`,
			}
			want := []string{"1m 59s", "cluster", "drop"}
			if of == "driver" {
				want = []string{"1m 59s", "node", "cluster", "drop"}
			}
			name := map[string]string{
				"driver": driverMonitor, "controller": controller, "operator": operatorMonitor,
			}[of]
			if diff := cmp.Diff(want, firstEndpoint(t, values, kind, name)); diff != "" {
				t.Errorf("%s of the %s (-want +got):\n%s", kind, of, diff)
			}
		}
	}
}

// firstEndpoint is how a monitor scrapes its first port.
func firstEndpoint(t *testing.T, values helmcli.Values, kind, name string) []string {
	t.Helper()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
	if kind == "podMonitor" {
		e := helmcli.Find[*monitoringv1.PodMonitor](t, objects, name).Spec.PodMetricsEndpoints[0]
		return inShort(e.Interval, e.ScrapeTimeout, e.RelabelConfigs, e.MetricRelabelConfigs)
	}
	e := helmcli.Find[*monitoringv1.ServiceMonitor](t, objects, name).Spec.Endpoints[0]
	return inShort(e.Interval, e.ScrapeTimeout, e.RelabelConfigs, e.MetricRelabelConfigs)
}

func inShort(interval, timeout monitoringv1.Duration, targets, metrics []monitoringv1.RelabelConfig) []string {
	all := []string{string(interval) + " " + string(timeout)}
	for _, config := range targets {
		all = append(all, config.TargetLabel)
	}
	for _, config := range metrics {
		all = append(all, config.Action)
	}
	return all
}

func TestImpossibleMonitorsAreRefused(t *testing.T) {
	t.Parallel()
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		refusals := map[string]refusal{}
		for _, kind := range []string{"podMonitor", "serviceMonitor"} {
			at, place := "monitoring."+kind, "/monitoring/"+kind
			refusals[kind+": relabelings as a map"] = refusal{
				json: set(at+".relabelings", `{}`), want: []string{place + "/relabelings", "array"},
			}
			refusals[kind+": metricRelabelings of text"] = refusal{
				json: set(at+".metricRelabelings", `["drop"]`),
				want: []string{place + "/metricRelabelings/0", "object"},
			}
			refusals[kind+": a time without a unit"] = refusal{
				set: set(at+".scrapeTimeout", "soon"), want: []string{place + "/scrapeTimeout"},
			}
			refusals[kind+": too long"] = refusal{
				set: map[string]string{at + ".interval": "1m30s", at + ".scrapeTimeout": "91s"}, want: []string{
					at + ".scrapeTimeout is 91s, and its interval is 1m30s; Prometheus refuses a time limit " +
						"beyond the interval.",
				},
			}
		}
		expectRefusals(t, helm, refusals)
	})
}
