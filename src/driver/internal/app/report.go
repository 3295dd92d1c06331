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
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
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
		Status() []nodeapi.PoolStatus
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
	pools := slices.DeleteFunc(r.pools.Status(), func(p nodeapi.PoolStatus) bool { return !p.Configured })
	for _, p := range pools {
		if p.Reason != pool.NotChecked {
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
func condition(p nodeapi.PoolStatus) kube.Condition {
	c := kube.Condition{
		Type: names.PoolCondition + p.Name, Status: metav1.ConditionFalse, Cause: p.Reason, Message: p.Message,
	}
	if p.Served() {
		c.Status = metav1.ConditionTrue
	}
	switch {
	case p.Served() && p.Reason == pool.NoNewVolumes:
		c.Reason = names.PoolDegraded
		c.Message = fmt.Sprintf("%s: its volumes are served, and none can be made: %s", p.Path, p.Message)
	case p.Served() && p.Reason != "":
		c.Reason = names.PoolDegraded
		c.Message = fmt.Sprintf("%s can be used, but %s", p.Path, p.Message)
	case p.Served():
		c.Reason = names.PoolPresent
		c.Message = fmt.Sprintf("%s can be used; enforcement of sizes: %s", p.Path, p.Enforcement)
	case p.Reason == guard.NotSelected:
		c.Reason = names.PoolNotSelected
	default:
		c.Reason = names.PoolAbsent
		c.Message = fmt.Sprintf("%s: %s", p.Reason, p.Message)
	}
	return c
}
