package volume_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
)

// cloned is a volume with files on one node, and its clone that has begun on another.
type cloned struct{ from, to *node }

func newCloned(t *testing.T, from ...option) cloned {
	t.Helper()
	c := cloned{startAt(t, t.TempDir(), from...), startAt(t, t.TempDir())}
	must(t, sized(t, c.from, "pvc-1", 16, nil))
	c.from.writeFiles(t, "pvc-1", 'a')
	wants(t, c.create(t.Context()), volume.ErrFilling, "pvc-2 is a copy of volume pvc-1")
	return c
}

// create asks for the clone once.
func (c cloned) create(ctx context.Context) error {
	s := spec("pvc-2")
	s.Bytes, s.Source, s.Remote = 16*mebibyte, fromVolume("pvc-1"), 16*mebibyte
	_, err := c.to.Create(ctx, s)
	return err
}

// bring fills the clone, as the controller has it done. It calls before with the count of each batch, whose error is
// that of the connection.
func (c cloned) bring(ctx context.Context, before func(batch int) error) error {
	_, err := c.fill(ctx, "pvc-2", store.Source{ID: "pvc-1"}, before)
	return err
}

// fill fills a copy from the other node as far as before allows, and gives where it began.
func (c cloned) fill(
	ctx context.Context, id string, of store.Source, before func(batch int) error,
) (from []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = c.to.Fill(ctx, id, func(_ context.Context, at []byte) (
		func(context.Context) (copytree.Batch, error), error,
	) {
		from = at
		batches, failed := make(chan copytree.Batch), make(chan error, 1)
		go func() {
			failed <- c.from.Read(ctx, of, at, func(b copytree.Batch) error {
				select {
				case batches <- b:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		count := 0
		return func(context.Context) (b copytree.Batch, err error) {
			count++
			if err := before(count); err != nil {
				return b, err
			}
			select {
			case b = <-batches:
				return b, nil
			case err := <-failed:
				return b, fmt.Errorf("%w: %w", volume.ErrSource, err)
			}
		}, nil
	})
	return from, err
}

func undisturbed(int) error { return nil }

// TestCloneToAnotherNode: its source cannot be deleted meanwhile.
func TestCloneToAnotherNode(t *testing.T) {
	c := newCloned(t)
	must(t, c.bring(t.Context(), func(batch int) error {
		if batch == 8 {
			wants(t, c.from.Delete(t.Context(), "pvc-1"), volume.ErrCopied, "another node")
			if _, health, err := c.to.Get(t.Context(), "pvc-2"); err != nil || health.Reason != "Filling" {
				t.Errorf("%+v, %v", health, err)
			}
			if count, copied, expected := c.to.Copying(); count != 1 || copied < mebibyte || expected < copied {
				t.Errorf("%d copies with %d of %d bytes", count, copied, expected)
			}
		}
		return nil
	}))
	must(t, c.create(t.Context()), c.from.Delete(t.Context(), "pvc-1"))
	hasFiles(t, c.to.path("pvc-2"), 'a')
	c.to.consistent(t, "cloned")
	wants(t, c.bring(t.Context(), undisturbed), volume.ErrExists)
}

// TestDeleteOfACloneThatHasBegun leaves nothing, and another one of its name begins as the first.
func TestDeleteOfACloneThatHasBegun(t *testing.T) {
	c := newCloned(t)
	must(t, c.to.Delete(t.Context(), "pvc-2"))
	c.to.purgeAll(t)
	c.to.consistent(t, "deleted")
	wants(t, c.bring(t.Context(), undisturbed), store.ErrNotFound)
	wants(t, c.create(t.Context()), volume.ErrFilling)
	must(t, c.bring(t.Context(), undisturbed), c.create(t.Context()))
	hasFiles(t, c.to.path("pvc-2"), 'a')
}

// TestCopiesKeepToTheirRate: 10 MiB are not there before their time, less the MiB that may be read at once.
func TestCopiesKeepToTheirRate(t *testing.T) {
	c := newCloned(t, withRate(16*mebibyte))
	begin := time.Now()
	must(t, c.bring(t.Context(), undisturbed), c.create(t.Context()))
	if took := time.Since(begin); took < 9*time.Second/16 {
		t.Errorf("10 MiB at 16 MiB/s took %v", took)
	}
	hasFiles(t, c.to.path("pvc-2"), 'a')
}

// TestPodStartsWhileItsVolumeGoesToAnotherNode: the clone ends, and its request hears why.
func TestPodStartsWhileItsVolumeGoesToAnotherNode(t *testing.T) {
	c := newCloned(t)
	err := c.bring(t.Context(), func(batch int) error {
		if batch == 8 {
			must(t, c.from.Publish(t.Context(), publish("pvc-1", target)))
		}
		return nil
	})
	wants(t, err, volume.ErrSource, "a pod that uses pvc-1 was started")
	c.to.consistent(t, "ended")
	wants(t, c.create(t.Context()), volume.ErrSource, "a pod that uses pvc-1 was started")
	wants(t, c.create(t.Context()), volume.ErrFilling)
	wants(t, c.bring(t.Context(), undisturbed), volume.ErrSource, "is mounted at")
	wants(t, c.create(t.Context()), volume.ErrSource, "is mounted at")
	must(t, c.from.Unpublish(t.Context(), "pvc-1", target))
	wants(t, c.create(t.Context()), volume.ErrFilling)
	must(t, c.bring(t.Context(), undisturbed), c.create(t.Context()))
	hasFiles(t, c.to.path("pvc-2"), 'a')
}

// TestCloneOfWhatChangesBetweenTwoConnections begins anew: nothing of the first is left in it.
func TestCloneOfWhatChangesBetweenTwoConnections(t *testing.T) {
	c := newCloned(t)
	wants(t, c.bring(t.Context(), func(batch int) error {
		if batch == 8 {
			return volume.ErrBusy
		}
		return nil
	}), volume.ErrBusy)
	c.from.writeFiles(t, "pvc-1", 'b')
	must(t, os.Rename(c.from.path("pvc-1", "file0"), c.from.path("pvc-1", "file00")))
	wants(t, c.bring(t.Context(), undisturbed), volume.ErrBusy, "begins anew")
	wants(t, c.create(t.Context()), volume.ErrFilling)
	must(t, c.bring(t.Context(), undisturbed), c.create(t.Context()))
	hasFiles(t, c.to.path("pvc-2"), 'b')
	if content, err := os.ReadFile(c.to.path("pvc-2", "file00")); err != nil || !bytes.HasPrefix(content, []byte("b")) {
		t.Errorf("file00: %v", err)
	}
	c.to.consistent(t, "cloned")
}

// TestUsageOfAnInterruptedRestore is kept: a node whose connection is cut again and again, and that says of no batch
// where to go on, writes no more than one that has it all in one.
func TestUsageOfAnInterruptedRestore(t *testing.T) {
	n := startAt(t, t.TempDir())
	s := spec("pvc-2")
	s.Source, s.Remote = fromSnapshot(snap2), mebibyte
	_, err := n.Create(t.Context(), s)
	wants(t, err, volume.ErrFilling)
	was := int64(0)
	for attempt := range 3 {
		sent := false
		wants(t, n.Fill(t.Context(), s.ID, func(context.Context, []byte) (
			func(context.Context) (copytree.Batch, error), error,
		) {
			return func(context.Context) (copytree.Batch, error) {
				if sent {
					return copytree.Batch{}, volume.ErrBusy
				}
				sent = true
				dir := entry.New(entry.EnterDir, fmt.Sprint(attempt))
				return copytree.Batch{Entries: dir.AppendTo(entry.Begin())}, nil
			}, nil
		}), volume.ErrBusy)
		place, err := transfer.Decode(n.records(t)[s.ID].Source.From)
		if must(t, err); place.Usage < was+512 {
			t.Errorf("%d bytes are counted after attempt %d, %d before", place.Usage, attempt, was)
		}
		was = place.Usage
	}
}
