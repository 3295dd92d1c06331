package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// How a replica that leads shows that it lives, and how soon another one takes over; the values of upstream's sidecars.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 5 * time.Second
)

// Leads reports whether this replica is the one that reports what all of them see. All of them answer calls. The
// elector alone says so of one whose Lease has run out until it has read that it is another's, which takes the API.
func (c *Cluster) Leads() bool { return c.leads.Load() && c.elector.IsLeader() }

func (c *Cluster) addElector() (err error) {
	c.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: c.Lease, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.PodNamespace, Name: c.Lease},
			Client:     c.api.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.PodName},
		},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				c.leads.Store(ctx.Err() == nil)
				c.Log.InfoContext(ctx, "this replica reports")
			},
			OnStoppedLeading: func() { c.leads.Store(false) },
		},
	})
	if err != nil {
		return fmt.Errorf("prepare the Lease %s/%s: %w", c.PodNamespace, c.Lease, err)
	}
	return nil
}
