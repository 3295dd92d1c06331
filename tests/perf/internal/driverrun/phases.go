package driverrun

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
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
	return nil
}

// rounds lets the baselines and the drivers take turns.
func (r *run) rounds(ctx context.Context) error {
	contestants := []func() error{r.baselines}
	for _, s := range r.subjects {
		contestants = append(contestants, func() error { return r.round(ctx, s) })
	}
	return inTurns(r.Rounds, contestants, call)
}

// inTurns lets contestants take turns, another one first in each round.
func inTurns[T any](rounds int, contestants []T, measure func(T) error) error {
	for i := range rounds {
		for _, c := range stat.Rotated(contestants, i) {
			if err := measure(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func call(measure func() error) error { return measure() }

// round is what one driver does in its turn.
func (r *run) round(ctx context.Context, s *subject) error {
	if err := r.createRound(ctx, s); err != nil {
		return err
	}
	up, down, err := s.publishMany(ctx, publishes)
	if err != nil {
		return err
	}
	r.add(opPublish, s.volumes, up)
	r.add(opUnpublish, s.volumes, down)
	if err := r.measure(ctx, opRepeat, s, asks, s.repeat); err != nil {
		return err
	}
	return r.measure(ctx, opEmpty, s, asks, s.empty)
}

// measure keeps what n calls of a kind take.
func (r *run) measure(
	ctx context.Context, op string, s *subject, n int, calls func(context.Context, int) ([]time.Duration, error),
) error {
	took, err := calls(ctx, n)
	if err == nil {
		r.add(op, s.volumes, took)
	}
	return err
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
	return inTurns(r.Rounds/2+1, r.subjects, func(s *subject) error {
		took, all, err := s.createParallel(ctx, together, clients)
		if err == nil {
			r.addParallel(s.volumes, took, all)
		}
		return err
	})
}

func (r *run) stats(ctx context.Context) error {
	return inTurns(r.Rounds, r.subjects, func(s *subject) error {
		return r.measure(ctx, opStats, s, asks, s.statsMany)
	})
}

func (r *run) deletes(ctx context.Context) error {
	return inTurns(r.Rounds, r.subjects, func(s *subject) error {
		return r.measure(ctx, opDelete, s, deletes, s.deleteMany)
	})
}

// deletesFull comes last: purging what it deletes goes on for a while, and creation is timed beside that.
func (r *run) deletesFull(ctx context.Context) error {
	s, op := r.subjects[0], fmt.Sprintf(opFull, r.Files)
	took, err := s.deleteFull(ctx, max(1, fullFiles/r.Files), r.Files, func() error { return r.settle(ctx, op) })
	if err != nil {
		return err
	}
	r.add(op, s.volumes, took)
	for range r.Rounds {
		if err := r.measure(ctx, opPurging, s, creates, s.createMany); err != nil {
			return err
		}
	}
	return nil
}
