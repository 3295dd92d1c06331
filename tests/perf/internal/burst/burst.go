// Package burst measures how a cluster takes many claims at once, each with a pod of its own: when they are bound,
// when the pods run, when the volumes are gone after deletion, and what the provisioner under test costs meanwhile.
package burst

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workload"
)

// System is a provisioner under test.
type System struct {
	// Name is what reports call it; with the prefix "perf-" also a namespace.
	Name string
	// Class is its StorageClass, with WaitForFirstConsumer.
	Class string
	// Accounts are the ServiceAccounts in Namespace whose requests to the API server are counted.
	Namespace string
	Accounts  []string
	// Processes are the names of its processes on the nodes, 15 characters at most (comm, proc_pid_comm(5)).
	Processes []string
	// OnNodes is the one of them that is on every node.
	OnNodes string
	// Central is the one of them that runs on one node only, "" if none does.
	Central string
}

// Options say how to measure.
type Options struct {
	Client kubernetes.Interface
	// Claims is how many claims there are, each with a pod.
	Claims int
	// Rounds is how often the systems take turns.
	Rounds int
	// Image is what the pods run; it has to sleep when told "sleep".
	Image string
	// Memory reads the processes' memory.
	Memory func(context.Context, []string) (Memory, error)
	// Quiet waits until the machine does nothing else, for what is about to be measured.
	Quiet func(ctx context.Context, what string) error
	// Beside is what to do meanwhile in a system's last round; nil for nothing.
	Beside func(context.Context, System) error
	// Log says what is being done.
	Log func(format string, args ...any)
}

// Outcome is what was measured of one system.
type Outcome struct {
	System System
	Rounds []Round
	// IdlePerMinute is how many requests the accounts send while nothing happens.
	IdlePerMinute float64
}

// Round is one burst. All times but those of single claims count from the first request.
type Round struct {
	// Bound and Running are when each claim was bound and each pod ran, Gone when each volume was gone, in rising
	// order; Gone counts from the request for deletion.
	Bound, Running, Gone []time.Duration
	// ToBound and ToRunning are how long each claim waited from its own creation.
	ToBound, ToRunning []time.Duration
	// Requests counts those of the system's accounts from the first claim to the last volume gone, by kind of object.
	Requests Requests
	// CPU is what everything used, from shortly before the first claim until shortly after the last volume was gone.
	CPU CPU
	// Memory is what the system's processes hold on each node while all pods run.
	Memory Memory
}

// waitTimeout ends a burst that does not come to an end. It is an error, not a measurement.
const waitTimeout = 20 * time.Minute

// idle is for how long the requests of systems without work are counted.
const idle = time.Minute

// contestant is a system that takes its turns.
type contestant struct {
	Outcome
	namespace string
	counter   *counter
}

// Run lets systems that are all installed take turns, another one first in each round. Whatever it made is removed
// again.
func Run(ctx context.Context, o Options, systems []System) (all []Outcome, err error) {
	var contestants []*contestant
	for _, s := range systems {
		c := &contestant{Outcome: Outcome{System: s}, namespace: "perf-" + s.Name}
		if c.counter, err = newCounter(ctx, o.Client, s); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, c.counter.close()) }()
		if err := workload.MakeNamespace(ctx, o.Client, c.namespace); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, workload.RemoveNamespace(o.Client, c.namespace)) }()
		o.Log("%s: warm up, so that every node has the images", s.Name)
		warm := o
		warm.Claims = 6
		if _, err := c.burst(ctx, warm); err != nil {
			return nil, fmt.Errorf("%s: warm up: %w", s.Name, err)
		}
		contestants = append(contestants, c)
	}
	if err := countIdle(ctx, o, contestants); err != nil {
		return nil, err
	}
	for i := range o.Rounds {
		for _, c := range stat.Rotated(contestants, i) {
			if err := c.round(ctx, o, i); err != nil {
				return nil, fmt.Errorf("%s: %w", c.System.Name, err)
			}
		}
	}
	for _, c := range contestants {
		all = append(all, c.Outcome)
	}
	return all, nil
}

// countIdle counts the requests of all of them while nothing happens.
func countIdle(ctx context.Context, o Options, contestants []*contestant) error {
	if err := o.Quiet(ctx, "counting the requests of idle systems"); err != nil {
		return err
	}
	o.Log("count the requests of idle systems for %s", idle)
	before := map[*contestant]Requests{}
	var err error
	for _, c := range contestants {
		if before[c], err = c.counter.read(ctx); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(idle):
	}
	for _, c := range contestants {
		after, err := c.counter.read(ctx)
		if err != nil {
			return err
		}
		c.IdlePerMinute = after.since(before[c]).Total() / idle.Minutes()
	}
	return nil
}

// round is one burst with all that it costs.
func (c *contestant) round(ctx context.Context, o Options, i int) error {
	if err := o.Quiet(ctx, fmt.Sprintf("burst %d of %s", i+1, c.System.Name)); err != nil {
		return err
	}
	cpu, err := readCPU(ctx, o.Client)
	if err != nil {
		return err
	}
	requests, err := c.counter.read(ctx)
	if err != nil {
		return err
	}
	var beside errgroup.Group
	if o.Beside != nil && i == o.Rounds-1 {
		beside.Go(func() error { return o.Beside(ctx, c.System) })
	}
	r, err := c.burst(ctx, o)
	if err = errors.Join(err, beside.Wait()); err != nil {
		return err
	}
	if r.Requests, err = c.counter.read(ctx); err != nil {
		return err
	}
	if r.CPU, err = readCPU(ctx, o.Client); err != nil {
		return err
	}
	r.Requests, r.CPU = r.Requests.since(requests), r.CPU.since(cpu)
	c.Rounds = append(c.Rounds, r)
	return nil
}

// burst makes the claims and pods, waits, deletes them, and waits again.
func (c *contestant) burst(ctx context.Context, o Options) (r Round, err error) {
	ctx, cancel := context.WithTimeoutCause(
		ctx, waitTimeout, fmt.Errorf("the burst of %s did not end in %s", c.System.Name, waitTimeout),
	)
	defer cancel()
	w, err := startWatch(ctx, o.Client, c.namespace)
	if err != nil {
		return r, err
	}
	defer w.stop()
	name := c.System.Name
	o.Log("%s: %d claims, each with a pod", name, o.Claims)
	start := time.Now()
	if err := createAll(ctx, o, c.System, c.namespace, w); err != nil {
		return r, err
	}
	if err := w.await(ctx, "all pods run", func() bool { return w.running.len() >= o.Claims }); err != nil {
		return r, errors.Join(err, workload.FirstTrouble(ctx, o.Client, c.namespace))
	}
	r.Bound, r.Running = w.bound.since(start), w.running.since(start)
	r.ToBound, r.ToRunning = w.bound.after(&w.created), w.running.after(&w.created)
	if r.Memory, err = o.Memory(ctx, c.System.Processes); err != nil {
		return r, err
	}
	o.Log("%s: all pods run after %s; delete everything", name, time.Since(start).Round(100*time.Millisecond))
	start = time.Now()
	if err := deleteAll(ctx, o.Client, c.namespace); err != nil {
		return r, err
	}
	if err := w.await(ctx, "all volumes are gone", func() bool { return w.gone.len() >= o.Claims }); err != nil {
		return r, err
	}
	r.Gone = w.gone.since(start)
	o.Log("%s: all volumes gone after %s", name, time.Since(start).Round(100*time.Millisecond))
	return r, w.await(ctx, "all claims and pods are gone", w.empty)
}
