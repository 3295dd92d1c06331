package render_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/charts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/render"
)

const namespace, driver = "hpp", "hpp-hostpath-provisioner-csi"

func renderer(t *testing.T) *render.Renderer {
	t.Helper()
	chart, err := charts.HostpathProvisioner()
	if err != nil {
		t.Fatal(err)
	}
	r, err := render.New(chart)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// input is a rendering on a cluster that has every API.
func input(base string, spec v1beta1.HostPathProvisionerSpec) render.Input {
	in := render.Input{
		Base: []byte(
			base), Resource: &v1beta1.HostPathProvisioner{Spec: spec}, ReleaseName: "hpp", Namespace: namespace,
		KubeVersion:   "v1.37.1",
		MinTLSVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
	}
	for _, kind := range render.Kinds() {
		in.APIVersions = append(in.APIVersions, render.APIVersion(kind))
	}
	return in
}

func without(in render.Input, group string) render.Input {
	in.APIVersions = slices.DeleteFunc(in.APIVersions,
		func(version string) bool { return strings.HasPrefix(version, group) })
	return in
}

func mustRender(t *testing.T, in render.Input) render.Result {
	t.Helper()
	result, err := renderer(t).Render(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func object[T any](t *testing.T, result render.Result, kind, name string) T {
	t.Helper()
	var into T
	for _, o := range result.Objects {
		if o.GetKind() == kind && o.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &into,
				true); err != nil {
				t.Fatal(err)
			}
			return into
		}
	}
	t.Fatalf("no %s %s among %v", kind, name, listed(result))
	return into
}

func listed(result render.Result) []string {
	var found []string
	for _, o := range result.Objects {
		found = append(found, o.GetKind()+"/"+o.GetName())
	}
	return found
}

// served is the configuration that the driver gets.
func served(t *testing.T, result render.Result) []poolspec.Pool {
	t.Helper()
	config, err := poolspec.Parse([]byte(object[corev1.ConfigMap](t, result, "ConfigMap", driver).Data["config.yaml"]))
	if err != nil {
		t.Fatalf("the driver would refuse its configuration: %v", err)
	}
	return config.StoragePools
}

// resource reads a HostPathProvisioner as the API server would give it.
func resource(t *testing.T, text string) v1beta1.HostPathProvisionerSpec {
	t.Helper()
	var read v1beta1.HostPathProvisioner
	if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	return read.Spec
}

// The three resources of kubevirt's documentation, word for word.
const (
	plainResource = `apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata:
  name: hostpath-provisioner
spec:
  imagePullPolicy: Always
  storagePools:
    - name: "local"
      path: "/var/hpvolumes"
  workload:
    nodeSelector:
      kubernetes.io/os: linux
`
	claimResource = `apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata:
  name: hostpath-provisioner
spec:
  imagePullPolicy: Always
  storagePools:
    - name: "local"
      pvcTemplate:
        accessModes:
          - ReadWriteOnce
        resources:
          requests:
            storage: 5Gi
      path: "/var/hpvolumes"
  workload:
    nodeSelector:
      kubernetes.io/os: linux
`
	legacyResource = `apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata:
  name: hostpath-provisioner
spec:
  imagePullPolicy: IfNotPresent
  pathConfig:
    path: "/var/hpvolumes" #The path of the directory on the node
    useNamingPrefix: false #Use the name of the PVC bound to the created PV as part of the directory name.
`
)

func TestPlainResource(t *testing.T) {
	t.Parallel()
	result := mustRender(t, input("{}", resource(t, plainResource)))
	want := []poolspec.Pool{{Name: "local", Path: "/var/hpvolumes", Scope: "node", Quota: "auto"}}
	if diff := cmp.Diff(want, served(t, result)); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	set := object[appsv1.DaemonSet](t, result, "DaemonSet", driver)
	deployment := object[appsv1.Deployment](t, result, "Deployment", "hpp-hostpath-provisioner-controller")
	for _, container := range slices.Concat(set.Spec.Template.Spec.Containers,
		deployment.Spec.Template.Spec.Containers) {
		if container.ImagePullPolicy != corev1.PullAlways {
			t.Errorf("container %s pulls %s", container.Name, container.ImagePullPolicy)
		}
	}
	if len(result.NotServed)+len(result.Violations) > 0 || result.Pools[0] != (pools.Outcome{Name: "local"}) {
		t.Errorf("notes about what is all served: %+v", result)
	}
	for _, o := range result.Objects {
		// The chart's own first class is for installations without an operator; webhooks, hooks and tests are the
		// release's.
		if slices.Contains(
			[]string{"StorageClass", "Pod", "Job", "ValidatingWebhookConfiguration", "CustomResourceDefinition"},
			o.GetKind()) {
			t.Errorf("%s %s was rendered", o.GetKind(), o.GetName())
		}
	}
}

func TestLegacyResource(t *testing.T) {
	t.Parallel()
	result := mustRender(t, input("{}", resource(t, legacyResource)))
	want := []poolspec.Pool{{Name: "legacy", Path: "/var/hpvolumes", Scope: "node", Quota: "auto"}}
	if diff := cmp.Diff(want, served(t, result)); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if !slices.Contains(listed(result), "DaemonSet/hpp-hostpath-provisioner-legacy") {
		t.Errorf("no legacy provisioner among %v", listed(result))
	}
	if slices.ContainsFunc(listed(result), func(name string) bool { return strings.HasPrefix(name, "StorageClass/") }) {
		t.Errorf("a class that the user makes himself: %v", listed(result))
	}
	spec := resource(t, legacyResource)
	spec.PathConfig.UseNamingPrefix, spec.PathConfig.Path = true, "/srv/volumes/"
	prefixed := manifest(t, mustRender(t, input("{}", spec)))
	for _, want := range []string{"/srv/volumes", "USE_NAMING_PREFIX"} {
		if !strings.Contains(prefixed, want) {
			t.Errorf("no %q in what is rendered", want)
		}
	}
}

// TestLegacyOfAWrongPath is not rendered: the webhook may not have seen the resource.
func TestLegacyOfAWrongPath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"hpvolumes", "/etc/hpvolumes", "/srv/x\n        - name: y", "/var/lib/kubelet",
		"/srv/csi/pvc-145c785e-ab83-11e7-9432-4201ac1fd019/d",
	} {
		spec := resource(t, legacyResource)
		spec.PathConfig.Path = path
		result := mustRender(t, input("{}", spec))
		if slices.Contains(listed(result), "DaemonSet/hpp-hostpath-provisioner-legacy") {
			t.Errorf("%q: it is rendered", path)
		}
		const want = "spec.pathConfig.path: the legacy provisioner does not run until the path is one that " +
			"a pool can have"
		if len(result.Violations) < 2 || result.Violations[len(result.Violations)-1] != want {
			t.Errorf("%q: violations %q, want what is wrong with it, and %q", path, result.Violations, want)
		}
	}
}

func manifest(t *testing.T, result render.Result) string {
	t.Helper()
	data, err := json.MarshalIndent(result.Objects, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every option of a pool reaches the driver's configuration, with its numbers as they were written.
func TestEveryPoolOption(t *testing.T) {
	t.Parallel()
	reserve, yes, factor := intstr.FromString("5%"), true, 1.5
	spec := v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{{
		Name: "a", Path: "/a", Scope: "node", NodeSelector: map[string]string{"disk": "fast"}, RequireMount: &yes,
		Quota: "required", Reserve: &reserve,
		Overcommit: &factor, MaxVolumes: 1000000, Inline: true, SharedAccess: true,
		Trash: &v1beta1.Trash{Retention: "24h", PurgeWhenFull: true},
	}}}
	bytes := intstr.FromInt32(1073741824)
	spec.StoragePools = append(spec.StoragePools, v1beta1.StoragePool{Name: "b", Path: "/b", Reserve: &bytes})
	result := mustRender(t, input("{}", spec))
	want := []poolspec.Pool{
		{
			Name: "a", Path: "/a", Scope: "node", NodeSelector: map[string]string{"disk": "fast"}, RequireMount: &yes,
			Quota: "required",
			Reserve: poolspec.Reserve{
				Percent: 5,
			}, Overcommit: 1.5, MaxVolumes: 1000000, Inline: true, SharedAccess: true,
			Trash: poolspec.Trash{Retention: poolspec.Duration(24 * 3600e9), PurgeWhenFull: true},
		},
		{Name: "b", Path: "/b", Scope: "node", Quota: "auto", Reserve: poolspec.Reserve{Bytes: 1 << 30}},
	}
	for _, options := range []reflect.Value{reflect.ValueOf(want[0]), reflect.ValueOf(want[0].Trash)} {
		for option, value := range options.Fields() {
			if value.IsZero() && option.Name != "PVCTemplate" { // claims_test.go has that
				t.Errorf("the test lacks %s.%s", options.Type(), option.Name)
			}
		}
	}
	if diff := cmp.Diff(want, served(t, result)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := object[corev1.ConfigMap](t, result, "ConfigMap", driver).Data["config.yaml"]; !strings.Contains(text,
		"maxVolumes: 1000000") ||
		!strings.Contains(text, "reserve: 1Gi") {
		t.Errorf("numbers are written otherwise:\n%s", text)
	}
}

// Placement is the resource's word for word: neither the chart's default nor the base is mixed in.
func TestPlacement(t *testing.T) {
	t.Parallel()
	spec := resource(t, legacyResource)
	spec.Workload = v1beta1.Workload{
		NodeSelector: map[string]string{"disk": "fast"},
		Tolerations: []corev1.Toleration{
			{Key: "a", Operator: corev1.TolerationOpEqual, Value: "b", Effect: corev1.TaintEffectNoSchedule},
		},
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
					Weight: 10,
					Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key:      "zone",
						Operator: corev1.NodeSelectorOpExists,
					}}},
				}},
			},
		},
	}
	base := "driver: {nodeSelector: {from: base}, tolerations: [{operator: Exists}]}"
	result := mustRender(t, input(base, spec))
	for _, name := range []string{driver, "hpp-hostpath-provisioner-legacy"} {
		pod := object[appsv1.DaemonSet](t, result, "DaemonSet", name).Spec.Template.Spec
		got := v1beta1.Workload{NodeSelector: pod.NodeSelector, Tolerations: pod.Tolerations, Affinity: pod.Affinity}
		if diff := cmp.Diff(spec.Workload, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	spec.Workload = v1beta1.Workload{}
	pod := object[appsv1.DaemonSet](t, mustRender(t, input(base, spec)), "DaemonSet", driver).Spec.Template.Spec
	if pod.NodeSelector["from"] != "base" || len(pod.Tolerations) != 1 ||
		pod.Tolerations[0].Operator != corev1.TolerationOpExists {
		t.Errorf("without a workload the base counts, got %v and %v", pod.NodeSelector, pod.Tolerations)
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	for _, o := range mustRender(t, input("{}", resource(t, legacyResource))).Objects {
		labels := []map[string]string{o.GetLabels()}
		if template, found, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata",
			"labels"); found {
			labels = append(labels, template)
		}
		for _, own := range labels {
			if own[names.OwnedBy] != names.CustomResource || own["app.kubernetes.io/managed-by"] != render.ManagedBy {
				t.Errorf("%s %s has the labels %v", o.GetKind(), o.GetName(), own)
			}
		}
		if selector, found, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels"); found &&
			selector[names.OwnedBy] != "" {
			t.Errorf("%s %s: an immutable selector holds the operator's label", o.GetKind(), o.GetName())
		}
	}
}

func TestTLSPolicy(t *testing.T) {
	t.Parallel()
	const on = "driver: {metricsTLS: {enabled: true, secretName: s"
	for name, c := range map[string]struct{ base, want, not string }{
		"the policy's":        {on + "}}", "VersionTLS12", ""},
		"the policy's suites": {on + "}}", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", ""},
		"the base's own": {
			on + ", minVersion: VersionTLS13}}", "VersionTLS13",
			"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		},
		"not without the TLS": {"{}", driver, "VersionTLS12"},
		"the base's own suites": {
			on + ", cipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]}}",
			"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "AES_128",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := manifest(t, mustRender(t, input(c.base, resource(t, plainResource))))
			if !strings.Contains(text, c.want) || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("want %q and not %q in\n%s", c.want, c.not, text)
			}
		})
	}
}

func TestClassesOfTheBase(t *testing.T) {
	t.Parallel()
	result := mustRender(
		t,
		input(
			"storageClasses: [{name: a, storagePool: local}, {name: b, storagePool: fast}, {name: c, parameters: "+
				"{storagePool: slow}}, {name: d}]",
			resource(t, plainResource)),
	)
	var classes []string
	for _, name := range listed(result) {
		if class, found := strings.CutPrefix(name, "StorageClass/"); found {
			classes = append(classes, class)
		}
	}
	if diff := cmp.Diff([]string{"a", "d"}, classes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := []string{
		`storageClasses "b" of the base values is left out: the resource has no pool "fast" that is served`,
		`storageClasses "c" of the base values is left out: the resource has no pool "slow" that is served`,
	}
	if diff := cmp.Diff(want, result.NotServed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	spec := v1beta1.HostPathProvisionerSpec{
		StoragePools: []v1beta1.StoragePool{{Name: "a", Path: "/a"}, {Name: "b", Path: "/b"}},
	}
	if notes := mustRender(t, input("storageClasses: [{name: d}]", spec)).NotServed; len(notes) != 1 ||
		!strings.Contains(notes[0], "it names no pool, and the resource has 2") {
		t.Errorf("not served: %q", notes)
	}
}

func TestNotServed(t *testing.T) {
	t.Parallel()
	spec := v1beta1.HostPathProvisionerSpec{
		FeatureGates: []string{"Snapshotting", "Cloning"},
		StoragePools: []v1beta1.StoragePool{
			{Name: "b", Path: "//b/", SnapshotProvider: "reflink", OverlayClassName: "mine"},
		},
	}
	result := mustRender(t,
		without(input("monitoring: {serviceMonitor: {enabled: true}}\nopenshift: true", spec), "monitoring.coreos.com"))
	want := []string{
		`spec.storagePools[0].overlayClassName: "mine" is ignored, and no class of this name is made: it needs a ` +
			`pvcTemplate with ReadWriteMany`,
		`spec.featureGates[1]: "Cloning" is not known and ignored; the only one is Snapshotting`,
		`ServiceMonitor "hpp-hostpath-provisioner-csi" is left out: this cluster does not have the API ` +
			`monitoring.coreos.com/v1; install what brings it, or turn the value off`,
		`ServiceMonitor "hpp-hostpath-provisioner-controller" is left out: this cluster does not have the API ` +
			`monitoring.coreos.com/v1; install what brings it, or turn the value off`,
	}
	if diff := cmp.Diff(want, result.NotServed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if pools := served(t, result); len(pools) != 1 || pools[0].Name != "b" || pools[0].Path != "/b" {
		t.Errorf("served are %+v", pools)
	}
	if len(result.Violations) > 0 || slices.Contains(listed(result), "StorageClass/mine") {
		t.Errorf("violations %q, objects %v", result.Violations, listed(result))
	}
}

// What kubevirt's webhook let pass: each is named, and the rest runs.
func TestOldViolations(t *testing.T) {
	t.Parallel()
	bad, odd := intstr.FromString("much"), intstr.FromString("1e9")
	spec := v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{
		{Name: "good", Path: "/data/good"},
		{Name: "dots", Path: "/data/./dots"},
		{Name: "Capital", Path: "/data/capital"},
		{Name: "nested", Path: "/data/good/nested"},
		{Name: "system", Path: "/etc/pool"},
		{Name: "relative", Path: "data"},
		{Name: "reserve", Path: "/data/reserve", Reserve: &bad},
		{Name: "state", Path: "/var/lib/hostpath-provisioner-state/pool"},
		{Name: "good", Path: "/data/twin"},
		{Name: "pattern", Path: "/data/nvme*"},
		{Name: "ever", Path: "/data/ever", Trash: &v1beta1.Trash{Retention: "1000000h"}},
		{Name: "last", Path: "/data/last", Reserve: &odd, Trash: &v1beta1.Trash{Retention: "0.1ms"}},
	}}
	result := mustRender(t, input("{}", spec))
	var running []string
	for _, pool := range served(t, result) {
		running = append(running, pool.Name+" "+pool.Path)
	}
	if diff := cmp.Diff([]string{"good /data/good", "dots /data/dots", "last /data/last"}, running); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	all := strings.Join(result.Violations, "\n")
	for i := 1; i <= 10; i++ {
		pool := result.Pools[i]
		if field := fmt.Sprintf("spec.storagePools[%d].", i); !strings.Contains(all, field) {
			t.Errorf("no violation names %s:\n%s", field, all)
		}
		if (pool.Broken == "") != (pool.Name == "dots") {
			t.Errorf("pool %s: broken %q", pool.Name, pool.Broken)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		base    string
		version string
		want    []string
	}{
		"no YAML": {"driver:\n\tx: y", "v1.37.1", []string{"values.yaml of the base ConfigMap) are no YAML"}},
		"a wrong value": {
			"driver: {logLevel: loud}", "v1.37.1",
			[]string{"/driver/logLevel", "'debug', 'info', 'warn', 'error'"},
		},
		"an unknown value": {"drivers: {}", "v1.37.1", []string{"drivers"}},
		"a sentence": {
			"monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}", "v1.37.1",
			[]string{
				"the chart refuses the values: these values do not work:",
				"would scrape every pod twice",
			},
		},
		"an old cluster":    {"{}", "v1.20.0", []string{"wants Kubernetes >=1.30.0-0, and the cluster is v1.20.0"}},
		"a strange cluster": {"{}", "latest", []string{`the API server's version "latest"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(c.base, resource(t, plainResource))
			in.KubeVersion = c.version
			result, err := renderer(t).Render(t.Context(), in)
			if err == nil {
				t.Fatalf("rendered %v", listed(result))
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in the error: %v", want, err)
				}
			}
			if len(result.Objects) > 0 {
				t.Errorf("objects beside the error: %v", listed(result))
			}
		})
	}
}

func TestOpenShift(t *testing.T) {
	t.Parallel()
	with := listed(mustRender(t, input("{}", resource(t, plainResource))))
	plain := listed(mustRender(t, without(input("{}", resource(t, plainResource)), "security.openshift.io")))
	const constraints = "SecurityContextConstraints/" + driver
	if !slices.Contains(with, constraints) || slices.Contains(plain, constraints) {
		t.Errorf("with the API %v, without it %v", with, plain)
	}
}

// Everything that the values can turn on is of a kind that is watched and pruned.
func TestEverythingIsKnown(t *testing.T) {
	t.Parallel()
	const base = `
monitoring: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}
networkPolicies: {enabled: true}
openshift: true
legacyProvisioner: {enabled: true, path: /legacy, storageClasses: [{name: l}]}
storageClasses: [{name: a}]
snapshots: true
sidecars: {nodeDriverRegistrar: {enabled: true}, livenessProbe: {enabled: true}}
driver: {metricsTLS: {enabled: true, secretName: s}}
controller: {replicas: 2, certificates: cert-manager}
extraObjects: [{apiVersion: v1, kind: Secret, metadata: {name: not-ours}}]
`
	result := mustRender(t, input(base, resource(t, plainResource)))
	kinds := map[string]bool{}
	for _, o := range result.Objects {
		kinds[o.GetKind()] = true
	}
	for _, kind := range render.Kinds() {
		if !kinds[kind.Kind] && kind.Kind != "PodMonitor" {
			t.Errorf("%s is watched, and nothing makes one", kind.Kind)
		}
	}
	mustRender(t, input("monitoring: {podMonitor: {enabled: true}}", resource(t, plainResource)))
}

// The same input gives the same bytes: an operator that did otherwise would never come to rest.
func TestSameTwice(t *testing.T) {
	t.Parallel()
	r, in := renderer(t), input("commonLabels: {a: b, c: d, e: f}\nstorageClasses: [{name: a}]",
		resource(t, legacyResource))
	first, err := r.Render(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := r.Render(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(manifest(t, first), manifest(t, again)); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	}
}

// The version is the chart's, and the one that pods are labelled with.
func TestVersion(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../../charts/hostpath-provisioner/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^appVersion: "(.*)"$`).FindSubmatch(data)
	if r := renderer(t); want == nil || r.Version() != string(want[1]) {
		t.Errorf("version %q, Chart.yaml says %q", r.Version(), want)
	}
}

func BenchmarkRender(b *testing.B) {
	chart, err := charts.HostpathProvisioner()
	if err != nil {
		b.Fatal(err)
	}
	r, err := render.New(chart)
	if err != nil {
		b.Fatal(err)
	}
	in := input("{}", v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{{Name: "a", Path: "/a"}}})
	for b.Loop() {
		if _, err := r.Render(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	memory, in := render.Remember(renderer(t)), input("{}", resource(t, plainResource))
	first, err := memory.Render(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.Resource = in.Resource.DeepCopy()
	in.Resource.ResourceVersion, in.Resource.Status.ObservedVersion = "7", "1"
	if again, err := memory.Render(t.Context(), in); err != nil || again.Objects[0] != first.Objects[0] {
		t.Errorf("it was rendered again for a status (%v)", err)
	}
	for name, change := range map[string]func(){
		"spec": func() { in.Resource.Spec.StoragePools[0].Path = "/other" },
		"base": func() { in.Base = []byte("commonLabels: {a: b}") },
		"APIs": func() { in = without(in, "security.openshift.io") },
		"TLS":  func() { in.MinTLSVersion = "VersionTLS13" },
	} {
		before, _ := memory.Render(t.Context(), in)
		change()
		if after, err := memory.Render(t.Context(), in); err != nil || after.Objects[0] == before.Objects[0] {
			t.Errorf("%s has changed, and it was not rendered again (%v)", name, err)
		}
	}
	in.Base = []byte("x: y")
	for range 2 {
		if _, err := memory.Render(t.Context(), in); err == nil {
			t.Error("an error was forgotten")
		}
	}
}
