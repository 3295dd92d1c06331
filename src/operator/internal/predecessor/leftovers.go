package predecessor

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// tidied is how much of what kubevirt's operator left was removed.
type tidied int

const (
	notTidied tidied = iota
	allButMounters
	all
)

// leftover is an object of kubevirt's that nobody uses once the driver is another.
type leftover struct {
	kind schema.GroupVersionKind
	name string
	// mounting: the pods that mount a pool's claim use it.
	mounting bool
}

// leftovers are by exact names, of which the operator has the rights. kubevirt's operator itself, what its manifest
// makes for it included, is its administrator's to remove.
func leftovers() []leftover {
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	monitoring := schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}
	constraints := schema.GroupVersionKind{
		Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints",
	}
	accounts := schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	const admin, adminCSI, monitor = "hostpath-provisioner-admin", "hostpath-provisioner-admin-csi",
		"hostpath-provisioner-monitoring"
	list := []leftover{
		// First: an alert of it would fire for ever.
		{kind: monitoring.WithKind("PrometheusRule"), name: "prometheus-hpp-rules"},
		{kind: monitoring.WithKind("ServiceMonitor"), name: "service-monitor-hpp"},
		{kind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, name: "hpp-prometheus-metrics"},
		{kind: constraints, name: provisioner},
		{kind: constraints, name: csiName, mounting: true},
		{kind: accounts, name: admin},
		{kind: accounts, name: adminCSI, mounting: true},
	}
	for _, kind := range []string{"ClusterRoleBinding", "ClusterRole"} {
		list = append(list, leftover{kind: rbac.WithKind(kind), name: provisioner},
			leftover{kind: rbac.WithKind(kind), name: adminCSI})
	}
	for _, kind := range []string{"RoleBinding", "Role"} {
		list = append(list, leftover{kind: rbac.WithKind(kind), name: adminCSI},
			leftover{kind: rbac.WithKind(kind), name: monitor})
	}
	return list
}

// Tidy removes what is left of kubevirt's operator, now that the driver is another and available. It looks once, and
// remembers the mounters: each goes when nobody needs it, and what they use goes after the last.
func (p *Predecessor) Tidy(ctx context.Context, pools []v1beta1.StoragePool, ours []appsv1.Deployment) error {
	switch p.tidied {
	case notTidied:
		found, err := p.findMounters(ctx)
		if err != nil {
			return err
		}
		if err := p.removeLeftovers(ctx, func(l leftover) bool { return !l.mounting }); err != nil {
			return err
		}
		p.mounters, p.tidied = found, allButMounters
	case allButMounters:
	case all:
		return nil
	}
	if err := p.removeIdle(ctx, pools, ours); err != nil || len(p.mounters) > 0 {
		return err
	}
	if err := p.removeLeftovers(ctx, func(l leftover) bool { return l.mounting }); err != nil {
		return err
	}
	p.tidied = all
	return nil
}

// RemoveAll removes what is left of kubevirt's operator when the custom resource goes, to which its mounters belong.
func (p *Predecessor) RemoveAll(ctx context.Context) error {
	return p.removeLeftovers(ctx, func(leftover) bool { return true })
}

// removeLeftovers removes those that are wanted and kubevirt's, in every namespace.
func (p *Predecessor) removeLeftovers(ctx context.Context, wanted func(leftover) bool) error {
	var problems []error
	for _, each := range leftovers() {
		if !wanted(each) {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(each.kind.GroupVersion().WithKind(each.kind.Kind + "List"))
		err := p.Live.List(ctx, list, client.MatchingFields{"metadata.name": each.name})
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("find kubevirt's %s %s: %w", each.kind.Kind, each.name, advise(err)))
			continue
		}
		for i := range list.Items {
			if object := &list.Items[i]; inherited(object) && object.GetDeletionTimestamp() == nil {
				problems = append(problems, p.remove(ctx, object))
			}
		}
	}
	return errors.Join(problems...)
}
