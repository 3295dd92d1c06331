// Package predecessor finds what kubevirt's operator left in the cluster, in whatever namespace, and takes it away in
// an order that leaves volumes served and data alone: its operator is waited for, its webhook and its workloads go,
// and at last what nobody uses any more.
package predecessor

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What kubevirt's operator gives its objects.
const (
	operatorName = "hostpath-provisioner-operator"
	csiName      = "hostpath-provisioner-csi"
	// provisioner is the DaemonSet of the legacy provisioner, and the value of appLabel.
	provisioner = "hostpath-provisioner"

	appLabel       = "k8s-app"
	managedByLabel = "app.kubernetes.io/managed-by"
	// nameLabel is on the pods of its operator.
	nameLabel = "name"
	// poolLabel is on the Deployments that mount claims, and on their pods; the value is the pool's name
	// and poolSuffix.
	poolLabel, poolSuffix = "hpp-pool", "-hpp"
	// cleanupPrefix begins the names of Jobs that unmount a pool.
	cleanupPrefix = "cleanup-pool-"

	webhookName = "hostpathprovisioner.kubevirt.io"
)

// componentLabel tells this project's operator from kubevirt's where both have one name.
const componentLabel = "app.kubernetes.io/component"

// Writer removes objects.
type Writer interface {
	Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error
}

// Options are what a Predecessor works with.
type Options struct {
	// Live reads past every cache, for most of this is looked at only a few times. Nodes reads them from one.
	Live, Nodes client.Reader
	Writer      Writer
	// Namespace is this operator's, WebhookConfiguration the name of its own.
	Namespace, WebhookConfiguration string
}

// Predecessor is what is there of kubevirt's. It is for one caller at a time, but for Running.
type Predecessor struct {
	Options
	now    func() time.Time
	tidied tidied
	// mounters are those that were not removed yet, once tidied says that they are known.
	mounters []appsv1.Deployment
}

// New makes a Predecessor that has not looked yet.
func New(o Options) *Predecessor { return &Predecessor{Options: o, now: time.Now} }

// Running are kubevirt's operators that run, or may come back by themselves: one sentence each, which ends with the
// command that ends it.
func (p *Predecessor) Running(ctx context.Context) ([]string, error) {
	found, err := p.operators(ctx)
	if err != nil {
		return nil, err
	}
	return found.sentences(p.now()), nil
}

// Wait is what has to be over before anything is deployed. The zero value is nothing.
type Wait struct {
	// Operator: kubevirt's operator runs. Else what it deployed does.
	Operator bool
	// Message is a sentence for a condition.
	Message string
}

// Over reports whether there is nothing to wait for.
func (w Wait) Over() bool { return w.Message == "" }

// Displace takes away what must not run beside the driver, and says what is still there. While kubevirt's operator runs
// it touches nothing. Where something was there, Tidy looks again.
func (p *Predecessor) Displace(ctx context.Context) (Wait, error) {
	wait, err := p.displace(ctx)
	if err != nil || !wait.Over() {
		p.tidied = notTidied
	}
	return wait, err
}

func (p *Predecessor) displace(ctx context.Context) (Wait, error) {
	running, err := p.Running(ctx)
	if err != nil {
		return Wait{}, err
	}
	if len(running) > 0 {
		return Wait{Operator: true, Message: "not served yet: kubevirt's operator runs: " +
			strings.Join(running, "; ") + "; then this goes on by itself"}, nil
	}
	if err := p.RemoveWebhook(ctx); err != nil {
		return Wait{}, err
	}
	there, err := p.workloads(ctx)
	if err != nil {
		return Wait{}, err
	}
	if elsewhere := there.elsewhere(p.Namespace); elsewhere != "" {
		return Wait{Message: elsewhere}, nil
	}
	if err := p.remove(ctx, there.deletable()...); err != nil {
		return Wait{}, err
	}
	return Wait{Message: there.message(p.Namespace, p.now())}, nil
}

func (p *Predecessor) listNodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := p.Nodes.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return list.Items, nil
}

// advise says what to do where a right is missing.
func advise(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; give the operator the rights of this version's chart: upgrade its Helm release", err)
	}
	return err
}
