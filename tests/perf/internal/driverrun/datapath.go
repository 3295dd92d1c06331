package driverrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/fio"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
)

// dataPath lets fio take turns in the bind mount of a published volume and in a directory beside the pool.
func (r *run) dataPath(ctx context.Context) error {
	s := r.subjects[0]
	id := s.nextID()
	if err := s.createOf(ctx, id, 8*fio.Bytes); err != nil { // btrfs counts what was overwritten until it commits
		return err
	}
	beside := filepath.Join(r.Disks[0].Path, "fio")
	if err := os.Mkdir(beside, 0o700); err != nil {
		return fmt.Errorf("make a directory beside the pool: %w", err)
	}
	err := s.whilePublished(ctx, id, func(volume string) error {
		for _, job := range fio.Jobs() {
			if err := r.compareRates(ctx, job, volume, beside); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, os.RemoveAll(beside), s.remove(ctx, id))
}

// compareRates adds the median rate of a job in each directory, and their ratio.
func (r *run) compareRates(ctx context.Context, job fio.Job, volume, beside string) error {
	const turns = 3
	rates, dirs := map[string][]float64{}, []string{volume, beside}
	for turn := range 1 + turns {
		for _, dir := range stat.Rotated(dirs, turn) {
			rate, err := fio.Run(ctx, dir, job)
			if err != nil && !errors.Is(err, fio.ErrMissing) {
				return err
			}
			if turn > 0 { // the first one also finds room for the file
				rates[dir] = append(rates[dir], rate)
			}
		}
	}
	name := r.disk.Name + ": fio, " + job.Name
	figure := func(where, dir string) report.Figure {
		value := stat.Median(rates[dir])
		return report.Figure{
			Name: name + where, Value: value, Unit: job.Unit, Samples: turns, NotMeasured: value <= 0,
		}
	}
	r.extra = append(r.extra, figure(" in a volume", volume), figure(" on the disk", beside),
		report.Quotient(name+", volume / disk", rates[volume], rates[beside], nil))
	return nil
}
