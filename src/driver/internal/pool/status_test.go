package pool

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// TestReadOnly: a filesystem that turned read-only is served, has no capacity, and each turn has its time.
func TestReadOnly(t *testing.T) {
	n := start(t, local())
	n.check(t)
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	for range 2 {
		n.memory.SetReadOnly("/pool", true)
		n.clock.pass(time.Hour)
		at := n.clock.Now()
		for range 3 {
			n.is(t, "local", true, nodeapi.ReasonReadOnly)
			n.clock.pass(time.Second)
		}
		s := n.status(t, "local")
		if room, largest := n.Capacity("local"); room+largest+s.Allocatable != 0 || !s.ReadOnly || s.Volumes != 1 {
			t.Errorf("capacity %d, %d; %+v", room, largest, s)
		}
		if n.pools[0].Purge(t.Context()) || !s.Since.Equal(at) {
			t.Errorf("read-only since %s, want %s", s.Since, at)
		}
		n.memory.SetReadOnly("/pool", false)
		at = n.clock.Now()
		for range 3 {
			n.is(t, "local", true, "")
			n.clock.pass(time.Second)
		}
		if room, _ := n.Capacity("local"); room == 0 || !n.status(t, "local").Since.Equal(at) {
			t.Errorf("writable since %s, want %s: capacity %d", n.status(t, "local").Since, at, room)
		}
	}
}

// TestReadOnlyFromTheStart: what recovery could not do it does once the filesystem is writable.
func TestReadOnlyFromTheStart(t *testing.T) {
	n := start(t, local())
	n.check(t)
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	n.memory.AddFile("/pool/csi/"+store.Path("pvc-2"), encode(t, store.Record{ID: "pvc-2"}))
	n.memory.AddDir("/pool/csi/" + disk.StagingDir + "/pvc-2")
	n.memory.SetReadOnly("/pool", true)
	again := restart(t, n.memory, local())
	again.memory.AddDir("/state")
	again.clock.pass(time.Hour)
	if err := again.use(t, "local"); err != nil && !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
	again.wants(t, "local", true, nodeapi.ReasonReadOnly)
	if got := again.volumes(); !slices.Equal(got, []string{"pvc-1"}) ||
		again.logged("the pool's filesystem is read-only") != 1 {
		t.Errorf("volumes %v, log %s", got, again.log)
	}
	n.memory.SetReadOnly("/pool", false)
	again.is(t, "local", true, "")
	must(t, again.Use(t.Context(), "local", func(o *Open) error {
		placed, prepared, err := store.List(o.Disk)
		if !slices.Equal(placed, []string{"pvc-1"}) || len(prepared) > 0 {
			t.Errorf("records %v, prepared %v", placed, prepared)
		}
		return err
	}))
}

func TestNoFreeInode(t *testing.T) {
	n := start(t, local())
	n.memory.AddDir("/pool")
	n.memory.SetSpace("/pool", disk.Space{Size: 1 << 40, Free: 1 << 40, Inodes: 100, InodesUsed: 100})
	n.is(t, "local", true, "")
	if room, largest := n.Capacity("local"); room+largest != 0 {
		t.Errorf("capacity %d, %d", room, largest)
	}
}

func TestCapacityIsZeroWhereNothingCanBeMade(t *testing.T) {
	elsewhere := other()
	elsewhere.NodeSelector = map[string]string{"a": "b"}
	n := start(t, local(), elsewhere)
	n.SetNodeLabels(nil)
	n.check(t)
	for name, positive := range map[string]bool{"local": true, "other": false, "unknown": false} {
		if room, largest := n.Capacity(name); room > 0 != positive || largest != room {
			t.Errorf("capacity of %s: %d, %d; want positive: %v", name, room, largest, positive)
		}
	}
}

// TestChanged: each change of whether a pool can be used reaches every listener, once.
func TestChanged(t *testing.T) {
	away := other()
	away.Name, away.NodeSelector = "away", map[string]string{"a": "b"}
	n := start(t, away, local())
	listeners := []<-chan struct{}{n.Changed(), n.Changed()}
	changed := func() (all int) {
		for _, l := range listeners {
			select {
			case <-l:
				all++
			default:
			}
		}
		return all
	}
	for i, step := range []struct {
		what        string
		do          func()
		changes     int
		away, local string
		present     bool
	}{
		{"start", func() {}, 0, "NotChecked", "NotChecked", false},
		{"first look", func() { n.pools[1].Check(t.Context()) }, 2, "NotChecked", "", true},
		{"second look", func() { n.pools[1].Check(t.Context()) }, 0, "NotChecked", "", true},
		{"not selected", func() { n.SetNodeLabels(nil); n.pools[0].Check(t.Context()) }, 2, "NotSelected", "", true},
		{"read-only", func() { n.memory.SetReadOnly("/pool", true); n.check(t) }, 2, "NotSelected", "ReadOnly", true},
		{"writable", func() { n.memory.SetReadOnly("/pool", false); n.check(t) }, 2, "NotSelected", "", true},
		{"gone", func() { n.memory.Mount("/pool"); n.check(t) }, 2, "NotSelected", "MarkerMissing", false},
		{"still gone", func() { n.check(t) }, 0, "NotSelected", "MarkerMissing", false},
	} {
		step.do()
		if got := changed(); got != step.changes {
			t.Errorf("%d %s: %d changes, want %d", i, step.what, got, step.changes)
		}
		n.wants(t, "away", false, step.away)
		n.wants(t, "local", step.present, step.local)
	}
}

func TestWithOS(t *testing.T) {
	away := other()
	away.Name, away.Path = "away", "/away"
	n := start(t, away, other(), local())
	n.OSPaths = []string{"/", "/kubelet"}
	looks := func(want string) {
		t.Helper()
		n.pools[1].Check(t.Context())
		n.pools[2].Check(t.Context())
		var shared []string
		for _, s := range n.Status() {
			shown := "unknown"
			if s.WithOS != nil {
				shown = strconv.FormatBool(*s.WithOS)
			}
			shared = append(shared, s.Name+" "+shown+"; ")
		}
		if got := strings.Join(shared, ""); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	looks("away unknown; local true; other false; ")
	n.OSPaths = []string{"/other"} // the kubelet's directory is on that disk
	looks("away unknown; local false; other true; ")
}

// TestWhatRecoveryFoundIsReported, and no longer once the volume is gone.
func TestWhatRecoveryFoundIsReported(t *testing.T) {
	n := start(t, local())
	n.memory.AddFile("/pool/csi/"+store.Path("pvc-lost"), encode(t, store.Record{ID: "pvc-lost", Bytes: 4096}))
	n.memory.AddFile("/pool/csi/"+store.Path("pvc-broken"), []byte(`{`))
	n.memory.AddDir("/pool/csi/pvc-broken")
	n.memory.AddDir("/pool/csi/pvc-untracked")
	n.memory.AddDir("/pool/csi/snapshots")
	n.is(t, "local", true, "")
	s := n.status(t, "local")
	if s.Lost != 1 || s.Refused != 1 || s.Volumes != 2 || s.Promised != 4096 {
		t.Errorf("%+v", s)
	}
	if got := n.Untracked(); !slices.Equal(got["local"], []string{"pvc-untracked"}) {
		t.Errorf("untracked: %v", got)
	}
	if got := n.warnings(t, "local"); got != "VolumeLost pvc-lost, VolumeRefused pvc-broken" {
		t.Errorf("warnings: %s", got)
	}
	since := n.clock.Now()
	n.clock.pass(time.Hour)
	must(t, n.Use(t.Context(), "local", func(o *Open) error { o.Ledger.Drop("pvc-lost"); return nil }))
	if s := n.status(t, "local"); s.Lost != 0 || s.Volumes != 1 ||
		n.warnings(t, "local") != "VolumeRefused pvc-broken" ||
		!s.Warnings[0].Since.Equal(since) || !s.Since.Equal(since) {
		t.Errorf("%+v", s)
	}
}

// TestABrokenRecordClosesAPoolThatPromises: nobody knows what was promised to it.
func TestABrokenRecordClosesAPoolThatPromises(t *testing.T) {
	spec := local()
	spec.Overcommit = 2
	n := start(t, spec)
	n.memory.AddFile("/pool/csi/"+store.Path("pvc-broken"), []byte(`{`))
	n.memory.AddDir("/pool/csi/pvc-broken")
	n.is(t, "local", true, nodeapi.ReasonNoNewVolumes)
	s := n.status(t, "local")
	if room, largest := n.Capacity("local"); largest != 0 || !strings.Contains(s.Message, "pvc-broken") {
		t.Errorf("capacity %d, %d, %+v", room, largest, s)
	}
	must(t, n.Use(t.Context(), "local", func(o *Open) error {
		_, err := o.Ledger.Reserve("pvc-1", 4096, disk.Space{Size: 1 << 30, Free: 1 << 30})
		if !errors.Is(err, ledger.ErrClosed) {
			t.Errorf("reserve: %v", err)
		}
		return nil
	}))
}

// TestANewerRecordClosesNoPool: after a rollback by one version the pool goes on, and the id stays taken.
func TestANewerRecordClosesNoPool(t *testing.T) {
	spec := local()
	spec.Overcommit = 2
	n := start(t, spec)
	n.memory.AddFile("/pool/csi/"+store.Path("snap-1"), []byte(`{"version":5,"id":"snap-1","bytes":4096}`))
	n.memory.AddDir("/pool/csi/snap-1")
	n.is(t, "local", true, "")
	if s := n.status(t, "local"); s.Promised != 0 || s.Refused != 1 || s.Volumes != 1 || s.Allocatable == 0 {
		t.Errorf("%+v", s)
	}
}

// TestQuotaRequired where there is none: a pool that was never used is absent, one that was serves what it has.
func TestQuotaRequired(t *testing.T) {
	required := local()
	required.Quota = poolspec.QuotaRequired
	n := start(t, required)
	n.is(t, "local", false, "QuotaUnavailable")
	s := n.status(t, "local")
	says := strings.Contains(s.Message, "/pool") && strings.Contains(s.Message, "quota: auto")
	if s.Used || len(n.Absent()) > 0 || !says {
		t.Errorf("%+v, absent %v", s, n.Absent())
	}
	n = start(t, local())
	n.is(t, "local", true, "")
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	again := restart(t, n.memory, required)
	again.is(t, "local", true, nodeapi.ReasonNoNewVolumes)
	if room, largest := again.Capacity("local"); room+largest != 0 ||
		!slices.Equal(again.volumes(), []string{"pvc-1"}) {
		t.Errorf("capacity %d, %d, volumes %v", room, largest, again.volumes())
	}
	// A node that was installed anew has not used the pool, and nothing was ever enforced in it.
	n.memory.ReplaceByEmpty("/state")
	restart(t, n.memory, required).is(t, "local", false, "QuotaUnavailable")
}

// TestASickPoolHarmsNoOther: whatever call fails, at whatever step.
func TestASickPoolHarmsNoOther(t *testing.T) {
	for step := 1; step <= 20; step++ {
		n := start(t, local(), other())
		n.pools[1].Check(t.Context())
		n.memory.FailAt(step, syscall.EIO)
		n.pools[0].Check(t.Context())
		about := fmt.Sprintf("step %d", step)
		if s := n.status(t, "local"); !s.Served() && (s.Reason != "Failed" || !strings.Contains(s.Message, "/pool")) {
			t.Errorf("%s: %+v", about, s)
		}
		n.is(t, "other", true, "")
		n.clock.pass(askAgain)
		n.is(t, "local", true, "")
	}
}
