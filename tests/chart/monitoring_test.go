package chart

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	securityv1 "github.com/openshift/api/security/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

const (
	driverMonitor   = "hpp-hostpath-provisioner-csi"
	operatorMonitor = "hpp-hostpath-provisioner-operator"
)

// ruleNames are the PrometheusRules, by the names of their tests in rules/.
func ruleNames() map[string]string {
	return map[string]string{"driver": driverMonitor, "operator": operatorMonitor}
}

// monitored is the rendering that shows a PrometheusRule or a monitor of the driver or of the operator.
func monitored(of, what string) helmcli.Values {
	return helmcli.Values{Set: map[string]string{
		"monitoring." + what + ".enabled": "true", "operator.enabled": strconv.FormatBool(of == "operator"),
	}}
}

func ruleSpec(t *testing.T, of string) monitoringv1.PrometheusRuleSpec {
	t.Helper()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, monitored(of, "prometheusRule")))
	return helmcli.Find[*monitoringv1.PrometheusRule](t, objects, ruleNames()[of]).Spec
}

// alertsOf are the alerts of a PrometheusRule, without its recording rules.
func alertsOf(spec monitoringv1.PrometheusRuleSpec) []monitoringv1.Rule {
	var all []monitoringv1.Rule
	for _, group := range spec.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				all = append(all, rule)
			}
		}
	}
	return all
}

// alerts are the driver's of testdata/everything.yaml, whose thresholds must be in them as whole numbers.
func alerts(t *testing.T) []monitoringv1.Rule {
	t.Helper()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["everything"]))
	rules := alertsOf(helmcli.Find[*monitoringv1.PrometheusRule](t, objects, "storage-driver-csi").Spec)
	var expressions strings.Builder
	for _, rule := range rules {
		expressions.WriteString(rule.Expr.StrVal + "\n")
	}
	for _, threshold := range []string{"< 5 and", "> 1000000\n"} {
		if !strings.Contains(expressions.String(), threshold) {
			t.Errorf("no alert has the threshold %q:\n%s", threshold, expressions.String())
		}
	}
	return rules
}

// TestAlertsFireAndStaySilent gives the rendered rules to promtool with the series of rules/.
func TestAlertsFireAndStaySilent(t *testing.T) {
	t.Parallel()
	for of := range ruleNames() {
		t.Run(of, func(t *testing.T) {
			spec := ruleSpec(t, of)
			dir := t.TempDir()
			rules, err := yaml.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			cases, err := os.ReadFile(filepath.Join("rules", of+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string][]byte{of + ".rules.yaml": rules, of + ".yaml": cases} {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			promtool(t, dir, "check", "rules", of+".rules.yaml")
			promtool(t, dir, "test", "rules", of+".yaml")
			expectCases(t, cases, alertsOf(spec))
		})
	}
}

func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "promtool", args...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v (`make chart-test` installs it)\n%s", args, err, out)
	}
}

// expectCases: each alert fires in one case at least, and is silent in another.
func expectCases(t *testing.T, cases []byte, rules []monitoringv1.Rule) {
	t.Helper()
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Fires []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(cases, &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Fires) > 0 {
				fires[c.Alert] = true
			} else {
				silent[c.Alert] = true
			}
		}
	}
	var names []string
	for _, rule := range rules {
		names = append(names, rule.Alert)
	}
	for what, got := range map[string]map[string]bool{"fires": fires, "stays silent": silent} {
		if diff := cmp.Diff(sorted(names), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("alerts for which a case says that it %s (-rendered +cases):\n%s", what, diff)
		}
	}
}

// TestAlertsAreExplained: each has the labels and annotations that people and KubeVirt's operators look for, and a
// runbook in the repository; no runbook is left of an alert that is none any more.
func TestAlertsAreExplained(t *testing.T) {
	t.Parallel()
	runbooks := filepath.Join(helmcli.Root(t), "docs", "runbooks")
	index, err := os.ReadFile(filepath.Join(runbooks, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	explained := []string{"README.md"}
	for of := range ruleNames() {
		for _, rule := range alertsOf(ruleSpec(t, of)) {
			explained = append(explained, rule.Alert+".md")
			for label, allowed := range map[string][]string{
				"severity": {"critical", "warning", "info"}, "operator_health_impact": {"critical", "warning", "none"},
				"kubernetes_operator_part_of":   {"kubevirt"},
				"kubernetes_operator_component": {"hostpath-provisioner-operator"},
			} {
				if !slices.Contains(allowed, rule.Labels[label]) {
					t.Errorf("%s: label %s is %q, want one of %v", rule.Alert, label, rule.Labels[label], allowed)
				}
			}
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.For == nil {
				t.Errorf("%s: summary, description or for is missing", rule.Alert)
			}
			want := "https://github.com/hostpath-provisioner/hostpath-provisioner/blob/main/docs/runbooks/" +
				rule.Alert + ".md"
			if got := rule.Annotations["runbook_url"]; got != want {
				t.Errorf("%s: runbook %q, want %q", rule.Alert, got, want)
			}
			if !strings.Contains(string(index), "["+rule.Alert+"]("+rule.Alert+".md) | "+rule.Labels["severity"]+" |") {
				t.Errorf("docs/runbooks/README.md has no line for %s with its severity", rule.Alert)
			}
			expectSections(t, filepath.Join(runbooks, rule.Alert+".md"), rule.Alert)
		}
	}
	files, err := fs.Glob(os.DirFS(runbooks), "*")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sorted(explained), files); diff != "" {
		t.Errorf("docs/runbooks (-alerts +files):\n%s", diff)
	}
}

// TestRulesAskForWhatThereIs: every metric of ours in a rule, and every recording rule, is on the page that the
// programs' own tests hold to what they export; and the page names no other recording rule.
func TestRulesAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	told, err := docs.Metrics("A node", "The controller", "A node and the controller", "The operator")
	if err != nil {
		t.Fatal(err)
	}
	var recorded, want []string
	for name, m := range told {
		if m.Type == docs.RecordingRule {
			want = append(want, name)
		}
	}
	ours, asked := regexp.MustCompile(`(?:cluster:)?\b(?:kubevirt_)?hpp_[a-z_]+(?::sum)?`), 0
	for of := range ruleNames() {
		for _, group := range ruleSpec(t, of).Groups {
			for _, rule := range group.Rules {
				if rule.Record != "" {
					recorded = append(recorded, rule.Record)
				}
				for _, name := range ours.FindAllString(rule.Expr.StrVal, -1) {
					asked++
					if _, ok := told[name]; !ok {
						t.Errorf("%s%s asks for %s, which is not in docs/reference/metrics.md", rule.Alert, rule.Record,
							name)
					}
				}
			}
		}
	}
	if diff := cmp.Diff(sorted(want), sorted(recorded)); diff != "" || asked < 15 {
		t.Errorf("recording rules (-docs +chart), %d metrics asked for:\n%s", asked, diff)
	}
}

func expectSections(t *testing.T, file, alert string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	for _, heading := range []string{"# " + alert, "## Meaning", "## Impact", "## Diagnosis", "## Mitigation"} {
		if !strings.Contains("\n"+string(data), "\n"+heading+"\n") {
			t.Errorf("%s has no heading %q", file, heading)
		}
	}
}

// TestAlertsMayBeLeftOut: one alert of each rule, and no other.
func TestAlertsMayBeLeftOut(t *testing.T) {
	for of, left := range map[string]string{"driver": "HostpathTrashStuck", "operator": "HPPNotReady"} {
		values := monitored(of, "prometheusRule")
		values.Set["monitoring.prometheusRule.disabled"] = "{" + left + "}"
		objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, values))
		var want, got []string
		for _, rule := range alertsOf(ruleSpec(t, of)) {
			if rule.Alert != left {
				want = append(want, rule.Alert)
			}
		}
		for _, rule := range alertsOf(helmcli.Find[*monitoringv1.PrometheusRule](t, objects, ruleNames()[of]).Spec) {
			got = append(got, rule.Alert)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
			t.Errorf("alerts of %s without %s (-want +got):\n%s", of, left, diff)
		}
	}
}

func TestRunbooksMayBeElsewhere(t *testing.T) {
	t.Parallel()
	for of, name := range ruleNames() {
		values := monitored(of, "prometheusRule")
		values.Set["monitoring.prometheusRule.runbookURLTemplate"] = "https://runbooks.example.com/%s?v=1"
		objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
		for _, rule := range alertsOf(helmcli.Find[*monitoringv1.PrometheusRule](t, objects, name).Spec) {
			want := "https://runbooks.example.com/" + rule.Alert + "?v=1"
			if got := rule.Annotations["runbook_url"]; got != want {
				t.Errorf("%s: runbook %q, want %q", rule.Alert, got, want)
			}
		}
	}
}

// TestMonitoringIsTheOwners: the driver's objects come with the driver, which the operator renders itself,
// the operator's with the operator.
func TestMonitoringIsTheOwners(t *testing.T) {
	t.Parallel()
	for of, name := range ruleNames() {
		for what, kind := range map[string]string{
			"prometheusRule": "PrometheusRule", "podMonitor": "PodMonitor", "serviceMonitor": "ServiceMonitor",
		} {
			var got []string
			for _, id := range helmcli.Ids(helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, monitored(of, what)))) {
				if strings.HasPrefix(id, kind+" ") {
					got = append(got, id)
				}
			}
			want := []string{kind + " storage/" + name}
			if of == "driver" && what != "prometheusRule" {
				want = append(want, kind+" storage/"+controller)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s of the %s (-want +got):\n%s", what, of, diff)
			}
		}
	}
}

// endpoint is what is scraped: of which port, how, and what its certificate is checked against.
type endpoint struct{ Port, Scheme, Server, CA string }

func describe(port string, scheme *monitoringv1.Scheme, tls *monitoringv1.SafeTLSConfig) endpoint {
	e := endpoint{Port: port}
	if scheme != nil {
		e.Scheme = string(*scheme)
	}
	if tls == nil {
		return e
	}
	if tls.ServerName != nil {
		e.Server = *tls.ServerName
	}
	if secret := tls.CA.Secret; secret != nil {
		e.CA = "Secret " + secret.Name + " " + secret.Key
	}
	if config := tls.CA.ConfigMap; config != nil {
		e.CA = "ConfigMap " + config.Name + " " + config.Key
	}
	return e
}

// endpoints are those of the monitor of that name, of either kind.
func endpoints(t *testing.T, values helmcli.Values, name string) []endpoint {
	t.Helper()
	var all []endpoint
	for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values)) {
		if object.GetName() != name {
			continue
		}
		switch monitor := object.(type) {
		case *monitoringv1.PodMonitor:
			for _, e := range monitor.Spec.PodMetricsEndpoints {
				all = append(all, describe(*e.Port, e.Scheme, e.TLSConfig))
			}
		case *monitoringv1.ServiceMonitor:
			for _, e := range monitor.Spec.Endpoints {
				var tls *monitoringv1.SafeTLSConfig
				if e.TLSConfig != nil {
					tls = &e.TLSConfig.SafeTLSConfig
				}
				all = append(all, describe(e.Port, e.Scheme, tls))
			}
		}
	}
	return all
}

func TestMonitorsScrapeWhatIsServed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"podMonitor", "serviceMonitor"} {
		for name, test := range map[string]struct {
			of   string
			set  map[string]string
			want []endpoint
		}{
			"driver": {"driver", nil, []endpoint{{Port: "http"}}},
			"driver over TLS": {"driver", map[string]string{
				"driver.metricsTLS.enabled": "true", "driver.metricsTLS.secretName": "mine",
			}, []endpoint{{
				"metrics", "https", "hpp-hostpath-provisioner-csi-metrics.storage.svc",
				"Secret mine ca.crt",
			}}},
			"controller": {"controller", nil, []endpoint{{Port: "http"}, {Port: "provisioner"}, {Port: "resizer"}}},
			"controller with snapshots": {"controller", set("snapshots", "true"), []endpoint{
				{Port: "http"}, {Port: "provisioner"}, {Port: "resizer"}, {Port: "snapshotter"},
			}},
			"controller over TLS, and no sidecar": {"controller", map[string]string{
				"driver.metricsTLS.enabled": "true", "driver.metricsTLS.secretName": "mine",
				"sidecars.provisioner.httpPort": "0", "sidecars.resizer.httpPort": "0",
			}, []endpoint{{
				"metrics", "https", "hpp-hostpath-provisioner-csi-metrics.storage.svc",
				"Secret mine ca.crt",
			}}},
			"self-managed": {"operator", map[string]string{"operator.webhook.certificates": "self-managed"}, []endpoint{
				{
					"metrics", "https", "hpp-hostpath-provisioner-operator.storage.svc",
					"Secret hpp-hostpath-provisioner-operator-tls ca.crt",
				},
			}},
			"cert-manager": {"operator", map[string]string{"operator.webhook.certificates": "cert-manager"}, []endpoint{
				{
					"metrics", "https", "hpp-hostpath-provisioner-operator.storage.svc",
					"Secret hpp-hostpath-provisioner-operator-certificate ca.crt",
				},
			}},
			"existing secret": {"operator", map[string]string{
				"operator.webhook.certificates": "existingSecret", "operator.webhook.existingSecret": "mine",
			}, []endpoint{{"metrics", "https", "hpp-hostpath-provisioner-operator.storage.svc", "Secret mine ca.crt"}}},
			"openshift": {"operator", map[string]string{"operator.webhook.certificates": "openshift"}, []endpoint{
				{
					"metrics", "https", "hpp-hostpath-provisioner-operator.storage.svc",
					"ConfigMap openshift-service-ca.crt service-ca.crt",
				},
			}},
		} {
			values := monitored(test.of, kind)
			maps.Copy(values.Set, test.set)
			component := map[string]string{"driver": "csi", "controller": "controller", "operator": "operator"}[test.of]
			if diff := cmp.Diff(test.want,
				endpoints(t, values, "hpp-hostpath-provisioner-"+component)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", kind, name, diff)
			}
			expectPorts(t, values, test.want)
		}
	}
}

// expectPorts: what is scraped are ports that the pods have, and where there is a
// ServiceMonitor, the Service that it selects.
func expectPorts(t *testing.T, values helmcli.Values, scraped []endpoint) {
	t.Helper()
	inPods, inService, services := map[string]bool{}, map[string]bool{}, false
	for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values)) {
		var pod corev1.PodSpec
		switch typed := object.(type) {
		case *appsv1.DaemonSet:
			pod = typed.Spec.Template.Spec
		case *appsv1.Deployment:
			pod = typed.Spec.Template.Spec
		case *corev1.Service:
			for _, port := range typed.Spec.Ports {
				inService[port.Name] = true
			}
		case *monitoringv1.ServiceMonitor:
			services = true
		}
		for _, c := range pod.Containers {
			for _, port := range c.Ports {
				inPods[port.Name] = true
			}
		}
	}
	for _, e := range scraped {
		if !inPods[e.Port] || (services && !inService[e.Port]) {
			t.Errorf("port %q is scraped; the pods have it: %v, a Service: %v", e.Port, inPods[e.Port],
				inService[e.Port])
		}
	}
}

func TestMetricsTLSReachesThePods(t *testing.T) {
	t.Parallel()
	const root, group = 0o400, 0o440 // whom the certificate is for
	nodes := daemonSet(t, renderings()["everything"]).Spec.Template.Spec
	expectMetricsTLS(t, nodes, "driver", root)
	expectMetricsTLS(t, controllerPod(t, renderings()["everything"], "storage-driver-controller").Spec, "controller",
		group)
	driver := container(t, nodes, "driver")
	fields := map[string]string{}
	for _, env := range driver.Env {
		if env.ValueFrom != nil {
			fields[env.Name] = env.ValueFrom.FieldRef.FieldPath
		}
	}
	if diff := cmp.Diff(map[string]string{
		"NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
	}, fields); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["everything"]))
	scc := helmcli.Find[*securityv1.SecurityContextConstraints](t, objects, "storage-driver-csi")
	if !slices.Contains(scc.Volumes, securityv1.FSTypeSecret) {
		t.Errorf("the pods have a Secret, and their constraints allow %v", scc.Volumes)
	}
}

// expectMetricsTLS: a pod's container of that name has the flags, the port and the certificate of
// testdata/everything.yaml.
func expectMetricsTLS(t *testing.T, spec corev1.PodSpec, name string, mode int32) {
	t.Helper()
	c := container(t, spec, name)
	for _, want := range []string{
		"--metrics-tls-address=:19896", "--metrics-tls-cert-dir=/etc/hostpath-provisioner-metrics",
		"--metrics-tls-min-version=VersionTLS13",
		"--metrics-tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
	} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("the arguments of %s lack %s: %v", name, want, c.Args)
		}
	}
	if want := (corev1.ContainerPort{
		Name: "metrics", ContainerPort: 19896, Protocol: corev1.ProtocolTCP,
	}); !slices.Contains(c.Ports, want) {
		t.Errorf("the ports of %s are %v, want %v among them", name, c.Ports, want)
	}
	volume := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil && v.Secret.SecretName == "driver-certificate"
	})
	if volume < 0 || *spec.Volumes[volume].Secret.DefaultMode != mode {
		t.Fatalf("no volume of the Secret with mode %o: %v", mode, spec.Volumes)
	}
	want := corev1.VolumeMount{
		Name: spec.Volumes[volume].Name, MountPath: "/etc/hostpath-provisioner-metrics", ReadOnly: true,
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(m, want) }) {
		t.Errorf("mounts are %v, want %v among them", c.VolumeMounts, want)
	}
}

// TestNetworkPolicyOpensWhatIsServed: metrics to those who may scrape, probes to the kubelet,
// which no selector can name.
func TestNetworkPolicyOpensWhatIsServed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set            map[string]string
		scrape, probes []int32
	}{
		"plain": {nil, []int32{9898}, nil},
		"TLS": {map[string]string{
			"driver.metricsTLS.enabled": "true", "driver.metricsTLS.secretName": "mine",
		}, []int32{9897}, []int32{9898}},
		"all": {map[string]string{
			"driver.metricsTLS.enabled": "true", "driver.metricsTLS.secretName": "mine",
			"sidecars.livenessProbe.enabled": "true",
		}, []int32{9897}, []int32{9898, 9899}},
	} {
		values := helmcli.Values{
			Set:  map[string]string{"networkPolicies.enabled": "true"},
			JSON: map[string]string{"networkPolicies.metricsFrom": `[{"podSelector":{}}]`},
		}
		maps.Copy(values.Set, test.set)
		policy := helmcli.Find[*networkingv1.NetworkPolicy](t,
			helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values)), driverMonitor)
		scrape, probes := openPorts(policy)
		if diff := cmp.Diff([][]int32{test.scrape, test.probes}, [][]int32{scrape, probes}); diff != "" {
			t.Errorf("%s: ports to scrape, and to probe (-want +got):\n%s", name, diff)
		}
	}
}

// openPorts are those of a NetworkPolicy that some peers may reach, and those that all may.
func openPorts(policy *networkingv1.NetworkPolicy) (scrape, probes []int32) {
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if len(rule.From) > 0 {
				scrape = append(scrape, port.Port.IntVal)
			} else {
				probes = append(probes, port.Port.IntVal)
			}
		}
	}
	return scrape, probes
}

func TestImpossibleMetricsAreRefused(t *testing.T) {
	t.Parallel()
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"TLS without a certificate": {set: set("driver.metricsTLS.enabled", "true"), want: []string{
				`driver.metricsTLS.enabled: driver.metricsTLS.secretName is empty; name a Secret of the namespace ` +
					`with tls.crt and tls.key.`,
			}},
			"one port twice": {set: map[string]string{
				"driver.metricsTLS.enabled": "true", "driver.metricsTLS.secretName": "mine",
				"driver.metricsTLS.port": "9898",
			}, want: []string{`driver.httpPort and driver.metricsTLS.port are both 9898; all containers of a pod ` +
				`share its ports.`}},
			"an unknown version": {
				set: set("driver.metricsTLS.minVersion", "TLS1.2"), want: []string{"/driver/metricsTLS/minVersion"},
			},
		})
	})
}
