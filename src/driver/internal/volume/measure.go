package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

const (
	// measureSlice is how long Measure keeps a pool open at a time.
	measureSlice = 100 * time.Millisecond
	// measureShare is how many milliseconds of a second all measurements of a node may work: the disk is for pods.
	measureShare = 250
)

// Measure counts what is allocated to a volume's directory and all that is in it, published or not, and says after each
// slice how many files and bytes it has counted. What changes meanwhile may be counted or not. It ends with ctx: it can
// take hours.
func (m *Manager) Measure(ctx context.Context, id string, progress func(files, bytes int64)) error {
	end, err := m.take("measure", id)
	if err != nil {
		return err
	}
	defer end()
	in := ""
	err = m.find(ctx, id, func(o *pool.Open, r store.Record) error {
		in = o.Name
		_, err := dataOf(o, r)
		return err
	})
	var usage disk.Usage
	for more := true; more && err == nil; {
		begun := m.Now()
		err = m.Pools.Use(ctx, in, func(o *pool.Open) error { return m.measureSlice(ctx, o, id, &usage) })
		if more = errors.Is(err, errSliceOver); more {
			err = ctx.Err()
		}
		progress(usage.Files, usage.Bytes)
		if took := m.Now().Sub(begun).Milliseconds(); more && err == nil {
			err = m.measuring.WaitN(ctx, int(min(max(0, took), measureShare)))
		}
	}
	if err != nil {
		return fmt.Errorf("measure volume %s: %w", id, err)
	}
	return nil
}

// measureSlice ends with errSliceOver where there is more, but never before it has counted something.
func (m *Manager) measureSlice(ctx context.Context, o *pool.Open, id string, usage *disk.Usage) error {
	end, steps := m.Now().Add(measureSlice), 0
	return usage.Measure(ctx, o.Disk, id, func(ctx context.Context) error {
		if steps++; steps > 1 && m.Now().After(end) {
			return errSliceOver
		}
		return ctx.Err()
	})
}
