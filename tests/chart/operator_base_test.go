package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// base is what the operator reads from its ConfigMap, as text.
func base(t *testing.T, helm helmsdk.Helm, values helmcli.Values) string {
	t.Helper()
	for _, object := range helmcli.Objects(t, helm.MustTemplate(t, withOperator(values, nil))) {
		if config, ok := object.(*corev1.ConfigMap); ok && config.Data["values.yaml"] != "" {
			return config.Data["values.yaml"]
		}
	}
	t.Fatal("no ConfigMap holds values.yaml")
	return ""
}

// TestBaseValuesComeBack: the chart rendered with the operator's base is the chart rendered without an operator.
func TestBaseValuesComeBack(t *testing.T) {
	t.Parallel()
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		for name, values := range renderings() {
			if _, with := operatorRenderings()[name]; with {
				continue
			}
			comesBack(t, helm, name, values)
		}
		for _, deep := range []bool{false, true} {
			file := filepath.Join(t.TempDir(), "removed.yaml")
			writeYAML(t, file, removed(t, deep))
			comesBack(t, helm, fmt.Sprintf("removed with null (leaves %v)", deep),
				helmcli.Values{Files: []string{file}})
		}
	})
}

func comesBack(t *testing.T, helm helmsdk.Helm, name string, values helmcli.Values) {
	t.Helper()
	// These belong to the release and not to the driver.
	json := map[string]string{
		"extraObjects": "[]", "monitoring.dashboard.enabled": "false", "adminRoles.create": "false",
	}
	maps.Copy(json, values.JSON)
	values.JSON = json
	values.Set = maps.Clone(values.Set)
	delete(values.Set, "monitoring.dashboard.enabled")
	direct := helmcli.Objects(t, helm.MustTemplate(t, values))
	file := filepath.Join(t.TempDir(), "base.yaml")
	if err := os.WriteFile(file, []byte(base(t, helm, values)), 0o600); err != nil {
		t.Fatal(err)
	}
	values = helmcli.Values{Files: []string{file}, APIVersions: values.APIVersions}
	again := helmcli.Objects(t, helm.MustTemplate(t, values))
	if diff := cmp.Diff(direct, again); diff != "" {
		t.Errorf("%s: direct and from the base (-direct +base):\n%s", name, diff)
	}
}

// removed are values with null for whatever stands in an open map of values.yaml: for each key of
// the map, or for what lies deepest.
func removed(t *testing.T, deep bool) map[string]any {
	t.Helper()
	values := map[string]any{}
	for _, name := range append(openMaps(), "driver.updateStrategy.rollingUpdate") {
		if name == "global" || strings.HasPrefix(name, "operator.") {
			continue
		}
		from, into := defaults(t), values
		for part := range strings.SplitSeq(name, ".") {
			from, _ = from[part].(map[string]any)
			if _, there := into[part]; !there {
				into[part] = map[string]any{}
			}
			into, _ = into[part].(map[string]any)
		}
		empty(from, into, deep)
	}
	return values
}

func empty(from, into map[string]any, deep bool) {
	for key, value := range from {
		below, isMap := value.(map[string]any)
		if !isMap || !deep {
			into[key] = nil
			continue
		}
		next := map[string]any{}
		into[key] = next
		empty(below, next, deep)
	}
}

func writeYAML(t *testing.T, file string, values any) {
	t.Helper()
	data, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestBaseLeavesTheChartsOwnListsOut: pools come from the HostPathProvisioner, and a class of a pool that
// nobody asked for must not appear.
func TestBaseLeavesTheChartsOwnListsOut(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	read := func(values helmcli.Values) map[string]any {
		var all map[string]any
		if err := yaml.UnmarshalStrict([]byte(base(t, helm, values)), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := defaults(t)
	for _, key := range []string{
		"operator", "adminRoles", "extraObjects", "enabled", "storagePools", "storageClasses",
	} {
		delete(want, key)
	}
	legacy, _ := want["legacyProvisioner"].(map[string]any)
	delete(legacy, "storageClasses")
	monitoring, _ := want["monitoring"].(map[string]any)
	delete(monitoring, "dashboard")
	if diff := cmp.Diff(want, read(helmcli.Values{})); diff != "" {
		t.Errorf("base of the chart's own values (-want +got):\n%s", diff)
	}
	given := map[string]string{
		"storagePools": `[{"name":"one","path":"/srv/one"}]`, "storageClasses": `[]`,
		"legacyProvisioner.storageClasses": `[{"name":"old"}]`,
	}
	got := read(helmcli.Values{JSON: given})
	legacy, _ = got["legacyProvisioner"].(map[string]any)
	if diff := cmp.Diff([]any{
		[]any{map[string]any{"name": "one", "path": "/srv/one"}}, []any{}, []any{map[string]any{"name": "old"}},
	}, []any{got["storagePools"], got["storageClasses"], legacy["storageClasses"]}); diff != "" {
		t.Errorf("lists that were given (-want +got):\n%s", diff)
	}
}

// TestOwnListsAreTheDefaults: the helper that knows the chart's own lists says what values.yaml says.
func TestOwnListsAreTheDefaults(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	var own map[string]any
	manifest := helm.MustTemplate(t, helmcli.Values{JSON: map[string]string{
		"extraObjects": `["apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own-lists}\ndata:\n  lists: |\n{{ ` +
			`include \"hostpath-provisioner.ownLists\" . | indent 4 }}"]`,
	}})
	text := helmcli.Find[*corev1.ConfigMap](t, helmcli.Objects(t, manifest), "own-lists").Data["lists"]
	if err := yaml.UnmarshalStrict([]byte(text), &own); err != nil {
		t.Fatal(err)
	}
	all := defaults(t)
	legacy, _ := all["legacyProvisioner"].(map[string]any)
	want := map[string]any{
		"storagePools": all["storagePools"], "storageClasses": all["storageClasses"],
		"legacyStorageClasses": legacy["storageClasses"],
	}
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("values.yaml and templates/_helpers.tpl (-values +helper):\n%s", diff)
	}
}

// TestOperatorRendersNothingOfTheDriver: two owners of one object would fight for ever.
func TestOperatorRendersNothingOfTheDriver(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	for name := range driverSides() {
		shared, _ := networkFSValues()
		with := withOperator(shared, map[string]string{
			"openshift": "true", "networkPolicies.enabled": "true", "legacyProvisioner.enabled": "true",
			"legacyProvisioner.everyNode.enabled": "true",
			"monitoring.serviceMonitor.enabled":   "true", "monitoring.prometheusRule.enabled": "true",
		})
		if name == "everything" {
			with = renderings()["operator, everything"]
		}
		ours := helmcli.Ids(helmcli.Objects(t, helm.MustTemplate(t, with)))
		for _, object := range helmcli.Objects(t, helm.MustTemplate(t, driverSides()[name])) {
			if id := helmcli.Ids([]client.Object{object})[0]; object.GetAnnotations()["helm.sh/hook"] == "" &&
				slices.Contains(ours, id) {
				t.Errorf("%s: Helm and the operator both render %s", name, id)
			}
		}
	}
}

// TestNotesPrintTheResource that storagePools would be, as its type reads it.
func TestNotesPrintTheResource(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values helmcli.Values
		want   string
	}{
		"default": {want: `{"storagePools":[{"name":"local","path":"/var/lib/hostpath-provisioner","reserve":"10%"}]}`},
		"every field": {values: helmcli.Values{
			JSON: map[string]string{"storagePools": strings.ReplaceAll(everyPoolField, "\n", "")},
		}, want: `{"storagePools":` + everyPoolField + `}`},
		"legacy": {values: helmcli.Values{JSON: map[string]string{
			"storagePools": "[]", "legacyProvisioner.enabled": "true", "legacyProvisioner.useNamingPrefix": "true",
		}}, want: `{"pathConfig":{"path":"/var/hpvolumes","useNamingPrefix":true}}`},
	} {
		got := resource(t, notes(t, withOperator(test.values, nil)))
		var want v1beta1.HostPathProvisionerSpec
		// A number of bytes is text in the resource, whose numbers end at 2^31.
		if err := yaml.UnmarshalStrict(
			[]byte(strings.ReplaceAll(test.want, "10737418240", `"10737418240"`)), &want,
		); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Spec); diff != "" || got.Name != "hostpath-provisioner" {
			t.Errorf("%s: HostPathProvisioner %s (-want +got):\n%s", name, got.Name, diff)
		}
	}
}

// resource is the HostPathProvisioner that NOTES tell the user to apply.
func resource(t *testing.T, text string) v1beta1.HostPathProvisioner {
	t.Helper()
	for _, manifest := range strings.Split(text, "<<EOF\n")[1:] {
		manifest, _, _ = strings.Cut(manifest, "\nEOF\n")
		if !strings.Contains(manifest, "kind: HostPathProvisioner\n") {
			continue
		}
		var resource v1beta1.HostPathProvisioner
		if err := yaml.UnmarshalStrict([]byte(manifest), &resource); err != nil {
			t.Fatalf("%v in\n%s", err, manifest)
		}
		return resource
	}
	t.Fatalf("no HostPathProvisioner in\n%s", text)
	return v1beta1.HostPathProvisioner{}
}
