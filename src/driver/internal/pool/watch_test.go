package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

type fakeCluster struct {
	pvs []volume.PersistentVolume
	err error
}

func (c *fakeCluster) Volume(context.Context, string) (volume.PersistentVolume, bool, error) {
	panic("not asked for")
}

func (c *fakeCluster) Volumes(context.Context) ([]volume.PersistentVolume, error) {
	return c.pvs, c.err
}

func (c *fakeCluster) Tell(volume.Claim, string, string) { panic("nobody to tell") }

type fakeEvents struct{ reasons []string }

func (e *fakeEvents) Normal(reason, _ string)  { e.reasons = append(e.reasons, reason) }
func (e *fakeEvents) Warning(reason, _ string) { e.reasons = append(e.reasons, reason) }

type noRecovery struct{}

func (noRecovery) Recover(context.Context, volume.Pool, poolfs.FS) (volume.Report, error) {
	return volume.Report{}, nil
}

func (noRecovery) Published(id string) bool { return id == "csi-mounted" }

// newTestSet is a set over an empty in-memory disk, whose volumes nobody recovers.
func newTestSet(t *testing.T, specs ...poolspec.Pool) (*Set, *memfs.Disk, *fakeCluster, *fakeEvents) {
	t.Helper()
	disk, cluster, events := memfs.New(), &fakeCluster{}, &fakeEvents{}
	disk.AddDir("/state")
	dir, err := disk.OpenDir("/state")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Specs: specs, Disk: disk, State: dir, Cluster: cluster, Events: events,
		Purger: trash.NewPurger(trash.Bin{Now: time.Now}), Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Use(noRecovery{})
	return s, disk, cluster, events
}

func TestOrphans(t *testing.T) {
	s, _, cluster, events := newTestSet(t, poolspec.Pool{Name: "local", Path: "/pool"})
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	old, fresh := now.Add(-2*time.Hour), now.Add(-time.Minute)
	for _, r := range []volume.Record{
		{ID: "pvc-wanted", Created: old},
		{ID: "pvc-orphan", Created: old},
		{ID: "pvc-being-bound", Created: fresh},
		{ID: "csi-mounted", Created: old, Ephemeral: true},
		{ID: "csi-left-behind", Created: old, Ephemeral: true},
	} {
		s.pools[0].ledger.Put(r)
	}
	cluster.pvs = []volume.PersistentVolume{{Handle: "pvc-wanted"}}
	for range 2 {
		s.findOrphans(t.Context(), now)
	}
	got := slices.Sorted(slices.Values(s.pools[0].orphans))
	if !slices.Equal(got, []string{"csi-left-behind", "pvc-orphan"}) {
		t.Errorf("orphans %v, want csi-left-behind and pvc-orphan", got)
	}
	if !slices.Equal(events.reasons, []string{"VolumesOrphaned"}) {
		t.Errorf("events %v, want one for two looks", events.reasons)
	}
	if _, ok := s.pools[0].ledger.Get("pvc-orphan"); !ok {
		t.Error("the orphan was removed")
	}

	cluster.pvs, cluster.err = nil, errors.New("no answer")
	s.findOrphans(t.Context(), now)
	if got := s.pools[0].orphans; len(got) != 2 {
		t.Errorf("without the API the orphans are %v", got)
	}
}

func TestCapacityIsZeroWhereNothingCanBeMade(t *testing.T) {
	s, disk, _, _ := newTestSet(t,
		poolspec.Pool{Name: "local", Path: "/pool"},
		poolspec.Pool{Name: "elsewhere", Path: "/elsewhere", NodeSelector: map[string]string{"a": "b"}},
	)
	for name, positive := range map[string]bool{"local": true, "elsewhere": false, "unknown": false} {
		room, maximum, err := s.Capacity(t.Context(), name)
		if err != nil || room > 0 != positive || maximum != room {
			t.Errorf("capacity of %s: %d, %d, %v; want positive: %v", name, room, maximum, err, positive)
		}
	}
	if n := disk.Opened(); n != 1 {
		t.Errorf("%d directories are open between operations, want the state directory alone", n)
	}
}

func TestResolve(t *testing.T) {
	one, _, _, _ := newTestSet(t, poolspec.Pool{Name: "local", Path: "/pool"})
	two, _, _, _ := newTestSet(t, poolspec.Pool{Name: "a", Path: "/a"}, poolspec.Pool{Name: "b", Path: "/b"})
	legacy, _, _, _ := newTestSet(t, poolspec.Pool{Name: "a", Path: "/a"}, poolspec.Pool{Name: "legacy", Path: "/l"})
	for _, tc := range []struct {
		set        *Set
		name, want string
		err        error
	}{
		{one, "", "local", nil},
		{one, "local", "local", nil},
		{two, "", "", volume.ErrInvalid},
		{legacy, "", "legacy", nil},
	} {
		got, err := tc.set.Resolve(tc.name)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("resolve %q among %s: %q, %v; want %q, %v", tc.name, tc.set.names(), got, err, tc.want, tc.err)
		}
	}
}

// TestChangedTellsEveryChange, and Glance what it was, without a look at a disk.
func TestChangedTellsEveryChange(t *testing.T) {
	s, disk, _, _ := newTestSet(t, poolspec.Pool{Name: "away", Path: "/away", NodeSelector: map[string]string{"a": "b"}}, poolspec.Pool{Name: "local", Path: "/pool"})
	changed := func() bool {
		select {
		case <-s.Changed():
			return true
		default:
			return false
		}
	}
	for i, step := range []struct {
		what        string
		do          func()
		changes     bool
		away, local Status
	}{
		{"start", func() {}, false, Status{Unchecked: true, Reason: "NotChecked"}, Status{Unchecked: true, Reason: "NotChecked"}},
		{"first look", func() { s.pools[1].Check(t.Context()) }, true, Status{Unchecked: true, Reason: "NotChecked"}, Status{Present: true}},
		{"second look", func() { s.pools[1].Check(t.Context()) }, false, Status{Unchecked: true, Reason: "NotChecked"}, Status{Present: true}},
		{"not selected", func() { s.SetNodeLabels(nil); s.pools[0].Check(t.Context()) }, true, Status{Aside: true, Reason: "NotSelected"}, Status{Present: true}},
		{"gone", func() { disk.Mount("/pool"); s.pools[1].Check(t.Context()) }, true, Status{Aside: true, Reason: "NotSelected"}, Status{Reason: "MarkerMissing"}},
		{"still gone", func() { s.pools[1].Check(t.Context()) }, false, Status{Aside: true, Reason: "NotSelected"}, Status{Reason: "MarkerMissing"}},
	} {
		step.do()
		if got := changed(); got != step.changes {
			t.Errorf("%d %s: changed %v", i, step.what, got)
		}
		for j, want := range []Status{step.away, step.local} {
			got := s.Glance()[j]
			if got.Present != want.Present || got.Aside != want.Aside || got.Unchecked != want.Unchecked || got.Reason != want.Reason {
				t.Errorf("%d %s: %+v, want %+v", i, step.what, got, want)
			}
		}
	}
}

func TestSharedWithOS(t *testing.T) {
	s, disk, _, _ := newTestSet(t, poolspec.Pool{Name: "away", Path: "/away"}, poolspec.Pool{Name: "own", Path: "/own"}, poolspec.Pool{Name: "root", Path: "/pool"})
	s.OSPaths = []string{"/", "/kubelet"}
	disk.Mount("/own")
	for _, p := range s.pools[1:] {
		p.Check(t.Context())
	}
	shared := func() string {
		var text strings.Builder
		for _, st := range s.Status() {
			fmt.Fprintf(&text, "%s %s; ", st.Name, show(st.SharedWithOS))
		}
		return text.String()
	}
	if got, want := shared(), "away unknown; own false; root true; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.OSPaths = []string{"/own"} // the kubelet's directory is on that disk
	if got, want := shared(), "away unknown; own true; root false; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func show(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return strconv.FormatBool(*b)
}

// TestReleasedPoolIsLookedAt although somebody works in it; a pool that was not released would wait for that.
func TestReleasedPoolIsLookedAt(t *testing.T) {
	s, disk, _, _ := newTestSet(t, poolspec.Pool{Name: "local", Path: "/pool"})
	p := s.pools[0]
	open, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	poolfs.Release(open)
	poolfs.Release(open)
	disk.ReplaceByEmpty("/pool/csi")
	p.Check(t.Context())
	if st := s.Glance()[0]; st.Present || st.Reason != "MarkerMissing" {
		t.Errorf("%+v", st)
	}
	if _, err := open.Stat("."); err != nil {
		t.Errorf("the work cannot go on: %v", err)
	}
	disk.PutBack("/pool/csi")
	if err := open.Close(); err != nil {
		t.Error(err)
	}
	p.Check(t.Context())
	if st := s.Glance()[0]; !st.Present {
		t.Errorf("%+v", st)
	}
	if n := disk.Opened(); n != 1 {
		t.Errorf("%d directories are open, want the state directory alone", n)
	}
}
