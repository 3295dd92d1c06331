// Package operator tests the operator, installed from the chart and run with the rights that the chart gives it,
// against a real API server with the real garbage collector and DaemonSet controller.
package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// Names of what the release is called by.
const (
	full        = harness.Release + "-hostpath-provisioner"
	driverName  = full + "-csi"
	driverRole  = driverName + "-driver"
	legacyName  = full + "-legacy"
	manager     = "hostpath-provisioner-operator"
	managedBy   = "app.kubernetes.io/managed-by"
	baseValues  = "testdata/base-values.yaml"
	driverPods  = "csi-driver"
	patientNode = "node-1"
)

// world is one control plane with one operator, for one test after the other: there is one custom resource.
type world struct {
	*harness.Server
	operator *harness.Operator
	nodes    *harness.Nodes
}

// part is a test on a world. It begins and ends without a resource.
type part struct {
	name string
	do   func(*testing.T, *world)
}

// each runs parts one after the other, the next also after a failure.
func (w *world) each(t *testing.T, parts ...part) {
	t.Helper()
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			t.Cleanup(func() { w.clear(t); w.operator.Show(t) })
			part.do(t, w)
		})
	}
}

// start makes a control plane of two nodes, with an operator that is ready.
func start(t *testing.T) *world {
	t.Helper()
	s := harness.Start(t)
	s.Kinds(t, helmcli.MonitoringKinds(t)...)
	w := &world{Server: s, nodes: s.StartNodes(t, patientNode, "node-2")}
	w.operator = s.InstallOperator(t, s.Build(t, "./src/operator"), helmcli.Values{Files: []string{baseValues}})
	w.operator.Ready(t)
	return w
}

// TestOperator: what the operator makes of a resource, and what it keeps.
func TestOperator(t *testing.T) {
	t.Parallel()
	start(t).each(t,
		part{"uninstall check without a resource", nothingToUninstall},
		part{"rights", rights},
		part{"seed with a pool", poolSeed},
		part{"seed with pathConfig", legacySeed},
		part{"conditions and pools", conditions},
		part{"placement is verbatim", placement},
		part{"pool and class go", pruning},
		part{"foreign objects", foreignObjects},
		part{"immutable fields", immutable},
		part{"base values change", baseChange},
		part{"what an older version rendered goes", olderVersion},
		part{"OpenShift's service CA", serviceCA},
		part{"OpenShift comes later", openshiftAppears},
		part{"drift", drift},
		part{"TLS policy", tlsPolicy},
	)
}

// TestClaims: pools on claims.
func TestClaims(t *testing.T) {
	t.Parallel()
	start(t).each(t,
		part{"seed with pvcTemplate", claimSeed},
		part{"claims of kubevirt's operator", existingClaims},
		part{"claims and nodes", claimsOfNodes},
		part{"templates", templates},
		part{"one claim for all nodes", oneClaim},
		part{"what is in the way of one claim for all nodes", inTheWayOfOneClaim},
	)
}

// TestRefusals: what the webhook lets pass, what it refuses, and what it warns of; and what volumes keep.
func TestRefusals(t *testing.T) {
	t.Parallel()
	start(t).each(t,
		part{"old violations", oldViolations},
		part{"webhook", webhook},
		part{"nodes that are gone", nodesGone},
		part{"narrowing", narrowing},
		part{"pool behind a pool", poolBehindPool},
		part{"accepted with a warning", accepted},
		part{"another name", anotherName},
		part{"deletion", deletion},
	)
}

// clear removes the resource whatever holds it, and waits until the garbage collector has removed what was the
// resource's: the next test must not find it, nor a name taken, nor what drivers said about pools.
func (w *world) clear(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var all v1beta1.HostPathProvisionerList
	if err := w.Client.List(ctx, &all); err != nil {
		t.Error(err)
	}
	for i := range all.Items {
		resource := &all.Items[i]
		patch := client.RawPatch(
			"application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+names.ForceDelete+`":"true"}}}`),
		)
		err := w.Client.Patch(ctx, resource, patch)
		if err = errors.Join(client.IgnoreNotFound(err),
			client.IgnoreNotFound(w.Client.Delete(ctx, resource))); err != nil {
			t.Error(err)
		}
	}
	for i := range all.Items {
		w.gone(ctx, t, &all.Items[i])
	}
	w.nothingLeft(ctx, t)
	w.nodes.NoPools()
}

// gone is harness.Gone also in a clean-up, when the test's context is over.
func (w *world) gone(ctx context.Context, t *testing.T, object client.Object) {
	t.Helper()
	harness.EventuallyWith(ctx, t, object.GetName()+" is gone", func(ctx context.Context) error {
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			return fmt.Errorf("it is there: %v", object)
		}
		return nil
	})
}

// apply creates the custom resource of a seed, as a user would.
func (w *world) apply(t *testing.T, seed string) *v1beta1.HostPathProvisioner {
	t.Helper()
	w.Create(t, helmcli.Raw(t, harness.Seed(t, seed))[0])
	return named()
}

func named() *v1beta1.HostPathProvisioner {
	return &v1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Name: names.CustomResource}}
}

// withPools is a resource with pools at paths: name, path, name, path.
func withPools(pairs ...string) *v1beta1.HostPathProvisioner {
	resource := named()
	for i := 0; i < len(pairs); i += 2 {
		resource.Spec.StoragePools = append(resource.Spec.StoragePools,
			v1beta1.StoragePool{Name: pairs[i], Path: pairs[i+1]})
	}
	return resource
}

// condition waits until a condition is as wanted and its message holds the words.
func (w *world) condition(
	t *testing.T, kind string, status metav1.ConditionStatus, words ...string,
) *v1beta1.HostPathProvisioner {
	t.Helper()
	return w.conditionOf(t, named(), kind, status, words...)
}

func (w *world) conditionOf(
	t *testing.T, resource *v1beta1.HostPathProvisioner, kind string, status metav1.ConditionStatus, words ...string,
) *v1beta1.HostPathProvisioner {
	t.Helper()
	return harness.Until(t, w.Server, resource.Name+": condition "+kind+"="+string(status), resource,
		func(r *v1beta1.HostPathProvisioner) error {
			condition := meta.FindStatusCondition(r.Status.Conditions, kind)
			if condition == nil {
				return fmt.Errorf("there is none, but %v", r.Status.Conditions)
			}
			if condition.Status != status || condition.ObservedGeneration != r.Generation {
				return fmt.Errorf("it is %+v (generation %d)", *condition, r.Generation)
			}
			for _, word := range words {
				if !strings.Contains(condition.Message, word) {
					return fmt.Errorf("its message does not say %q: %q", word, condition.Message)
				}
			}
			return nil
		})
}

// kinds are all that the operator may make.
func kinds() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for group, kinds := range map[schema.GroupVersion][]string{
		{Version: "v1"}: {"ConfigMap", "Service", "ServiceAccount"},
		{Group: "admissionregistration.k8s.io", Version: "v1"}: {
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		},
		{Group: "apps", Version: "v1"}:                  {"DaemonSet", "Deployment"},
		{Group: "monitoring.coreos.com", Version: "v1"}: {"PodMonitor", "PrometheusRule", "ServiceMonitor"},
		{Group: "networking.k8s.io", Version: "v1"}:     {"NetworkPolicy"},
		{Group: "policy", Version: "v1"}:                {"PodDisruptionBudget"},
		{Group: "rbac.authorization.k8s.io", Version: "v1"}: {
			"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		},
		{Group: "security.openshift.io", Version: "v1"}: {"SecurityContextConstraints"},
		{Group: "storage.k8s.io", Version: "v1"}:        {"CSIDriver", "StorageClass"},
	} {
		for _, kind := range kinds {
			all = append(all, group.WithKind(kind))
		}
	}
	return all
}

// owned are the objects that belong to the resource, by kind and name.
func (w *world) owned(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	found := map[string]*unstructured.Unstructured{}
	for _, kind := range kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		err := w.Client.List(ctx, list, client.MatchingLabels{names.OwnedBy: names.CustomResource})
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			found[id(&list.Items[i])] = &list.Items[i]
		}
	}
	return found, nil
}

func id(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetNamespace() + "/" + object.GetName()
}

func keyOf(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }
