// Package driverrun measures the built driver alone, over its socket, on one disk: what a call takes, with few and
// with many volumes in the pool, beside what the same disk takes for the same steps done by hand.
package driverrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/driverd"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/pooldir"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workdisk"
)

// Options say what to measure.
type Options struct {
	// Binary is the built driver.
	Binary string
	// Disks are one for all pools, or one for each; all of one kind.
	Disks []workdisk.Disk
	// Volumes are the sizes of the pools to compare, the smallest first.
	Volumes []int
	// Rounds is how often the subjects take turns.
	Rounds int
	// Files is how many files the full volumes have whose deletion is timed, or copying.
	Files int
	// Idle also measures what a driver uses that has nothing to do.
	Idle bool
	// Quiet waits until the machine does nothing else, for what is about to be measured.
	Quiet func(ctx context.Context, what string) error
	// Log says what is being done.
	Log func(format string, args ...any)
}

// Result is what one disk gave.
type Result struct {
	Section report.Section
	Bench   []report.BenchLine
}

// Calls in a round of each kind, and for what is done once.
const (
	creates   = 50
	publishes = 30
	deletes   = 20
	together  = 480 // creations by all clients of a round
	clients   = 16
	asks      = 50        // of one volume, or of nothing
	fullFiles = 1_000_000 // in all volumes together that are deleted full of files
)

// run is a measurement under way.
type run struct {
	Options
	*recorder
	work     string // for the drivers' sockets
	raws     []*raw
	subjects []*subject
}

// Run measures on one kind of disk.
func Run(ctx context.Context, o Options) (_ Result, err error) {
	r, err := newRun(o)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for i, volumes := range o.Volumes {
		took, err := r.start(ctx, o.Disks[i%len(o.Disks)], volumes)
		if err != nil {
			return Result{}, err
		}
		r.add(opRecover, volumes, []time.Duration{took})
		if !r.Idle {
			continue
		}
		if err := r.idle(r.subjects[i].Driver, volumes); err != nil {
			return Result{}, err
		}
	}
	defer func() { err = errors.Join(err, r.closeRaws()) }()
	for i, disk := range o.Disks {
		volumes := baseline
		if len(o.Disks) > 1 {
			volumes = o.Volumes[i]
		}
		if err := r.byHand(disk, volumes); err != nil {
			return Result{}, err
		}
	}
	err = r.phases(ctx, []phase{
		{"warm up", r.warmUp},
		{"CreateVolume, NodePublishVolume, NodeUnpublishVolume", r.rounds},
		{"NodeGetVolumeStats", r.stats},
		{"CreateVolume with 16 clients", r.parallel},
		{"fio in a volume and beside it", r.dataPath},
		{"DeleteVolume", r.deletes},
		{"DeleteVolume of full volumes", r.deletesFull},
	})
	return Result{Section: r.section(), Bench: r.bench}, err
}

func newRun(o Options) (*run, error) {
	work, err := os.MkdirTemp("", "hpp-perf-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the drivers' sockets: %w", err)
	}
	return &run{Options: o, recorder: newRecorder(o.Disks[0]), work: work}, nil
}

// phase is a part of a measurement that begins on a quiet machine.
type phase struct {
	name string
	do   func(context.Context) error
}

func (r *run) phases(ctx context.Context, all []phase) error {
	for _, phase := range all {
		r.Log("%s: %s", r.disk.Name, phase.name)
		if err := r.settle(ctx, phase.name); err != nil {
			return err
		}
		if err := phase.do(ctx); err != nil {
			return fmt.Errorf("%s: %s: %w", r.disk.Name, phase.name, err)
		}
	}
	return nil
}

// settle waits for what the filesystems write by themselves, so that nobody's fsync pays for it.
func (r *run) settle(ctx context.Context, what string) error {
	for _, disk := range r.Disks {
		if err := pooldir.Sync(disk.Path); err != nil {
			return err
		}
	}
	return r.Quiet(ctx, r.disk.Name+": "+what)
}

func (r *run) close() error {
	var errs []error
	for _, s := range r.subjects {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(r.work))...)
}

// byHand prepares what is done without a driver, beside so many volumes.
func (r *run) byHand(disk workdisk.Disk, volumes int) error {
	raw, err := newRaw(filepath.Join(disk.Path, "by-hand"), volumes, r.counted())
	if err == nil {
		r.raws = append(r.raws, raw)
	}
	return err
}

func (r *run) closeRaws() error {
	var errs []error
	for _, raw := range r.raws {
		errs = append(errs, raw.Close())
	}
	return errors.Join(errs...)
}

// start makes a pool and starts a driver on it, and gives how long its recovery took.
func (r *run) start(ctx context.Context, disk workdisk.Disk, volumes int) (time.Duration, error) {
	name := fmt.Sprintf("perf-%d", volumes)
	path, work := filepath.Join(disk.Path, name), filepath.Join(r.work, fmt.Sprint(volumes))
	r.Log("%s: make a pool of %d volumes", disk.Name, volumes)
	counted, quota := r.counted(), ""
	if counted {
		quota = "required"
	}
	pool := pooldir.Pool{Path: path, Name: name, Volumes: volumes, Counted: counted}
	if err := errors.Join(os.MkdirAll(work, 0o700), pooldir.Make(pool)); err != nil {
		return 0, err
	}
	d, err := driverd.Start(ctx, driverd.Options{Binary: r.Binary, Pool: name, Path: path, Quota: quota, Work: work})
	if err != nil {
		return 0, err
	}
	r.subjects = append(r.subjects, &subject{Driver: d, volumes: volumes})
	return d.Recovered(ctx, pooldir.VolumeID(volumes-1))
}

// idle measures what a driver uses while nothing happens.
func (r *run) idle(d *driverd.Driver, volumes int) error {
	const settle, watch = 3 * time.Second, 10 * time.Second
	r.Log("%s: let the driver with %d volumes idle", r.disk.Name, volumes)
	time.Sleep(settle)
	before, err := d.CPU()
	if err != nil {
		return err
	}
	time.Sleep(watch)
	after, err := d.CPU()
	if err != nil {
		return err
	}
	rss, err := d.RSS()
	if err != nil {
		return err
	}
	memory := report.Memory(fmt.Sprintf("idle, %d volumes: RSS of the driver", volumes), rss, nil)
	switch volumes {
	case r.Volumes[0]:
		memory.Budget = report.AtMost(25)
	case budgeted:
		memory.Budget = report.AtMost(100)
	}
	r.extra = append(r.extra, memory, report.Figure{
		Name:  fmt.Sprintf("idle, %d volumes: processor time", volumes),
		Value: float64(after-before) / float64(watch) * 100, Unit: report.Percent,
	})
	return nil
}
