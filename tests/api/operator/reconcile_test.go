package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

func poolSeed(t *testing.T, w *world) {
	w.apply(t, "pool-cr.yaml")
	resource := w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
	w.condition(t, v1beta1.Progressing, metav1.ConditionFalse)
	version := helmcli.Chart(t).AppVersion
	if s := resource.Status; s.ObservedVersion != version || s.TargetVersion != version || s.OperatorVersion == "" {
		t.Errorf("versions: operator %q, target %q, observed %q; want target and observed %q",
			s.OperatorVersion, s.TargetVersion, s.ObservedVersion, version)
	}
	w.sameAsHelm(t, "always.yaml", map[string]string{
		"storagePools":        `[{"name":"local","path":"/var/hpvolumes"}]`,
		"storageClasses":      `[{"name":"hostpath-csi","storagePool":"local"}]`,
		"driver.nodeSelector": `{"kubernetes.io/os":"linux"}`,
	})
	w.events(t, "DeployStarted", "ProvisionerHealthy")
}

func legacySeed(t *testing.T, w *world) {
	w.apply(t, "legacy-cr.yaml")
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	// The base's classes name pools that the resource does not have.
	w.condition(t, v1beta1.NotServed, metav1.ConditionTrue, "hostpath-csi", "of-two")
	w.sameAsHelm(t, "", map[string]string{
		"storagePools":              `[{"name":"legacy","path":"/var/hpvolumes"}]`,
		"storageClasses":            `[]`,
		"legacyProvisioner.enabled": `true`,
		"legacyProvisioner.path":    `"/var/hpvolumes"`,
	})
}

// sameAsHelm compares what the operator has applied with what `helm template` makes of the
// values that it should have used.
func (w *world) sameAsHelm(t *testing.T, file string, values map[string]string) {
	t.Helper()
	files := []string{baseValues}
	if file != "" {
		files = append(files, "testdata/"+file)
	}
	json := map[string]string{
		"selftest.enabled": "false", "mounter.managed": "true",
		"driver.metricsTLS.minVersion":   `"VersionTLS12"`,
		"driver.metricsTLS.cipherSuites": intermediate(),
	}
	maps.Copy(json, values)
	rendered := helmcli.Raw(t, w.Helm(t).MustTemplate(t, helmcli.Values{
		Files: files, JSON: json, APIVersions: []string{"monitoring.coreos.com/v1/ServiceMonitor"}, NoHooks: true,
	}))
	owner := harness.Get(t, w.Server, named())
	harness.Eventually(t, "the cluster holds what Helm renders", func(ctx context.Context) error {
		live, err := w.owned(ctx)
		if err != nil {
			return err
		}
		var wanted []string
		for _, object := range rendered {
			wanted = append(wanted, id(object))
		}
		slices.Sort(wanted)
		if got := slices.Sorted(maps.Keys(live)); !slices.Equal(got, wanted) {
			return fmt.Errorf("there are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
		}
		for _, object := range rendered {
			raw := object.(*unstructured.Unstructured)
			if err := like(raw, live[id(object)], owner); err != nil {
				return fmt.Errorf("%s: %w", id(object), err)
			}
		}
		return nil
	})
}

// like wants every field of the rendering in the live object, and the marks of the operator.
func like(rendered, live *unstructured.Unstructured, owner *v1beta1.HostPathProvisioner) error {
	if live.GetLabels()[names.OwnedBy] != names.CustomResource {
		return fmt.Errorf("its labels are %v", live.GetLabels())
	}
	if !metav1.IsControlledBy(live, owner) {
		return fmt.Errorf("its owners are %v", live.GetOwnerReferences())
	}
	return contains("", rendered.Object, live.Object)
}

// contains says where live lacks what wanted has. Lists have to be as long; what the server adds to maps is its own.
func contains(path string, wanted, live any) error {
	switch wanted := wanted.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok && len(wanted) > 0 {
			return fmt.Errorf("%s: %v, want %v", path, live, wanted)
		}
		for key, value := range wanted {
			switch {
			case value == nil:
				continue
			case key == managedBy: // Helm's own name for itself
				value = manager
			}
			if err := contains(path+"."+key, value, have[key]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		have, _ := live.([]any)
		if len(have) != len(wanted) {
			return fmt.Errorf("%s: %v, want %v", path, live, wanted)
		}
		for i := range wanted {
			if err := contains(fmt.Sprintf("%s[%d]", path, i), wanted[i], have[i]); err != nil {
				return err
			}
		}
		return nil
	default:
		if fmt.Sprint(wanted) != fmt.Sprint(live) && !(isZero(wanted) && live == nil) {
			return fmt.Errorf("%s: %v, want %v", path, live, wanted)
		}
		return nil
	}
}

// isZero reports whether a value is one that the server leaves out when it writes them.
func isZero(value any) bool {
	switch fmt.Sprint(value) {
	case "", "0", "false":
		return true
	default:
		return false
	}
}

// events waits for events about the resource with these reasons.
func (w *world) events(t *testing.T, reasons ...string) {
	t.Helper()
	harness.Eventually(t, "events", func(ctx context.Context) error {
		var list corev1.EventList
		if err := w.Client.List(ctx, &list); err != nil {
			return err
		}
		var found []string
		for _, event := range list.Items {
			if event.InvolvedObject.Kind == "HostPathProvisioner" {
				found = append(found, event.Reason)
			}
		}
		for _, reason := range reasons {
			if !slices.Contains(found, reason) {
				return fmt.Errorf("there are %v, want %s too", found, reason)
			}
		}
		return nil
	})
}

func conditions(t *testing.T, w *world) {
	w.nodes.Pool(patientNode, "local", names.PoolPresent, "")
	w.Create(t, withPools("local", "/var/hpvolumes", "two", "/srv/two"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.pools(t, v1beta1.StoragePoolStatus{
		Name: "local", Phase: v1beta1.PoolPreparing, DesiredReady: 2, CurrentReady: 1,
		Message: "waits for a report from the nodes node-2",
	}, v1beta1.StoragePoolStatus{
		Name: "two", Phase: v1beta1.PoolPreparing, DesiredReady: 2,
		Message: "waits for a report from the nodes node-1, node-2",
	})

	w.nodes.Pool("node-2", "local", names.PoolAbsent, "the disk is not mounted")
	w.nodes.Pool(patientNode, "two", names.PoolPresent, "")
	w.nodes.Pool("node-2", "two", names.PoolNotSelected, "")
	w.pools(t, v1beta1.StoragePoolStatus{
		Name: "local", Phase: v1beta1.PoolDegraded, DesiredReady: 2, CurrentReady: 1,
		Message: "node node-2: the disk is not mounted",
	}, v1beta1.StoragePoolStatus{Name: "two", Phase: v1beta1.PoolReady, DesiredReady: 1, CurrentReady: 1})
	w.condition(t, v1beta1.Degraded, metav1.ConditionTrue, "node node-2: the disk is not mounted")

	w.nodes.Pool("node-2", "local", names.PoolPresent, "")
	w.pools(t, v1beta1.StoragePoolStatus{Name: "local", Phase: v1beta1.PoolReady, DesiredReady: 2, CurrentReady: 2},
		v1beta1.StoragePoolStatus{Name: "two", Phase: v1beta1.PoolReady, DesiredReady: 1, CurrentReady: 1})
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)

	w.nodes.Die(t, "node-2")
	w.condition(t, v1beta1.Degraded, metav1.ConditionTrue, "node-2")
	w.nodes.Return(t, "node-2")
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
}

// pools waits until the status says exactly this of the pools.
func (w *world) pools(t *testing.T, wanted ...v1beta1.StoragePoolStatus) {
	t.Helper()
	harness.Until(t, w.Server, "the status of the pools", named(), func(r *v1beta1.HostPathProvisioner) error {
		if !equality.Semantic.DeepEqual(r.Status.StoragePoolStatuses, wanted) {
			return fmt.Errorf("it is %+v, want %+v", r.Status.StoragePoolStatuses, wanted)
		}
		return nil
	})
}

// oldViolations: a resource that kubevirt's webhook let in keeps running what can run.
func oldViolations(t *testing.T, w *world) {
	w.withoutWebhook(t, func() {
		w.Create(t, withPools("local", "/var/hpvolumes/", "inside", "/var/hpvolumes/inside"))
	})
	w.condition(t, v1beta1.Degraded, metav1.ConditionTrue, "spec.storagePools",
		`"/var/hpvolumes": it and "/var/hpvolumes/inside"`)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	config := w.driverConfig(t)
	if !strings.Contains(config, "path: /var/hpvolumes\n") || strings.Contains(config, "inside") {
		t.Errorf("the driver's configuration is to hold the first pool, with its path made clean, and not the one "+
			"inside it:\n%s", config)
	}
	// What is not about the violation may be changed, and the violation itself may be mended.
	harness.Change(
		t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) { r.Spec.ImagePullPolicy = corev1.PullNever },
	)
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools = r.Spec.StoragePools[:1]
		r.Spec.StoragePools[0].Path = "/var/hpvolumes"
	})
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
}

func (w *world) driverConfig(t *testing.T) string {
	t.Helper()
	config := harness.Get(t, w.Server, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: driverName},
	})
	return strings.Join(slices.Collect(maps.Values(config.Data)), "\n")
}
