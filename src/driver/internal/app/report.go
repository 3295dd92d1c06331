package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// reportPause is how long a report that failed waits before it is sent again: longer each time, and not at the same
// time as on all other nodes, whose API has come back just as well.
func reportPause() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 7, Cap: time.Minute}
}

// reporter keeps the conditions of the driver's own pod what the pools are: one request for each change, and again
// while that fails.
type reporter struct {
	pools interface {
		Status() []pool.Status
		Changed() <-chan struct{}
	}
	report func(context.Context, []kube.Condition) error
	log    *slog.Logger
	now    func() time.Time
	pause  wait.Backoff

	// reported is what the pod says, nil before the first report that arrived.
	reported []kube.Condition
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) {
	pause, changed := r.pause, r.pools.Changed()
	for {
		var again <-chan time.Time
		if err := r.step(ctx); err == nil {
			pause = r.pause
		} else if ctx.Err() == nil {
			r.log.WarnContext(ctx, "cannot report the pools on this pod", logging.KeyError, err)
			again = time.After(pause.Step())
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// step reports the pools if the pod says something else.
func (r *reporter) step(ctx context.Context) error {
	want, known := r.conditions()
	if !known || (r.reported != nil && slices.Equal(want, r.reported)) {
		return nil
	}
	if err := r.report(ctx, want); err != nil {
		return err
	}
	r.reported = want
	return nil
}

// conditions are those of the configured pools that have been looked at. Nothing is known while that is none of them:
// what the driver said before it was restarted is better than that.
func (r *reporter) conditions() (all []kube.Condition, known bool) {
	all = []kube.Condition{}
	pools := slices.DeleteFunc(r.pools.Status(), func(p pool.Status) bool { return !p.Configured })
	for _, p := range pools {
		if !p.Unchecked {
			all = append(all, r.since(condition(p)))
		}
	}
	return all, len(all) > 0 || len(pools) == 0
}

// since dates a condition. One that says the same as before keeps its message too: an absent pool is looked at every
// few seconds, and its error need not read the same twice.
func (r *reporter) since(c kube.Condition) kube.Condition {
	c.Since = metav1.NewTime(r.now())
	for _, before := range r.reported {
		switch {
		case before.Type != c.Type:
		case before.Reason == c.Reason && before.Cause == c.Cause:
			return before
		case before.Status == c.Status:
			c.Since = before.Since
		}
	}
	return c
}

// condition says what a pool is, to whoever looks at the pod; the operator makes storagePoolStatuses of it.
func condition(p pool.Status) kube.Condition {
	c := kube.Condition{
		Type: names.PoolCondition + p.Name, Status: metav1.ConditionFalse, Cause: p.Reason, Message: p.Message,
	}
	if p.Present {
		c.Status = metav1.ConditionTrue
	}
	switch {
	case p.Present && p.Reason == pool.NoNewVolumes:
		c.Reason = names.PoolDegraded
		c.Message = fmt.Sprintf("%s: its volumes are served, and none can be made: %s", p.Path, p.Message)
	case p.Present && p.Reason != "":
		c.Reason = names.PoolDegraded
		c.Message = fmt.Sprintf("%s can be used, but %s", p.Path, p.Message)
	case p.Present:
		c.Reason = names.PoolPresent
		c.Message = fmt.Sprintf("%s can be used; enforcement of sizes: %s", p.Path, p.Enforcement)
	case p.Aside:
		c.Reason = names.PoolNotSelected
	default:
		c.Reason = names.PoolAbsent
		c.Message = fmt.Sprintf("%s: %s", p.Reason, p.Message)
	}
	return c
}

// pools shows a set of pools to package csi.
type pools struct{ *pool.Set }

// Health is the health of every pool that this node uses or should use.
func (p pools) Health() []csi.PoolHealth {
	var all []csi.PoolHealth
	for _, s := range p.Status() {
		if s.Selected || s.Used { // the others are no business of this node
			all = append(all, csi.PoolHealth{Pool: s.Name, Health: poolHealth(s)})
		}
	}
	return all
}

func poolHealth(s pool.Status) volume.Health {
	switch {
	case !s.Present:
		return volume.Health{Condition: volume.Inaccessible, Reason: s.Reason, Message: s.Message}
	case s.Lost > 0 || s.Refused > 0:
		return volume.Health{
			Condition: volume.Degraded, Reason: "VolumesUnusable",
			Message: fmt.Sprintf("%d volumes have lost their data, %d have a record or directory that cannot be used or a "+
				"limit that cannot be removed; the driver's log names them", s.Lost, s.Refused),
		}
	case s.Reason != "" && s.Reason != pool.NotConfigured:
		return volume.Health{Condition: volume.Degraded, Reason: s.Reason, Message: s.Message}
	default:
		return volume.Health{Condition: volume.Healthy, Reason: "Healthy"}
	}
}
