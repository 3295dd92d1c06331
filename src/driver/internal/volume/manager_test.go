package volume_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func TestCreateAnswersARepeatedRequest(t *testing.T) {
	n := start(t, newDisk())
	first, err := n.Create(t.Context(), spec("pvc-1"))
	must(t, err)
	n.clock.advance(time.Minute)
	again, err := n.Create(t.Context(), spec("pvc-1"))
	if err != nil || !again.Created.Equal(first.Created) || again.Bytes != first.Bytes {
		t.Errorf("again: %+v, %v; want %+v", again, err, first)
	}
	n.consistent(t, "after both")
}

func TestCreateRoundsUpToBlocks(t *testing.T) {
	n := start(t, newDisk())
	s := spec("pvc-1")
	s.Bytes = 4097
	v, err := n.Create(t.Context(), s)
	if err != nil || v.Bytes != 8192 {
		t.Errorf("asked for 4097 bytes: %d, %v; want 8192", v.Bytes, err)
	}
	s.ID, s.MaxBytes = "pvc-2", 8000
	_, err = n.Create(t.Context(), s)
	wants(t, err, volume.ErrOutOfRange, "limit_bytes 7.8Ki")
}

// TestSizesThatLookTheSame are not.
func TestSizesThatLookTheSame(t *testing.T) {
	n := start(t, newDisk())
	s := spec("pvc-1")
	s.Bytes = mebibyte + 4096
	_, err := n.Create(t.Context(), s)
	must(t, err)
	s.Bytes += 4096
	_, err = n.Create(t.Context(), s)
	wants(t, err, volume.ErrExists, "capacity 1.0Mi, asked for 1.0Mi")
}

func TestCreateRefuses(t *testing.T) {
	n := start(t, newDisk(), withPools(retained("local", poolPath), retained("other", "/other")))
	mustCreate(t, n, "pvc-1")
	for name, test := range map[string]struct {
		change   func(*volume.Spec)
		sentinel error
		parts    []string
	}{
		"slash in the id": {func(s *volume.Spec) { s.ID = "a/b" }, nodeapi.ErrInvalidID, []string{`"a/b"`}},
		"dots as the id":  {func(s *volume.Spec) { s.ID = ".." }, nodeapi.ErrInvalidID, []string{`".."`}},
		"our directory":   {func(s *volume.Spec) { s.ID = ".hpp" }, nodeapi.ErrInvalidID, []string{`".hpp"`}},
		"snapshots":       {func(s *volume.Spec) { s.ID = "snapshots" }, nodeapi.ErrInvalidID, []string{"kubevirt"}},
		"NUL in the id":   {func(s *volume.Spec) { s.ID = "a\x00b" }, nodeapi.ErrInvalidID, []string{`\x00`}},
		"300 bytes of id": {
			func(s *volume.Spec) { s.ID = strings.Repeat("a", 300) }, nodeapi.ErrInvalidID,
			[]string{"128"},
		},
		"no such pool":    {func(s *volume.Spec) { s.Pool = "locla" }, pool.ErrUnknown, []string{"local, other"}},
		"no bytes":        {func(s *volume.Spec) { s.Bytes = 0 }, volume.ErrInvalid, []string{"capacity"}},
		"negative bytes":  {func(s *volume.Spec) { s.Bytes = -1 }, volume.ErrInvalid, []string{"capacity"}},
		"more than int64": {func(s *volume.Spec) { s.Bytes = 1<<63 - 1 }, volume.ErrOutOfRange, []string{"capacity"}},
		"more than there": {
			func(s *volume.Spec) { s.Bytes = 1 << 60 }, ledger.ErrNoSpace,
			[]string{"pool local", "free"},
		},
		"other size": {
			func(s *volume.Spec) { s.ID, s.Bytes = "pvc-1", 2*mebibyte }, volume.ErrExists,
			[]string{"capacity 1Mi, asked for 2Mi"},
		},
		"other pool": {func(s *volume.Spec) { s.ID, s.Pool = "pvc-1", "other" }, volume.ErrExists, []string{"other"}},
		"other mode": {func(s *volume.Spec) { s.ID, s.Mode = "pvc-1", 0o700 }, volume.ErrExists, []string{"0700"}},
		"other kind": {func(s *volume.Spec) { s.ID, s.Ephemeral = "pvc-1", true }, volume.ErrExists, []string{"true"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec("pvc-2")
			test.change(&s)
			_, err := n.Create(t.Context(), s)
			wants(t, err, test.sentinel, test.parts...)
			if status := n.status(); status.Volumes != 1 || status.Promised != mebibyte {
				t.Errorf("something stayed: %+v", status)
			}
		})
	}
}

func TestCreateLeavesForeignDirectoriesAlone(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	d.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrExists, "csi/pvc-1")
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("delete of an unknown id: %v", err)
	}
	n.kept(t, "pvc-1", "deleted")
}

func TestPlantedLinkIsRefused(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	n.Cluster = naming("pvc-1")
	d.Symlink(poolPath+"/csi/pvc-1", "/etc")
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, store.ErrBroken, "csi/pvc-1")
	wants(t, n.Publish(t.Context(), publish("pvc-1", target)), store.ErrBroken, "csi/pvc-1")
	wants(t, n.Delete(t.Context(), "pvc-1"), store.ErrBroken, "csi/pvc-1")
}

func TestDeleteRefusesAPublishedVolume(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPublished, target)
	wants(t, n.Discard(t.Context(), "pvc-1", "", 0), volume.ErrPublished, target)

	again := start(t, d, withMounts(n.mounts)) // learns it from the mount table
	wants(t, again.Delete(t.Context(), "pvc-1"), volume.ErrPublished, target)
	must(t, again.Unpublish(t.Context(), "pvc-1", target), again.Delete(t.Context(), "pvc-1"))
	again.consistent(t, "deleted")
}

func TestLostVolumeIsReportedAndRetired(t *testing.T) {
	d := newDisk()
	mustCreate(t, warm(t, d), "pvc-1")
	n := start(t, d)
	csi := n.open(t)
	must(t, csi.Remove("pvc-1"), csi.Sync("."), csi.Close(), openPool(t.Context(), n))
	if s := n.status(); s.Lost != 1 || !n.warned("VolumeLost", "pvc-1") {
		t.Errorf("status %+v; want one lost volume", s)
	}
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrLost, "csi/pvc-1")
	wants(t, n.Publish(t.Context(), publish("pvc-1", target)), volume.ErrLost, "csi/pvc-1")
	_, err = n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
	wants(t, err, volume.ErrLost)
	_, err = n.Adopt(t.Context(), "pvc-1", 0)
	wants(t, err, volume.ErrLost)
	if _, health, err := n.Get(t.Context(), "pvc-1"); err != nil || health.Condition != volume.DataLoss {
		t.Errorf("health %+v, %v", health, err)
	}
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if n.warned("VolumeLost", "pvc-1") {
		t.Errorf("deleted, and warned of: %+v", n.status())
	}
	n.consistent(t, "retired")
}

func TestListPages(t *testing.T) {
	n := start(t, newDisk(), withPools(retained("local", poolPath), retained("other", "/other")))
	var want []string
	for i := range 7 {
		s := spec(fmt.Sprintf("pvc-%d", i))
		s.Pool = []string{"local", "other"}[i%2]
		_, err := n.Create(t.Context(), s)
		must(t, err)
		want = append(want, s.ID)
	}
	for size := range 9 {
		var got []string
		for after, first := "", true; first || after != ""; first = false {
			page, next, err := n.List(t.Context(), after, size)
			if err != nil || (size > 0 && len(page) > size) || (next != "" && len(page) == 0) {
				t.Fatalf("page after %q of %d: %d volumes, next %q, %v", after, size, len(page), next, err)
			}
			for _, v := range page {
				got = append(got, v.ID)
			}
			after = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", size, got, want)
		}
	}
}

// TestConcurrentCreates: only as many volumes as fit are promised where promises count, and an id is made once.
func TestConcurrentCreates(t *testing.T) {
	d := newDisk()
	d.AddDir(poolPath)
	d.SetSpace(poolPath, disk.Space{Size: 10 * mebibyte, Free: 10 * mebibyte})
	limited := retained("local", poolPath)
	limited.Overcommit = 1
	n := start(t, d, withPools(limited))
	var mu sync.Mutex
	var made, refused int
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			_, err := n.Create(t.Context(), spec(fmt.Sprintf("pvc-%d", i)))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case errors.Is(err, ledger.ErrNoSpace):
				refused++
			default:
				t.Errorf("create: %v", err)
			}
		})
	}
	all.Wait()
	if made != 10 || refused != 90 {
		t.Errorf("%d made and %d refused, want 10 and 90", made, refused)
	}
	n.consistent(t, "after all")
	if open := d.Opened(); open != 1 { // the state directory
		t.Errorf("%d directories are open", open)
	}
}

func TestMaxVolumes(t *testing.T) {
	limited := retained("local", poolPath)
	limited.MaxVolumes = 1
	n := start(t, newDisk(), withPools(limited))
	mustCreate(t, n, "pvc-1")
	_, err := n.Create(t.Context(), spec("pvc-2"))
	wants(t, err, ledger.ErrNoSpace, "maxVolumes is 1")
	if room, largest := n.set.Capacity("local"); room == 0 || largest != 0 {
		t.Errorf("capacity %d, %d of a full pool; want room to grow in, and none for a new one", room, largest)
	}
	if v, err := n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0); err != nil || v.Bytes != 2*mebibyte {
		t.Errorf("grow: %+v, %v", v, err)
	}
}

// TestPurgeHeedsTheDisposal of each volume.
func TestPurgeHeedsTheDisposal(t *testing.T) {
	for disposal, kept := range map[store.Disposal][2]bool{ // before and after the retention of an hour
		store.Trash: {true, false}, store.Purge: {false, false}, store.Retain: {true, true},
	} {
		t.Run(string(disposal), func(t *testing.T) {
			n := start(t, newDisk())
			s := spec("pvc-1")
			s.OnDelete = disposal
			_, err := n.Create(t.Context(), s)
			must(t, err)
			n.fill(t, "pvc-1")
			must(t, n.Delete(t.Context(), "pvc-1"))
			for i, wait := range []time.Duration{0, 2 * time.Hour} {
				n.clock.advance(wait)
				must(t, n.purge(t.Context()))
				if _, places := n.find(t, "pvc-1"); (len(places) == 1) != kept[i] {
					t.Errorf("after %v: data at %v, want kept %v", wait, places, kept[i])
				}
			}
		})
	}
}

// TestDeleteOnAFullDisk takes the spare directory, which the purge gives back though the disk stays full.
func TestDeleteOnAFullDisk(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	mustCreate(t, n, "pvc-2")
	d.SetFull(poolPath, true)
	must(t, n.Delete(t.Context(), "pvc-1"))
	if slices.Contains(n.ls(t, disk.TrashDir), ".spare") {
		t.Error("the spare directory was not used")
	}
	if err := n.Delete(t.Context(), "pvc-2"); err == nil {
		t.Error("a second delete has found another one")
	}
	n.purgeAll(t)
	must(t, n.Delete(t.Context(), "pvc-2"))
	n.purgeAll(t)
	if !slices.Contains(n.ls(t, disk.TrashDir), ".spare") {
		t.Error("there is no new spare directory")
	}
	d.SetFull(poolPath, false)
	n.consistent(t, "both deleted")
}
