// Package chart tests the Helm chart from outside: what it renders, what it refuses, and what it says.
package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// renderings are the sets of values that stand for all others.
func renderings() map[string]helmcli.Values {
	ci := filepath.Join("..", "..", "charts", "hostpath-provisioner", "ci")
	all := map[string]helmcli.Values{
		"default":         {},
		"two pools":       {Files: []string{filepath.Join(ci, "two-pools-values.yaml")}},
		"options":         {Files: []string{filepath.Join(ci, "options-values.yaml")}},
		"rights":          {Files: []string{filepath.Join(ci, "rights-values.yaml")}},
		"provisioners":    {Files: []string{filepath.Join(ci, "provisioners-values.yaml")}},
		"pods":            {Files: []string{"testdata/pods.yaml"}},
		"rest":            {Files: []string{"testdata/rest.yaml"}},
		"openshift":       {Files: []string{"testdata/openshift.yaml"}},
		"openshift, auto": {APIVersions: []string{"security.openshift.io/v1/SecurityContextConstraints"}},
		"everything":      {Files: []string{"testdata/everything.yaml"}},
		"service monitor": {Files: []string{"testdata/service-monitor.yaml"}},
		"kubelet dir":     {Files: []string{"testdata/kubelet-dir.yaml"}},
		"snapshots":       snapshots(),
		"no pools":        {JSON: map[string]string{"storagePools": "[]", "storageClasses": "[]"}},
		"dashboard":       {Set: map[string]string{"monitoring.dashboard.enabled": "true"}},
		"cert-manager":    {Set: map[string]string{"controller.certificates": "cert-manager"}},
		"existing secret": {Set: map[string]string{
			"controller.certificates": "existingSecret", "controller.existingSecret": "mine",
		}},
	}
	maps.Copy(all, operatorRenderings())
	maps.Copy(all, legacyRenderings())
	return all
}

// legacyRenderings are those with all values of one legacy provisioner.
func legacyRenderings() map[string]helmcli.Values {
	return map[string]helmcli.Values{
		"legacy":     {Files: []string{"testdata/legacy.yaml"}},
		"shared":     {Files: []string{"testdata/networkfs.yaml"}},
		"every node": {Files: []string{"testdata/everynode.yaml"}},
	}
}

// operatorRenderings are those with an operator, each with another source of the webhook's certificate.
func operatorRenderings() map[string]helmcli.Values {
	return map[string]helmcli.Values{
		"operator": {
			Files: []string{filepath.Join("..", "..", "charts", "hostpath-provisioner", "ci", "operator-values.yaml")},
		},
		"operator, everything": {Files: []string{"testdata/everything.yaml", "testdata/operator.yaml"}},
		"operator, pods":       {Files: []string{"testdata/pods.yaml"}, Set: set("operator.enabled", "true")},
		"operator, rest":       {Files: []string{"testdata/rest.yaml"}, Set: set("operator.enabled", "true")},
		"operator, openshift": {Files: []string{"testdata/openshift.yaml"}, Set: map[string]string{
			"operator.enabled": "true", "operator.webhook.certificates": "openshift",
		}},
		"operator, existing secret": {Set: map[string]string{
			"operator.enabled": "true", "operator.webhook.certificates": "existingSecret",
			"operator.webhook.existingSecret": "mine",
		}},
	}
}

// TestRenderingsAreStrictAndStable renders everything with each Helm's command and in process, as the other tests do:
// both must give the same text, and the two Helms the same objects, each of which decodes strictly into its type.
func TestRenderingsAreStrictAndStable(t *testing.T) {
	t.Parallel()
	byVersion := map[string]map[string]string{}
	helmcli.Each(t, func(t *testing.T, helm helmcli.Helm) {
		byVersion[helm.Version] = map[string]string{}
		for name, values := range renderings() {
			byVersion[helm.Version][name] = helm.MustTemplate(t, values)
		}
	})
	for name, values := range renderings() {
		var objects [][]client.Object
		for _, helm := range helmsdk.Versions() {
			text := byVersion[helm.Version][name]
			if diff := cmp.Diff(strings.TrimSpace(text), strings.TrimSpace(helm.MustTemplate(t, values))); diff != "" {
				t.Errorf("%s: Helm %s renders it otherwise the second time (-command +in process): %s", name,
					helm.Version, diff)
			}
			objects = append(objects, sortedByID(helmcli.Objects(t, text)))
		}
		if diff := cmp.Diff(objects[0], objects[1]); diff != "" {
			t.Errorf("%s: the two Helms render different objects (-3 +4): %s", name, diff)
		}
	}
}

// TestSDKsAreOfTheCommandsVersions: a newer command would be compared with what an older one did.
func TestSDKsAreOfTheCommandsVersions(t *testing.T) {
	t.Parallel()
	required, err := os.ReadFile(filepath.Join("..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{helmcli.Version3, helmcli.Version4} {
		major, _, _ := strings.Cut(version, ".")
		if want := "\thelm.sh/helm/" + major + " " + version + "\n"; !strings.Contains(string(required), want) {
			t.Errorf("tests/go.mod does not require%s", want)
		}
	}
}

// sortedByID: the order in which Helm installs kinds is not the same in both versions.
func sortedByID(objects []client.Object) []client.Object {
	return slices.SortedFunc(slices.Values(objects), func(a, b client.Object) int {
		return strings.Compare(helmcli.Ids([]client.Object{a})[0], helmcli.Ids([]client.Object{b})[0])
	})
}

// TestEveryObjectIsMarked: the common labels and annotations on all, the chart's own labels where a user tries to
// replace them, and metadata.namespace exactly where the kind has one.
func TestEveryObjectIsMarked(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	chart := helmcli.Chart(t)
	var objects []client.Object
	for _, name := range []string{"everything", "operator, everything"} {
		values := renderings()[name]
		values.JSON = map[string]string{"extraObjects": "[]"}
		objects = append(objects, helmcli.Objects(t, helm.MustTemplate(t, values))...)
	}
	want := map[string]string{
		"app.kubernetes.io/name": "hostpath-provisioner", "app.kubernetes.io/instance": helmcli.Release,
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": chart.AppVersion,
		"app.kubernetes.io/part-of": "hostpath-provisioner", "helm.sh/chart": "hostpath-provisioner-" + chart.Version,
		"team": "storage",
	}
	for i, object := range objects {
		id := helmcli.Ids(objects)[i]
		for key, value := range want {
			if got := object.GetLabels()[key]; got != value {
				t.Errorf("%s: label %s is %q, want %q", id, key, got, value)
			}
		}
		if got := object.GetAnnotations()["example.com/owner"]; got != "storage" {
			t.Errorf("%s: annotation example.com/owner is %q, want storage", id, got)
		}
		namespace := "kube-storage"
		if clusterScoped(object.GetObjectKind().GroupVersionKind().Kind) {
			namespace = ""
		}
		if got := object.GetNamespace(); got != namespace {
			t.Errorf("%s: namespace %q, want %q", id, got, namespace)
		}
	}
}

// clusterScoped tells which of the chart's kinds have no namespace.
func clusterScoped(kind string) bool {
	return slices.Contains([]string{
		"CSIDriver", "StorageClass", "VolumeSnapshotClass", "ClusterRole", "ClusterRoleBinding",
		"SecurityContextConstraints",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
	}, kind)
}

// TestDefaultNamespace: without an override all namespaced objects and subjects follow the release.
func TestDefaultNamespace(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	for _, values := range []helmcli.Values{{}, withOperator(helmcli.Values{}, nil)} {
		for line := range strings.SplitSeq(helm.MustTemplate(t, values), "\n") {
			if key, value, found := strings.Cut(strings.TrimSpace(line), "namespace: "); found && key == "" &&
				value != helmcli.Namespace {
				t.Errorf("%q, want namespace %s", line, helmcli.Namespace)
			}
		}
	}
}

// TestKubeletDirIsUsedEverywhere: distributions that move it have nothing at the usual place.
func TestKubeletDirIsUsedEverywhere(t *testing.T) {
	t.Parallel()
	out := helmsdk.Newest().MustTemplate(t, renderings()["kubelet dir"])
	for number, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "/var/lib/kubelet") {
			t.Errorf("line %d still says %q", number+1, strings.TrimSpace(line))
		}
	}
	if count := strings.Count(out, "/var/lib/k0s/kubelet"); count < 6 {
		t.Errorf("the kubelet's directory stands in %d places, want endpoint, flag, mount, registration and volumes",
			count)
	}
}

// TestNamesFitTheirLimit: a long release name is cut before the suffix, so that names stay valid and distinct.
func TestNamesFitTheirLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 53) // Helm's own limit for release names
	helm := helmsdk.Newest()
	for _, name := range []string{"everything", "operator, everything"} {
		values := renderings()[name]
		values.Set = map[string]string{"fullnameOverride": long + strings.Repeat("y", 20)}
		names := map[string]bool{}
		objects := helmcli.Objects(t, helm.MustTemplate(t, values))
		for i, object := range objects {
			id := helmcli.Ids(objects)[i]
			if len(object.GetName()) > 63 {
				t.Errorf("%s has %d characters", id, len(object.GetName()))
			}
			if names[id] {
				t.Errorf("%s is rendered twice", id)
			}
			names[id] = true
		}
	}
}

// TestObjectsOfEachRendering freezes what is created: an object that vanishes from a release is deleted on upgrade.
func TestObjectsOfEachRendering(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	base := []string{
		"CSIDriver /kubevirt.io.hostpath-provisioner",
		"ClusterRole /" + controller, "ClusterRoleBinding /" + controller, "Role storage/" + controller,
		"RoleBinding storage/" + controller, "Deployment storage/" + controller, "Service storage/" + controller,
		"ServiceAccount storage/" + controller, "ValidatingAdmissionPolicy /" + controller,
		"ValidatingAdmissionPolicyBinding /" + controller,
		"ClusterRole /hpp-hostpath-provisioner-csi-driver", "ClusterRoleBinding /hpp-hostpath-provisioner-csi-driver",
		"Role storage/hpp-hostpath-provisioner-csi-driver", "RoleBinding storage/hpp-hostpath-provisioner-csi-driver",
		"ConfigMap storage/hpp-hostpath-provisioner-csi", "DaemonSet storage/hpp-hostpath-provisioner-csi",
		"ServiceAccount storage/hpp-hostpath-provisioner-csi",
	}
	filled := []string{
		"Secret storage/" + controller + "-tls", "ConfigMap storage/" + controller + "-authorities",
		"ConfigMap storage/hpp-hostpath-provisioner-shared-pool-ids",
		"ConfigMap storage/hpp-hostpath-provisioner-moves",
	}
	base = append(base, filled...)
	class := []string{"StorageClass /hostpath-local", "Pod storage/hpp-hostpath-provisioner-test-hostpath-local"}
	scc := []string{
		"SecurityContextConstraints /hpp-hostpath-provisioner-csi",
		"ClusterRole /hpp-hostpath-provisioner-csi-scc", "RoleBinding storage/hpp-hostpath-provisioner-csi-scc",
	}
	monitor := []string{
		"Service storage/hpp-hostpath-provisioner-csi-metrics", "ServiceMonitor storage/hpp-hostpath-provisioner-csi",
		"Service storage/" + controller + "-metrics", "ServiceMonitor storage/" + controller,
	}
	own := []string{
		"ClusterRole /" + operator, "ClusterRoleBinding /" + operator, "ConfigMap storage/" + operator + "-base",
		"Deployment storage/" + operator,
		"Job storage/" + operator + "-check", "Role storage/" + operator, "RoleBinding storage/" + operator,
		"Service storage/" + operator,
		"ServiceAccount storage/" + operator, "ValidatingWebhookConfiguration /" + operator,
	}
	own = append(own, filled...)
	snapshotClasses := []string{
		"VolumeSnapshotClass /hostpath-point-in-time", "VolumeSnapshotClass /hostpath-best-effort",
	}
	for name, want := range map[string][]string{
		"operator, openshift":       own,
		"operator, existing secret": own,
		"default":                   slices.Concat(base, class),
		"snapshots":                 slices.Concat(base, class, snapshotClasses),
		"no pools":                  base,
		"openshift":                 slices.Concat(base, class, scc),
		"openshift, auto":           slices.Concat(base, class, scc),
		"service monitor":           slices.Concat(base, class, monitor),
	} {
		got := helmcli.Ids(helmcli.Objects(t, helm.MustTemplate(t, renderings()[name])))
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: objects (-want +got):\n%s", name, diff)
		}
	}
}

// TestEverythingRendersEveryKind keeps testdata/everything.yaml what its name says.
func TestEverythingRendersEveryKind(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["everything"])) {
		kinds[object.GetObjectKind().GroupVersionKind().Kind]++
	}
	want := map[string]int{
		"CSIDriver": 1, "ClusterRole": 6, "ClusterRoleBinding": 2, "ConfigMap": 5, "DaemonSet": 1, "Deployment": 1,
		"NetworkPolicy": 2, "Pod": 1, "PodDisruptionBudget": 1, "PodMonitor": 2, "PrometheusRule": 1, "Role": 4,
		"RoleBinding": 3, "Secret": 1, "SecurityContextConstraints": 1, "Service": 1, "ServiceAccount": 2,
		"StorageClass": 2, "ValidatingAdmissionPolicy": 3, "ValidatingAdmissionPolicyBinding": 3,
		"VolumeSnapshotClass": 2,
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}
