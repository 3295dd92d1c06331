//go:build !vm

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestReadOnlySubvolumeIsDeleted: whoever owns a volume's root on btrfs may make it read-only, without any capability.
func TestReadOnlySubvolumeIsDeleted(t *testing.T) {
	n := startAt(t, btrfsDisk(t), required)
	s := spec("pvc-1")
	s.UID, s.GID = 1000, 1000
	_, err := n.Create(t.Context(), s)
	must(t, err)
	at := t.TempDir() // a pod gets there by its bind mount
	must(t, os.Chmod(at, 0o777), os.Chmod(at+"/..", 0o777))
	mounttest.Run(t, "mount", "--bind", n.path("pvc-1", "."), at)
	mounttest.Run(t, "sh", "-c", "cd "+at+" && setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all "+
		"btrfs property set -ts . ro true")
	mounttest.Run(t, "umount", at)
	must(t, n.Delete(t.Context(), "pvc-1"))
	n.purgeAll(t)
	n.consistent(t, "purged")
}

// TestManyNestedSubvolumes are removed in slices: each step does one thing, however many there are.
func TestManyNestedSubvolumes(t *testing.T) {
	n := startAt(t, btrfsDisk(t), required)
	s := spec("pvc-1")
	s.Bytes = 64 * mebibyte
	_, err := n.Create(t.Context(), s)
	must(t, err)
	parent, err := os.Open(n.path("pvc-1", "."))
	must(t, err)
	group := btrfs.NewQgroupID(1, uint64(n.records(t)["pvc-1"].QuotaID))
	const many, atATime = 300, 50
	for i := range many {
		must(t, btrfs.CreateSubvolume(parent, fmt.Sprint("nested-", i), group))
	}
	must(t, parent.Close(), n.Delete(t.Context(), "pvc-1"))
	over := errors.New("over")
	entries := n.ls(t, disk.TrashDir)
	data := disk.TrashDir + "/" + entries[len(entries)-1] + "/data"
	slices, gone := 0, false
	for ; !gone && slices < 2*many/atATime+5; slices++ {
		steps := 0
		step := func(context.Context) error {
			if steps++; steps > atATime {
				return over
			}
			return nil
		}
		must(t, n.set.Use(t.Context(), "local", func(o *pool.Open) error {
			err := o.Disk.RemoveTree(t.Context(), data, step)
			if gone = err == nil; !gone && !errors.Is(err, over) {
				return err
			}
			return nil
		}))
	}
	if !gone || slices < many/atATime {
		t.Errorf("gone %v after %d slices of %d steps, with %d subvolumes", gone, slices, atATime, many)
	}
}

// TestNestedSubvolumesAreNotMoved: no copy would have them, and the source goes.
func TestNestedSubvolumesAreNotMoved(t *testing.T) {
	n := startAt(t, btrfsDisk(t), required)
	mustCreate(t, n, "pvc-1")
	subvolume(t, n.path("pvc-1", "early"))
	_, _, err := n.Leave(t.Context(), "pvc-1", leave("b", "m1"), false)
	wants(t, err, volume.ErrUnsupported, "1 subvolumes")
	must(t, os.Remove(n.path("pvc-1", "early")))
	mustLeave(t, n, leave("b", "m1"), false)
	subvolume(t, n.path("pvc-1", "late")) // of a pod that has it still
	source := store.Source{ID: "pvc-1", Move: "m1"}
	err = n.Read(t.Context(), source, nil, func(copytree.Batch) error { return nil })
	wants(t, err, volume.ErrUnsupported, "inside")
}

// TestStatsLooksAgain, though not each time, whether all that is in a volume counts to it.
func TestStatsLooksAgain(t *testing.T) {
	n := startAt(t, btrfsDisk(t), required)
	mustCreate(t, n, "pvc-1")
	subvolume(t, n.path("pvc-1", "nested"))
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	top, err := os.Open(n.path())
	must(t, err)
	defer func() { _ = top.Close() }()
	nested, err := os.Open(n.path("pvc-1", "nested"))
	must(t, err)
	id, err := btrfs.SubvolumeID(nested)
	must(t, err, nested.Close())
	member, group := btrfs.NewQgroupID(0, id), btrfs.NewQgroupID(1, uint64(n.records(t)["pvc-1"].QuotaID))
	stats := func(about string, after time.Duration, counts bool) {
		t.Helper()
		must(t, btrfs.UnassignQgroup(top, member, group)) // as a pod can
		n.clock.advance(after)
		_, err := n.Stats(t.Context(), "pvc-1", target)
		must(t, err)
		if groups, err := btrfs.Groups(top, member); err != nil || (len(groups) == 1) != counts {
			t.Errorf("%s: in %v, %v; want it counted: %v", about, groups, err, counts)
		}
	}
	stats("the first time", 0, true)
	stats("a minute later", time.Minute, false)
	stats("five minutes later", 4*time.Minute, true)
	stats("a clock that went back", -time.Hour, true)
	must(t, n.Unpublish(t.Context(), "pvc-1", target), n.Publish(t.Context(), publish("pvc-1", target)))
	stats("published anew", 0, true)
}

// TestAdoptionKeepsThePreparedRecord, which is all that is known of the data.
func TestAdoptionKeepsThePreparedRecord(t *testing.T) {
	root := btrfsDisk(t)
	n := startAt(t, root, required)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")
	before := n.records(t)["pvc-1"]
	d := n.open(t)
	must(t, store.Withdraw(d, "pvc-1"), d.Close())
	n = startAt(t, root, required, withCluster(naming("pvc-1")))
	must(t, openPool(t.Context(), n), n.AdoptUntracked(t.Context()))
	if got := n.records(t)["pvc-1"]; got.QuotaID != before.QuotaID || got.Bytes != before.Bytes || got.Adopted {
		t.Errorf("record %+v, was %+v", got, before)
	}
	must(t, n.Delete(t.Context(), "pvc-1"))
	n.purgeAll(t)
	n.consistent(t, "purged")
}
