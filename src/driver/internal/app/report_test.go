package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// states are pools whose state a test sets.
type states struct {
	pools   []nodeapi.PoolStatus
	changed chan struct{}
}

func (s *states) Status() []nodeapi.PoolStatus { return s.pools }
func (s *states) Changed() <-chan struct{}     { return s.changed }

const prefix = "pool.hostpathprovisioner.kubevirt.io/"

// localPool is the pool local, in one of its states.
func localPool(state, reason, message string) nodeapi.PoolStatus {
	return nodeapi.PoolStatus{
		Name: "local", Path: "/srv/local", Configured: true, State: state, Selected: true, Enforcement: "none",
		Reason: reason, Message: message,
	}
}

// TestReporter walks through the life of a node: what is reported after each step, and that nothing is where nothing
// changed.
func TestReporter(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	present := localPool(nodeapi.StatePresent, "", "")
	missing := localPool(nodeapi.StateAbsent, "MarkerMissing", "/srv/local holds no marker")
	reread := localPool(nodeapi.StateAbsent, "MarkerMissing", "/srv/local holds no marker, in other words")
	full := localPool(nodeapi.StatePresent, pool.NoNewVolumes, "no room")
	unlimited := localPool(nodeapi.StatePresent, pool.EnforcementLost,
		"nothing keeps volumes to their size any more: quota is off")
	differs := localPool(nodeapi.StateAbsent, "MarkerDiffers", "/srv/local is another pool")
	aside := nodeapi.PoolStatus{
		Name: "slow", Path: "/srv/slow", Configured: true, Reason: "NotSelected",
		Message: "the labels do not match",
	}
	unchecked := nodeapi.PoolStatus{
		Name: "slow", Path: "/srv/slow", Configured: true, Reason: "NotChecked",
		Message: "not looked at yet",
	}
	former := nodeapi.PoolStatus{Name: "slow", Path: "/srv/slow", Used: true, Reason: "NotConfigured"}
	var sent [][]kube.Condition
	var failure error
	now := start
	of := &states{}
	r := reporter{pools: of, now: func() time.Time {
		return now
	}, report: func(_ context.Context, c []kube.Condition) error {
		sent = append(sent, c)
		return failure
	}}
	isPresent := kube.Condition{
		Type: prefix + "local", Status: "True", Reason: "PoolPresent",
		Message: "/srv/local can be used; enforcement of sizes: none",
	}
	isMissing := kube.Condition{
		Type: prefix + "local", Status: "False", Reason: "PoolAbsent", Cause: "MarkerMissing",
		Message: "MarkerMissing: /srv/local holds no marker", Since: metav1.NewTime(minute(3)),
	}
	isOther := kube.Condition{
		Type: prefix + "local", Status: "False", Reason: "PoolAbsent", Cause: "MarkerDiffers",
		Message: "MarkerDiffers: /srv/local is another pool", Since: metav1.NewTime(minute(3)),
	}
	isAside := kube.Condition{
		Type: prefix + "slow", Status: "False", Reason: "PoolNotSelected", Cause: "NotSelected",
		Message: "the labels do not match", Since: metav1.NewTime(minute(2)),
	}
	isFull := kube.Condition{
		Type: prefix + "local", Status: "True", Reason: "PoolDegraded", Cause: pool.NoNewVolumes,
		Message: "/srv/local: its volumes are served, and none can be made: no room", Since: metav1.NewTime(minute(8)),
	}
	isUnlimited := kube.Condition{
		Type: prefix + "local", Status: "True", Reason: "PoolDegraded", Cause: pool.EnforcementLost,
		Message: "/srv/local can be used, but nothing keeps volumes to their size any more: quota is off",
		Since:   metav1.NewTime(minute(8)),
	}
	firstPresent, laterPresent := isPresent, isPresent
	firstPresent.Since, laterPresent.Since = metav1.NewTime(minute(1)), metav1.NewTime(minute(8))
	for i, step := range []struct {
		what  string
		pools []nodeapi.PoolStatus
		fails error
		want  []kube.Condition // nil: no request
	}{
		{"nothing looked at", []nodeapi.PoolStatus{unchecked}, nil, nil},
		{"one pool looked at", []nodeapi.PoolStatus{present, unchecked}, nil, []kube.Condition{firstPresent}},
		{"the other as well", []nodeapi.PoolStatus{present, aside}, nil, []kube.Condition{firstPresent, isAside}},
		{
			"absent, and the API is away",
			[]nodeapi.PoolStatus{missing, aside},
			errors.New("no answer"),
			[]kube.Condition{isMissing, isAside},
		},
		{"still so, and the API is back", []nodeapi.PoolStatus{missing, aside}, nil, []kube.Condition{{
			Type: prefix + "local", Status: "False", Reason: "PoolAbsent", Cause: "MarkerMissing",
			Message: "MarkerMissing: /srv/local holds no marker", Since: metav1.NewTime(minute(4)),
		}, isAside}},
		{"another wording", []nodeapi.PoolStatus{reread, aside}, nil, nil},
		{
			"another reason",
			[]nodeapi.PoolStatus{differs, aside},
			nil,
			[]kube.Condition{withSince(isOther, minute(4)), isAside},
		},
		{"no change", []nodeapi.PoolStatus{differs, aside}, nil, nil},
		{"back", []nodeapi.PoolStatus{present, aside}, nil, []kube.Condition{laterPresent, isAside}},
		{"no volume can be made", []nodeapi.PoolStatus{full, aside}, nil, []kube.Condition{isFull, isAside}},
		{
			"volumes can be made, and nothing limits them",
			[]nodeapi.PoolStatus{unlimited, aside},
			nil,
			[]kube.Condition{isUnlimited, isAside},
		},
		{"all is well again", []nodeapi.PoolStatus{present, aside}, nil, []kube.Condition{laterPresent, isAside}},
		{"taken out of the configuration", []nodeapi.PoolStatus{present, former}, nil, []kube.Condition{laterPresent}},
		{"all taken out", nil, nil, []kube.Condition{}},
	} {
		sent, failure, now, of.pools = nil, step.fails, minute(i), step.pools
		if err := r.step(t.Context()); !errors.Is(err, step.fails) {
			t.Errorf("%s: %v", step.what, err)
		}
		if step.want == nil {
			if len(sent) > 0 {
				t.Errorf("%s: reported %+v", step.what, sent)
			}
			continue
		}
		if len(sent) != 1 {
			t.Fatalf("%s: %d reports, want one", step.what, len(sent))
		}
		if diff := cmp.Diff(step.want, append([]kube.Condition{}, sent[0]...)); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}
}

func withSince(c kube.Condition, since time.Time) kube.Condition {
	c.Since = metav1.NewTime(since)
	return c
}

// TestReporterTriesAgain: a report that failed is sent again without a change, one that arrived is not.
func TestReporterTriesAgain(t *testing.T) {
	of := &states{pools: []nodeapi.PoolStatus{localPool(nodeapi.StatePresent, "", "")}, changed: make(chan struct{})}
	attempts := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	fail := 2
	r := reporter{
		pools: of, now: time.Now, log: slog.New(slog.DiscardHandler),
		pause: wait.Backoff{Duration: time.Millisecond, Steps: 2},
		report: func(_ context.Context, c []kube.Condition) error {
			attempts <- c[0].Reason
			if fail--; fail >= 0 {
				return errors.New("no answer")
			}
			return nil
		},
	}
	done := make(chan struct{})
	go func() { r.run(ctx); close(done) }()
	for range 3 {
		if got := <-attempts; got != "PoolPresent" {
			t.Errorf("reported %s", got)
		}
	}
	of.changed <- struct{}{} // it only listens once the report has arrived; nothing is new, so nothing is sent
	of.changed <- struct{}{}
	cancel()
	<-done
}

func TestReportPauseGrows(t *testing.T) {
	pause := reportPause()
	for i := range 20 {
		d := pause.Step()
		if d < time.Second || d > 90*time.Second {
			t.Errorf("pause %d is %s", i, d)
		}
		if i > 8 && d < time.Minute {
			t.Errorf("pause %d is %s, want at least a minute by then", i, d)
		}
	}
}
