package volume_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func mustCreate(t *testing.T, n *node, id string) {
	t.Helper()
	if _, err := n.Create(t.Context(), spec(id)); err != nil {
		t.Fatalf("create %s: %v", id, err)
	}
}

// wants fails the test unless err is the sentinel and its sentence holds every word.
func wants(t *testing.T, err, sentinel error, words ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("error %v, want %v", err, sentinel)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the sentence %q does not hold %q", err, w)
		}
	}
}

func TestCreateAnswersARepeatedRequest(t *testing.T) {
	n := start(t, newDisk(t))
	first, err := n.Create(t.Context(), spec("pvc-1"))
	if err != nil {
		t.Fatal(err)
	}
	n.clock.advance(time.Minute)
	again, err := n.Create(t.Context(), spec("pvc-1"))
	if err != nil || !again.Created.Equal(first.Created) || again.Bytes != first.Bytes {
		t.Errorf("again: %+v, %v; want %+v", again, err, first)
	}
	n.consistent(t, "after both")
}

func TestCreateRoundsUpToBlocks(t *testing.T) {
	n := start(t, newDisk(t))
	s := spec("pvc-1")
	s.Bytes = 4097
	v, err := n.Create(t.Context(), s)
	if err != nil || v.Bytes != 8192 {
		t.Errorf("asked for 4097 bytes: %d, %v; want 8192", v.Bytes, err)
	}
	s.ID, s.MaxBytes = "pvc-2", 8000
	_, err = n.Create(t.Context(), s)
	wants(t, err, volume.ErrOutOfRange, "limit_bytes 8000")
}

func TestCreateRefuses(t *testing.T) {
	n := start(t, newDisk(t), withPools(retained("local", poolPath), retained("other", "/other")))
	mustCreate(t, n, "pvc-1")
	for name, tc := range map[string]struct {
		change   func(*volume.Spec)
		sentinel error
		words    []string
	}{
		"slash in the id":     {func(s *volume.Spec) { s.ID = "a/b" }, volume.ErrInvalidID, []string{`"a/b"`}},
		"dots as the id":      {func(s *volume.Spec) { s.ID = ".." }, volume.ErrInvalidID, []string{`".."`}},
		"our own directory":   {func(s *volume.Spec) { s.ID = ".hpp" }, volume.ErrInvalidID, []string{`".hpp"`}},
		"NUL in the id":       {func(s *volume.Spec) { s.ID = "a\x00b" }, volume.ErrInvalidID, []string{`\x00`}},
		"300 bytes of id":     {func(s *volume.Spec) { s.ID = strings.Repeat("a", 300) }, volume.ErrInvalidID, []string{"128"}},
		"no such pool":        {func(s *volume.Spec) { s.Pool = "locla" }, volume.ErrPoolUnknown, []string{"storagePool", `"locla"`, "local, other"}},
		"no bytes":            {func(s *volume.Spec) { s.Bytes = 0 }, volume.ErrInvalid, []string{"capacity"}},
		"negative bytes":      {func(s *volume.Spec) { s.Bytes = -1 }, volume.ErrInvalid, []string{"capacity"}},
		"more than int64":     {func(s *volume.Spec) { s.Bytes = 1<<63 - 1 }, volume.ErrOutOfRange, []string{"capacity"}},
		"more than the disk":  {func(s *volume.Spec) { s.Bytes = 1 << 60 }, volume.ErrNoSpace, []string{"pool local", "free"}},
		"same id, other size": {func(s *volume.Spec) { s.ID, s.Bytes = "pvc-1", 2<<20 }, volume.ErrExists, []string{"capacity", "2097152"}},
		"same id, other pool": {func(s *volume.Spec) { s.ID, s.Pool = "pvc-1", "other" }, volume.ErrExists, []string{"pool local", "pool other"}},
		"same id, other mode": {func(s *volume.Spec) { s.ID, s.Mode = "pvc-1", 0o700 }, volume.ErrExists, []string{"directoryMode", "0700"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec("pvc-2")
			tc.change(&s)
			_, err := n.Create(t.Context(), s)
			wants(t, err, tc.sentinel, tc.words...)
			if status := n.set.Status()[0]; status.Volumes != 1 || status.Promised != 1<<20 {
				t.Errorf("something stayed: %+v", status)
			}
		})
	}
}

func TestCreateLeavesForeignDirectoriesAlone(t *testing.T) {
	disk := newDisk(t)
	n := warm(t, disk)
	disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("somebody's"))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrExists, "csi/pvc-1")
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("delete of an unknown id: %v", err)
	}
	if content, places := n.find(t, "pvc-1"); content != "somebody's" || len(places) != 1 {
		t.Errorf("the foreign directory: %q at %v", content, places)
	}
}

func TestPlantedLinkIsRefused(t *testing.T) {
	disk := newDisk(t)
	n := warm(t, disk)
	disk.Symlink(poolPath+"/csi/pvc-1", "/etc")
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrBroken, "csi/pvc-1")
	err = n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target})
	wants(t, err, volume.ErrBroken, "csi/pvc-1")
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrBroken, "csi/pvc-1")
}

func TestDeleteRefusesAPublishedVolume(t *testing.T) {
	disk := newDisk(t)
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Fatal(err)
	}
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPublished, target)

	// A driver that was started anew learns it from the mount table.
	n.mounts.by = map[string]string{target: "pvc-1"}
	again := start(t, disk, withMounts(n.mounts))
	wants(t, again.Delete(t.Context(), "pvc-1"), volume.ErrPublished, target)

	if err := again.Unpublish(t.Context(), "pvc-1", target); err != nil {
		t.Fatal(err)
	}
	if err := again.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("after unpublish: %v", err)
	}
	again.consistent(t, "deleted")
}

func TestPublish(t *testing.T) {
	n := start(t, newDisk(t))
	mustCreate(t, n, "pvc-1")
	mustCreate(t, n, "pvc-2")
	q := volume.PublishRequest{ID: "pvc-1", Target: target}
	if err := n.Publish(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if err := n.Publish(t.Context(), q); err != nil {
		t.Errorf("the same again: %v", err)
	}
	readOnly := q
	readOnly.ReadOnly = true
	wants(t, n.Publish(t.Context(), readOnly), volume.ErrTargetTaken, target, "options")
	other := q
	other.ID = "pvc-2"
	wants(t, n.Publish(t.Context(), other), volume.ErrTargetTaken, target)
	second := q
	second.Target, second.SingleWriter = target+"2", true
	wants(t, n.Publish(t.Context(), second), volume.ErrSingleWriter, target)
	second.SingleWriter = false
	if err := n.Publish(t.Context(), second); err != nil {
		t.Errorf("a second target: %v", err)
	}
	unknown := q
	unknown.ID = "pvc-3"
	wants(t, n.Publish(t.Context(), unknown), volume.ErrNotFound, "pvc-3")
}

func TestInlineVolumeLivesAsLongAsItsPod(t *testing.T) {
	n := start(t, newDisk(t), withPools(poolspec.Pool{Name: "local", Path: poolPath}))
	inline := spec("csi-abc")
	inline.Ephemeral, inline.OnDelete = true, volume.Purge
	q := volume.PublishRequest{ID: inline.ID, Target: target, Inline: &inline}
	for range 2 {
		if err := n.Publish(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.ls(t, "."); !slices.Equal(got, []string{poolfs.MetaDir, "csi-abc"}) {
		t.Errorf("csi/ holds %v", got)
	}
	for range 2 {
		if err := n.Unpublish(t.Context(), inline.ID, target); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.ls(t, "."); !slices.Equal(got, []string{poolfs.MetaDir}) {
		t.Errorf("after unpublish csi/ holds %v", got)
	}
}

func TestInlineVolumeNeedsOnlyItsOwnPool(t *testing.T) {
	yes := true
	unmounted := poolspec.Pool{Name: "other", Path: "/other", RequireMount: &yes}
	n := start(t, newDisk(t), withPools(poolspec.Pool{Name: "local", Path: poolPath}, unmounted))
	inline := spec("csi-abc")
	inline.Ephemeral = true
	q := volume.PublishRequest{ID: inline.ID, Target: target, Inline: &inline}
	if err := n.Publish(t.Context(), q); err != nil {
		t.Errorf("while another pool is absent: %v", err)
	}
	inline.Pool = "other"
	q.ID, inline.ID = "csi-def", "csi-def"
	wants(t, n.Publish(t.Context(), q), volume.ErrPoolAbsent, "pool other", "requireMount")
}

// TestUnpublishNeverDeletesAPersistentVolume holds even for an id that looks like an inline one.
func TestUnpublishNeverDeletesAPersistentVolume(t *testing.T) {
	n := start(t, newDisk(t))
	mustCreate(t, n, "csi-looks-inline")
	n.fill(t, "csi-looks-inline")
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "csi-looks-inline", Target: target}); err != nil {
		t.Fatal(err)
	}
	if err := n.Unpublish(t.Context(), "csi-looks-inline", target); err != nil {
		t.Fatal(err)
	}
	if content, places := n.find(t, "csi-looks-inline"); content != "kept" || !slices.Equal(places, []string{"csi-looks-inline/precious"}) {
		t.Errorf("data %q at %v", content, places)
	}
}

func TestLostVolumeIsReportedAndRetired(t *testing.T) {
	disk := newDisk(t)
	mustCreate(t, warm(t, disk), "pvc-1")
	n := start(t, disk)
	csi := n.open(t)
	if err := errors.Join(csi.Remove("pvc-1"), csi.Sync("."), csi.Close()); err != nil {
		t.Fatal(err)
	}
	if err := openPool(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if s := n.set.Status()[0]; s.Lost != 1 {
		t.Errorf("status %+v, want one lost volume", s)
	}
	if !n.events.tell("VolumeLost", "pvc-1") {
		t.Errorf("events %q do not tell of the lost volume", n.events.told)
	}
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrLost, "csi/pvc-1")
	wants(t, n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}), volume.ErrLost, "csi/pvc-1")
	if _, health, err := n.Get(t.Context(), "pvc-1"); err != nil || health.Condition != volume.DataLoss {
		t.Errorf("health %+v, %v", health, err)
	}
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("delete: %v", err)
	}
	n.consistent(t, "retired")
}

func TestBrokenRecordHarmsNoOtherVolume(t *testing.T) {
	for name, content := range map[string]string{
		"truncated": `{"version": 1, "id": "pvc-1", "po`,
		"newer":     `{"version": 2, "id": "pvc-1", "pool": "local", "bytes": 1048576}`,
		"empty":     ``,
		"another's": `{"version": 1, "id": "pvc-2", "pool": "local", "bytes": 1048576}`,
	} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk(t)
			old := warm(t, disk)
			mustCreate(t, old, "pvc-1")
			mustCreate(t, old, "pvc-2")
			old.fill(t, "pvc-1")
			csi := old.open(t)
			if err := errors.Join(csi.Remove(".hpp/volumes/pvc-1.json"), csi.WriteFile(".hpp/volumes/pvc-1.json", []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
			n := warm(t, disk)
			if s := n.set.Status()[0]; !s.Present || s.Refused != 1 || s.Volumes != 1 {
				t.Errorf("status %+v, want one refused and one good volume", s)
			}
			if !n.events.tell("VolumeRefused", "pvc-1") {
				t.Errorf("events %q do not tell of the refused volume", n.events.told)
			}
			wants(t, n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}), volume.ErrBroken, "pvc-1.json")
			wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrBroken, "untouched")
			if content, _ := n.find(t, "pvc-1"); content != "kept" {
				t.Errorf("its data is %q", content)
			}
			if err := n.Delete(t.Context(), "pvc-2"); err != nil {
				t.Errorf("the other volume: %v", err)
			}
		})
	}
}

func TestListPages(t *testing.T) {
	n := start(t, newDisk(t), withPools(retained("local", poolPath), retained("other", "/other")))
	var want []string
	for i := range 7 {
		s := spec(fmt.Sprintf("pvc-%d", i))
		if i%2 == 1 {
			s.Pool = "other"
		}
		if _, err := n.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		want = append(want, s.ID)
	}
	for size := 1; size <= 8; size++ {
		var got []string
		for after, first := "", true; first || after != ""; first = false {
			page, next, err := n.List(t.Context(), after, size)
			if err != nil || len(page) > size || (next != "" && len(page) == 0) {
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

func TestAdoption(t *testing.T) {
	disk := newDisk(t)
	disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	disk.AddFile(poolPath+"/csi/snapshots/x", []byte("not ours"))
	n := start(t, disk, withCluster(knowing("pvc-1")))
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Fatalf("publish: %v", err)
	}
	v, _, err := n.Get(t.Context(), "pvc-1")
	if err != nil || !v.Adopted || v.Enforcement != volume.None || v.Bytes != 1<<20 {
		t.Errorf("adopted volume %+v, %v", v, err)
	}
	if err := errors.Join(n.Unpublish(t.Context(), "pvc-1", target), n.Delete(t.Context(), "pvc-1")); err != nil {
		t.Errorf("unpublish and delete: %v", err)
	}
	if _, places := n.find(t, "pvc-1"); len(places) != 1 || !strings.HasPrefix(places[0], poolfs.TrashDir) {
		t.Errorf("data is at %v", places)
	}
	if err := n.Delete(t.Context(), "snapshots"); err != nil {
		t.Errorf("delete of what is no volume: %v", err)
	}
	if got := n.ls(t, "."); !slices.Equal(got, []string{poolfs.MetaDir, "snapshots"}) {
		t.Errorf("csi/ holds %v", got)
	}
}

// TestAdoptionWaitsForTheAPI: without the API nobody can tell whose directory it is, so nothing is answered with OK.
func TestAdoptionWaitsForTheAPI(t *testing.T) {
	disk := newDisk(t)
	warm(t, disk)
	disk.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	known := knowing("pvc-1")
	known.err = fmt.Errorf("%w: connection refused", volume.ErrClusterUnknown)
	n := start(t, disk, withCluster(known))
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrClusterUnknown, "pvc-1")
	wants(t, n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}), volume.ErrClusterUnknown)
	known.err = nil
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Errorf("with the API back: %v", err)
	}
}

func TestMountGuard(t *testing.T) {
	disk := newDisk(t)
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")

	disk.ReplaceByEmpty(poolPath)
	_, err := n.Create(t.Context(), spec("pvc-2"))
	wants(t, err, volume.ErrPoolAbsent, "pool local", poolPath, "driver pool forget local")
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPoolAbsent, poolPath)
	wants(t, n.Delete(t.Context(), "pvc-unknown"), volume.ErrPoolAbsent, poolPath)
	wants(t, n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}), volume.ErrPoolAbsent)
	if err := n.Unpublish(t.Context(), "pvc-1", target); err != nil {
		t.Errorf("an absent pool keeps a pod from ending: %v", err)
	}
	if room, maximum, err := n.set.Capacity(t.Context(), "local"); room != 0 || maximum != 0 || err != nil {
		t.Errorf("capacity %d, %d, %v; want 0", room, maximum, err)
	}
	if !n.events.tell("PoolAbsent", "pool local: MarkerMissing") {
		t.Errorf("events %q do not tell that the pool is absent", n.events.told)
	}

	disk.PutBack(poolPath)
	mustCreate(t, n, "pvc-2")
	if content, _ := n.find(t, "pvc-1"); content != "kept" {
		t.Errorf("after the pool came back its data is %q", content)
	}
	n.consistent(t, "the pool is back")
}

func TestDiskMountedOverAPool(t *testing.T) {
	disk := newDisk(t)
	n := warm(t, disk)
	mustCreate(t, n, "pvc-1")
	disk.Mount(poolPath)
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPoolAbsent, poolPath)
	if err := n.set.Forget(t.Context(), "local"); err != nil {
		t.Fatalf("forget: %v", err)
	}
	mustCreate(t, n, "pvc-2")
	wants(t, n.set.Forget(t.Context(), "local"), volume.ErrInvalid, "present")
	if err := disk.Unmount(poolPath); err != nil {
		t.Fatalf("the driver keeps the disk busy: %v", err)
	}
	wants(t, n.Delete(t.Context(), "pvc-2"), volume.ErrPoolAbsent, "another filesystem")
}

func TestNoMarkerWhereVolumesAreMissing(t *testing.T) {
	n := start(t, newDisk(t), withCluster(knowing("pvc-1", "pvc-2")))
	_, err := n.Create(t.Context(), spec("pvc-3"))
	wants(t, err, volume.ErrPoolAbsent, "pvc-1, pvc-2", "driver pool forget local")
	if err := n.set.Forget(t.Context(), "local"); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, n, "pvc-3")
}

func TestNoMarkerWithoutTheAPI(t *testing.T) {
	silent := &cluster{err: volume.ErrClusterUnknown}
	n := start(t, newDisk(t), withCluster(silent))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrPoolAbsent, "waiting for the Kubernetes API")
	silent.err = nil
	n.clock.advance(time.Minute)
	mustCreate(t, n, "pvc-1")
}

func TestPoolTakenOutOfTheConfiguration(t *testing.T) {
	disk := newDisk(t)
	old := start(t, disk, withPools(retained("local", poolPath), retained("other", "/other")))
	s := spec("pvc-1")
	s.Pool = "other"
	if _, err := old.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	n := warm(t, disk)
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPoolAbsent, "pool other", "driver pool forget other")
	_, err := n.Create(t.Context(), s)
	wants(t, err, volume.ErrPoolAbsent, "pool other")
	if err := n.set.Forget(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if err := n.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("after forget: %v", err)
	}
	_, err = n.Create(t.Context(), s)
	wants(t, err, volume.ErrPoolUnknown, "storagePool", "local")
}

func TestReinstalledNodeAdoptsThePool(t *testing.T) {
	disk := newDisk(t)
	mustCreate(t, warm(t, disk), "pvc-1")
	disk.ReplaceByEmpty(statePath)
	n := warm(t, disk)
	if _, _, err := n.Get(t.Context(), "pvc-1"); err != nil {
		t.Errorf("the volume is not served: %v", err)
	}
	n.consistent(t, "reinstalled")
}

func TestNodeSelectorStopsCreationOnly(t *testing.T) {
	disk := newDisk(t)
	ssd := retained("local", poolPath)
	ssd.NodeSelector = map[string]string{"disk": "ssd"}
	n := start(t, disk, withPools(ssd))
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrPoolAbsent, "labels")
	n.set.SetNodeLabels(nil)
	_, err = n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrPoolNotHere, "local")
	if facts, err := disk.Inspect(poolPath); err != nil || facts.Path {
		t.Errorf("%s was made on a node that is not selected: %+v, %v", poolPath, facts, err)
	}
	n.set.SetNodeLabels(map[string]string{"disk": "ssd"})
	mustCreate(t, n, "pvc-1")
	n.set.SetNodeLabels(map[string]string{"disk": "hdd"})
	_, err = n.Create(t.Context(), spec("pvc-2"))
	wants(t, err, volume.ErrPoolNotHere, "nodeSelector")
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Errorf("publish on a node no longer selected: %v", err)
	}
	if err := errors.Join(n.Unpublish(t.Context(), "pvc-1", target), n.Delete(t.Context(), "pvc-1")); err != nil {
		t.Errorf("delete on a node no longer selected: %v", err)
	}
}

func TestPurge(t *testing.T) {
	for disposal, kept := range map[volume.Disposal][2]bool{ // kept before and after the retention of an hour
		volume.Trash: {true, false}, volume.Purge: {false, false}, volume.Retain: {true, true},
	} {
		t.Run(string(disposal), func(t *testing.T) {
			n := start(t, newDisk(t))
			s := spec("pvc-1")
			s.OnDelete = disposal
			if _, err := n.Create(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			n.fill(t, "pvc-1")
			if err := n.Delete(t.Context(), "pvc-1"); err != nil {
				t.Fatal(err)
			}
			worker := n.worker(time.Hour)
			for i, wait := range []time.Duration{0, 2 * time.Hour} {
				n.clock.advance(wait)
				disk := n.open(t)
				summary, err := worker.Purge(t.Context(), disk)
				if err != nil {
					t.Fatal(err)
				}
				if _, places := n.find(t, "pvc-1"); (len(places) == 1) != kept[i] || (summary.Entries == 1) != kept[i] {
					t.Errorf("after %v: data at %v, %d entries, want kept %v", wait, places, summary.Entries, kept[i])
				}
			}
		})
	}
}

// TestConcurrentCreates: only as many volumes as fit are promised where promises count, and an id is made once.
func TestConcurrentCreates(t *testing.T) {
	disk := newDisk(t)
	disk.AddDir(poolPath)
	disk.SetSpace(poolPath, poolfs.Space{Size: 10 << 20, Free: 10 << 20})
	limited := retained("local", poolPath)
	limited.Overcommit = 1
	n := start(t, disk, withPools(limited))
	var made, full sync.Map
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			s := spec(fmt.Sprintf("pvc-%d", i))
			switch _, err := n.Create(t.Context(), s); {
			case err == nil:
				made.Store(s.ID, true)
			case errors.Is(err, volume.ErrNoSpace):
				full.Store(s.ID, true)
			default:
				t.Errorf("create %s: %v", s.ID, err)
			}
		})
	}
	all.Wait()
	if m, f := count(&made), count(&full); m != 10 || f != 90 {
		t.Errorf("%d made and %d refused, want 10 and 90", m, f)
	}
	n.consistent(t, "after all")
}

func count(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

func TestMaxVolumes(t *testing.T) {
	limited := retained("local", poolPath)
	limited.MaxVolumes = 1
	n := start(t, newDisk(t), withPools(limited))
	mustCreate(t, n, "pvc-1")
	_, err := n.Create(t.Context(), spec("pvc-2"))
	wants(t, err, volume.ErrNoSpace, "maxVolumes is 1")
	if room, maximum, _ := n.set.Capacity(t.Context(), "local"); room == 0 || maximum != 0 {
		t.Errorf("capacity %d, %d of a pool that takes no more volumes; want room to grow in, and none for a new one", room, maximum)
	}
	if v, err := n.Expand(t.Context(), "pvc-1", 2<<20, 0); err != nil || v.Bytes != 2<<20 {
		t.Errorf("grow: %+v, %v", v, err)
	}
}

func TestTwoPoolsOneDirectory(t *testing.T) {
	disk := newDisk(t)
	disk.Symlink("/again", poolPath)
	n := start(t, disk, withPools(retained("again", "/again"), retained("local", poolPath)))
	if err := openPool(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	s := spec("pvc-1")
	s.Pool = "again"
	_, err := n.Create(t.Context(), s)
	wants(t, err, volume.ErrPoolAbsent, "directory of pool local")
}

var _ pool.Events = (*events)(nil)
