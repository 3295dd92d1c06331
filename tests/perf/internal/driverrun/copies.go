package driverrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/pooldir"
)

// tree is what a volume has that is copied or deleted.
type tree struct {
	name  string
	files int
	bytes int64  // of each file
	id    string // of the volume that has it
}

// room is the size of a volume for a tree, in bytes; btrfs counts what files need besides their data.
func (t tree) room() int64 { return 64<<20 + int64(t.files)*(t.bytes+2048) }

// source is its volume in a request.
func (t tree) source() *csi.VolumeContentSource {
	from := &csi.VolumeContentSource_VolumeSource{VolumeId: t.id}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: from}}
}

// copies is a measurement of copies under way.
type copies struct {
	*run
	s     *subject
	trees []tree
}

// Copies measures snapshots, restores and clones on one kind of disk. Where the filesystem makes them, they are of a
// volume and of one with twice its data. Elsewhere they are made file by file, beside cp(1).
func Copies(ctx context.Context, o Options) (_ Result, err error) {
	const longest = 6 * time.Hour // without a deadline, the driver ends a call after two minutes
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	r, err := newRun(o)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if _, err := r.start(ctx, r.disk, o.Volumes[0]); err != nil {
		return Result{}, err
	}
	c := &copies{run: r, s: r.subjects[0], trees: []tree{
		{name: "1 file of 512 MiB", files: 1, bytes: 512 << 20},
		{name: fmt.Sprintf("%d files of 4 KiB", o.Files), files: o.Files, bytes: 4 << 10},
	}}
	phases := []phase{{"copies file by file, and cp", c.byFile}, {"calls beside a copy", c.beside}}
	if r.counted() {
		c.trees = []tree{
			{name: "512 MiB", files: 1, bytes: 512 << 20}, {name: "1 GiB", files: 1, bytes: 1 << 30},
		}
		phases = []phase{{"snapshots, restores and clones", c.sharing}}
	}
	if err := c.fill(ctx); err != nil {
		return Result{}, err
	}
	err = r.phases(ctx, phases)
	return Result{Section: r.copiesSection(c.s.volumes, c.trees), Bench: r.bench}, err
}

// fill makes a volume of each tree.
func (c *copies) fill(ctx context.Context) error {
	for i, t := range c.trees {
		c.trees[i].id = c.s.nextID()
		if err := c.s.createOf(ctx, c.trees[i].id, t.room()); err != nil {
			return err
		}
		if err := pooldir.Fill(pooldir.Data(c.s.Path, c.trees[i].id), t.files, t.bytes); err != nil {
			return err
		}
	}
	return nil
}

// sharing makes copies that share their data.
func (c *copies) sharing(ctx context.Context) error {
	return inTurns(c.Rounds, c.trees, func(from tree) error {
		const each = 5
		var snapshots []*csi.Snapshot
		took, err := timed(each, func(int) error {
			snapshot, err := c.s.snapshot(ctx, from.id)
			snapshots = append(snapshots, snapshot)
			return err
		})
		if err != nil {
			return err
		}
		c.add(fmt.Sprintf(opSnapshot, from.name), c.s.volumes, took)
		of := &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshots[0].GetSnapshotId()}
		snapshot := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: of}}
		err = errors.Join(c.cloneMany(ctx, each, opRestore, from, snapshot),
			c.cloneMany(ctx, each, opClone, from, from.source()))
		for _, snapshot := range snapshots {
			_, failed := c.s.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()})
			err = errors.Join(err, failed)
		}
		return errors.Join(err, c.s.purged(ctx))
	})
}

// cloneMany times n copies, and deletes them.
func (c *copies) cloneMany(ctx context.Context, n int, op string, from tree, source *csi.VolumeContentSource) error {
	var ids []string
	took, err := timed(n, func(int) error {
		ids = append(ids, c.s.nextID())
		return c.s.createWhole(ctx, ids[len(ids)-1], from.room(), source)
	})
	if err != nil {
		return err
	}
	c.add(fmt.Sprintf(op, from.name), c.s.volumes, took)
	for _, id := range ids {
		err = errors.Join(err, c.s.remove(ctx, id))
	}
	return err
}

// byFile makes copies one by one, by the driver and by cp.
func (c *copies) byFile(ctx context.Context) error {
	var contestants []func() error
	for _, from := range c.trees {
		contestants = append(contestants, func() error {
			err := errors.Join(pooldir.Sync(c.s.Path), c.cloneMany(ctx, 1, opClone, from, from.source()))
			return errors.Join(err, c.s.purged(ctx))
		}, func() error { return errors.Join(pooldir.Sync(c.s.Path), c.cp(ctx, from)) })
	}
	return inTurns(c.Rounds, contestants, call)
}

// cp is what a user would do. As in the driver's copies, the data is shared where it can be, and durable at the end.
func (c *copies) cp(ctx context.Context, from tree) error {
	to := filepath.Join(c.disk.Path, "cp")
	took, err := timed(1, func(int) error {
		cp := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", pooldir.Data(c.s.Path, from.id), to)
		if out, err := cp.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", cp, err, out)
		}
		return pooldir.Sync(to)
	})
	if err == nil {
		c.add(fmt.Sprintf(opCp, from.name), baseline, took)
	}
	return errors.Join(err, os.RemoveAll(to))
}

// beside times calls without a copy, and beside one of each tree.
func (c *copies) beside(ctx context.Context) error {
	const alone = time.Second
	contestants := []func() error{func() error {
		during, end := context.WithTimeout(ctx, alone)
		defer end()
		return c.lives(ctx, during, opAlone)
	}}
	for _, from := range c.trees {
		contestants = append(contestants, func() error {
			during, whole := context.WithCancel(ctx)
			id, copying := c.s.nextID(), errgroup.Group{}
			copying.Go(func() error {
				defer whole()
				return c.s.createWhole(ctx, id, from.room(), from.source())
			})
			err := c.lives(ctx, during, fmt.Sprintf(opBeside, from.name))
			return errors.Join(err, copying.Wait(), c.s.remove(ctx, id), c.s.purged(ctx))
		})
	}
	return inTurns(c.Rounds, contestants, call)
}

// lives makes, publishes, looks at, unpublishes and deletes one volume after the other until a context ends, and keeps
// what the calls took that began before that.
func (c *copies) lives(ctx, during context.Context, beside string) error {
	calls := []func(context.Context, string) error{c.s.create, c.s.publish, c.s.stats, c.s.unpublish, c.s.remove}
	took := make([][]time.Duration, len(calls))
	for during.Err() == nil {
		id := c.s.nextID()
		if err := c.s.makeParent(id); err != nil {
			return err
		}
		for i, do := range calls {
			counts, start := during.Err() == nil, time.Now()
			if err := do(ctx, id); err != nil {
				return err
			}
			if counts {
				took[i] = append(took[i], time.Since(start))
			}
		}
	}
	for i, op := range lifeOps() {
		if len(took[i]) > 0 { // a copy that shares its data may be whole before
			c.add(op+beside, c.s.volumes, took[i])
		}
	}
	return nil
}
