package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// How an instance that leads shows that it lives, and how soon another one takes over; the values of Kubernetes' own
// components.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// namespaceFile is where the kubelet says which namespace a pod is in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// lease is the object by which instances agree which of them works.
type lease struct{ namespace, name string }

// leaseName makes a provisioner's name into one that the API takes for an object.
func leaseName(of string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(of))
}

// podNamespace is "" outside of a pod.
func podNamespace() string {
	text, err := os.ReadFile(namespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// runLed works while this instance leads, until ctx ends. It gives the lead up after the work has ended, not before:
// the library's own election ends the process where it stands.
func (p *provisioner) runLed(ctx context.Context, work func(context.Context)) error {
	if p.lease == nil {
		work(ctx)
		return nil
	}
	leading, ended := make(chan struct{}), make(chan struct{})
	elector, err := p.elector(func(context.Context) { close(leading) })
	if err != nil {
		return err
	}
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	working, stop := context.WithCancel(ctx)
	go func() { defer close(ended); defer stop(); elector.Run(electing) }()
	defer func() { resign(); <-ended }()
	select {
	case <-leading:
	case <-working.Done():
		return nil
	}
	p.log.InfoContext(ctx, "leading", logging.KeyLease, p.lease.namespace+"/"+p.lease.name)
	work(working)
	if ctx.Err() == nil {
		return errors.New("the lease is lost, and another instance may be working")
	}
	return nil
}

func (p *provisioner) elector(onLead func(context.Context)) (*leaderelection.LeaderElector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find a name for this instance: %w", err)
	}
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: p.lease.name, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: p.lease.namespace, Name: p.lease.name},
			Client:     p.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: onLead, OnStoppedLeading: func() {}},
	})
}
