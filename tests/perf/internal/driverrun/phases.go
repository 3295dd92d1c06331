package driverrun

import (
	"context"
	"fmt"
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/pooldir"
)

// warmUp does everything a few times without recording it.
func (r *run) warmUp(ctx context.Context) error {
	const few = 20
	for _, raw := range r.raws {
		for range few {
			if err := raw.create(); err != nil {
				return err
			}
		}
	}
	for _, s := range r.subjects {
		if _, err := s.createMany(ctx, few); err != nil {
			return err
		}
		if _, _, err := s.publishMany(ctx, few); err != nil {
			return err
		}
		if _, err := s.deleteMany(ctx, few); err != nil {
			return err
		}
	}
	for _, disk := range r.Disks {
		if err := pooldir.Sync(disk.Path); err != nil {
			return err
		}
	}
	return nil
}

// rounds lets baselines and drivers take turns.
func (r *run) rounds(ctx context.Context) error {
	for range r.Rounds {
		if err := r.baselines(); err != nil {
			return err
		}
		for _, s := range r.subjects {
			if err := r.createRound(ctx, s); err != nil {
				return err
			}
		}
		for _, s := range r.subjects {
			up, down, err := s.publishMany(ctx, publishes)
			if err != nil {
				return err
			}
			r.add(opPublish, s.volumes, up)
			r.add(opUnpublish, s.volumes, down)
		}
	}
	return nil
}

// createRound makes volumes, and on btrfs counts the commits that they took.
func (r *run) createRound(ctx context.Context, s *subject) error {
	before, err := r.commits(s.Path)
	if err != nil {
		return err
	}
	took, err := s.createMany(ctx, creates)
	if err != nil {
		return err
	}
	r.add(opCreate, s.volumes, took)
	after, err := r.commits(s.Path)
	r.commit(s.volumes, creates, after-before)
	return err
}

// commits is how often the filesystem of a path has committed a transaction, 0 where nobody counts.
func (r *run) commits(path string) (int, error) {
	if !r.counted() {
		return 0, nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("count commits: %w", err)
	}
	defer func() { _ = dir.Close() }()
	return btrfs.Commits(dir)
}

func (r *run) baselines() error {
	for _, raw := range r.raws {
		for _, b := range raw.baselines() {
			took, err := timed(b.times, func(int) error { return b.do() })
			if err != nil {
				return fmt.Errorf("baseline %s: %w", b.op, err)
			}
			r.add(b.op, raw.volumes, took)
		}
	}
	return nil
}

func (r *run) parallel(ctx context.Context) error {
	for range r.Rounds/2 + 1 {
		for _, s := range r.subjects {
			took, all, err := s.createParallel(ctx, together, clients)
			if err != nil {
				return err
			}
			r.addParallel(s.volumes, took, all)
		}
	}
	return nil
}

func (r *run) stats(ctx context.Context) error {
	for range r.Rounds {
		for _, s := range r.subjects {
			took, err := s.statsMany(ctx, asks)
			if err != nil {
				return err
			}
			r.add(opStats, s.volumes, took)
		}
	}
	return nil
}

func (r *run) deletes(ctx context.Context) error {
	for range r.Rounds {
		for _, s := range r.subjects {
			took, err := s.deleteMany(ctx, deletes)
			if err != nil {
				return err
			}
			r.add(opDelete, s.volumes, took)
		}
	}
	return nil
}

// deletesFull comes last: purging what it deletes goes on for a while, and creation is timed beside that.
func (r *run) deletesFull(ctx context.Context) error {
	s := r.subjects[0]
	for _, files := range r.Files {
		took, err := s.deleteFull(ctx, full, files)
		if err != nil {
			return err
		}
		r.add(fmt.Sprintf(opFull, files), s.volumes, took)
		for range r.Rounds {
			took, err := s.createMany(ctx, creates)
			if err != nil {
				return err
			}
			r.add(opPurging, s.volumes, took)
		}
	}
	return nil
}
