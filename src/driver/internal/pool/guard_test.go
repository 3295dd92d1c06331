package pool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

var errSilent = errors.New("no answer")

func TestMountGuard(t *testing.T) {
	n := start(t, other())
	n.wants(t, "other", false, "NotChecked")
	n.is(t, "other", true, "")
	n.volume(t, "other", store.Record{ID: "pvc-1"})

	must(t, n.memory.Unmount("/other"))
	n.is(t, "other", false, "MarkerMissing")
	absent := n.Absent()
	if len(absent) != 1 || !strings.Contains(absent[0], "pool other: /other holds no csi/.hpp/pool.json") {
		t.Errorf("absent: %v", absent)
	}
	if err := n.use(t, "other"); !errors.Is(err, ErrAbsent) ||
		!strings.Contains(err.Error(), "kubectl hpp pool forget other") {
		t.Errorf("use: %v", err)
	}
	if n.logged("pool is absent") != 1 || len(n.volumes()) > 0 {
		t.Errorf("log %s, volumes %v", n.log, n.volumes())
	}

	n.memory.MountNew("/other")
	n.is(t, "other", false, "MarkerMissing")
	must(t, n.memory.Unmount("/other"))
	n.memory.Mount("/other") // what was unmounted last: the empty one
	n.is(t, "other", false, "MarkerMissing")
}

// TestTheDiskComesBack, and with it its volumes.
func TestTheDiskComesBack(t *testing.T) {
	n := start(t, other())
	n.is(t, "other", true, "")
	id := n.status(t, "other").ID
	n.volume(t, "other", store.Record{ID: "pvc-1"})
	must(t, n.memory.Unmount("/other"))
	n.is(t, "other", false, "MarkerMissing")
	n.memory.Mount("/other")
	if err := n.use(t, "other"); err != nil { // without a look of the watcher
		t.Error(err)
	}
	n.is(t, "other", true, "")
	if !slices.Equal(n.volumes(), []string{"pvc-1"}) || n.status(t, "other").ID != id {
		t.Errorf("volumes %v, %+v", n.volumes(), n.status(t, "other"))
	}
	again := restart(t, n.memory.Crash(), other())
	again.cluster.knows(errSilent)
	again.is(t, "other", true, "")
	if !slices.Equal(again.volumes(), []string{"pvc-1"}) || again.cluster.asked > 0 {
		t.Errorf("after a restart: %v; the API was asked %d times", again.volumes(), again.cluster.asked)
	}
}

// TestAnotherDisk with a marker of its own is not the pool, until the pool is forgotten.
func TestAnotherDisk(t *testing.T) {
	n := start(t, local())
	n.is(t, "local", true, "")
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	n.cluster.knows(nil, here("pvc-1", "local"))
	n.memory.ReplaceByEmpty("/pool/csi")
	marker := `{"version":2,"id":"BBBB"}`
	n.memory.AddFile("/pool/csi/.hpp/pool.json", []byte(marker))
	n.is(t, "local", false, "MarkerDiffers")
	must(t, n.Forget(t.Context(), "local"))
	if n.Usable(t.Context(), "local") != nil || len(n.Absent()) > 0 {
		t.Errorf("forgotten, and still missed: %v", n.Absent())
	}
	n.is(t, "local", true, "")
	if id := n.status(t, "local").ID; id != "BBBB" || len(n.volumes()) > 0 {
		t.Errorf("adopted %q with %v", id, n.volumes())
	}
	if err := n.Forget(t.Context(), "local"); !errors.Is(err, ErrPresent) {
		t.Errorf("forget of a pool that is there: %v", err)
	}
}

func TestUnusableMarkers(t *testing.T) {
	for name, test := range map[string]struct{ content, says string }{
		"truncated":            {`{"version":2,"id`, "damaged"},
		"of the first version": {`{"version":1,"id":"AAAA"}`, "it has version 1"},
		"without an id":        {`{"version":2}`, `id ""`},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, local())
			n.memory.AddFile("/pool/csi/.hpp/pool.json", []byte(test.content))
			n.is(t, "local", false, "MarkerUnusable")
			if s := n.status(t, "local"); !strings.Contains(s.Message, test.says) {
				t.Errorf("%s", s.Message)
			}
			if data := read(t, n.memory, ".hpp/pool.json"); data != test.content {
				t.Errorf("the marker became %s", data)
			}
		})
	}
}

func read(t *testing.T, memory *disktest.Disk, name string) string {
	t.Helper()
	d, err := memory.Open("/pool")
	must(t, err)
	defer func() { _ = d.Close() }()
	data, err := d.ReadFile(name)
	must(t, err)
	return string(data)
}

// TestNothingIsMadeWhereVolumesAreMissing: their disk is not mounted, and a marker would hide that for ever.
func TestNothingIsMadeWhereVolumesAreMissing(t *testing.T) {
	n := start(t, local())
	elsewhere := nodeapi.PersistentVolume{Handle: "pvc-3", Pool: "local"}
	n.cluster.knows(nil, here("pvc-1", "local"), here("pvc-2", ""), elsewhere)
	n.is(t, "local", false, "VolumesMissing")
	if s := n.status(t, "local"); !strings.Contains(s.Message, "pvc-1, pvc-2;") || s.Used {
		t.Errorf("%+v", s)
	}
	if facts, err := n.memory.Inspect("/pool"); err != nil || facts.Path {
		t.Errorf("%+v, %v", facts, err)
	}
	n.memory.AddDir("/pool/csi/pvc-1")
	n.memory.AddFile("/pool/csi/"+store.Path("pvc-2"), encode(t, store.Record{ID: "pvc-2"}))
	n.is(t, "local", true, "")
}

// TestAdoptionWithoutSomeVolumes: a marker that has one of them is on the right disk: the node was reinstalled.
func TestAdoptionWithoutSomeVolumes(t *testing.T) {
	first := start(t, local())
	first.is(t, "local", true, "")
	first.volume(t, "local", store.Record{ID: "pvc-1"})
	first.memory.ReplaceByEmpty("/state")
	n := restart(t, first.memory, local())
	n.cluster.knows(nil, here("pvc-1", "local"), here("pvc-2", "local"))
	n.is(t, "local", true, "")
	if id := n.status(t, "local").ID; id != first.status(t, "local").ID ||
		!slices.Equal(n.volumes(), []string{"pvc-1"}) {
		t.Errorf("adopted %s with %v", id, n.volumes())
	}
	for _, gone := range []string{"", "pvc-1"} {
		n.DropMissing(gone)
		n.check(t)
		if got := n.warnings(t, "local"); got != "VolumesMissing pvc-2" {
			t.Errorf("%q deleted: warnings %q", gone, got)
		}
	}
	n.DropMissing("pvc-2")
	if got := n.warnings(t, "local"); got != "" {
		t.Errorf("deleted, and warned of: %q", got)
	}
}

// TestAMarkerWithoutAnyVolume may lie below a disk that is not mounted.
func TestAMarkerWithoutAnyVolume(t *testing.T) {
	n := start(t, local())
	n.memory.AddFile("/pool/csi/.hpp/pool.json", []byte(`{"version":2,"id":"AAAA"}`))
	n.cluster.knows(nil, here("pvc-1", "local"), here("pvc-2", "local"))
	n.is(t, "local", false, "VolumesMissing")
	if n.warnings(t, "local") != "" || n.status(t, "local").Used {
		t.Errorf("%+v", n.status(t, "local"))
	}
}

// TestForgetLetsAPoolBeMadeAlthoughVolumesAreMissing.
func TestForgetLetsAPoolBeMadeAlthoughVolumesAreMissing(t *testing.T) {
	n := start(t, local())
	n.cluster.knows(nil, here("pvc-1", "local"))
	n.is(t, "local", false, "VolumesMissing")
	must(t, n.Forget(t.Context(), "local"))
	n.is(t, "local", true, "")
	again := restart(t, n.memory.Crash(), local())
	again.is(t, "local", true, "")
}

// TestWithoutTheAPI nothing is taken into use for the first time, and the API is not asked at every look.
func TestWithoutTheAPI(t *testing.T) {
	n := start(t, local(), other())
	n.cluster.knows(errSilent)
	for range 20 {
		n.is(t, "local", false, "ClusterUnknown")
		n.wants(t, "other", false, "ClusterUnknown")
	}
	if n.cluster.asked != 1 {
		t.Errorf("the API was asked %d times", n.cluster.asked)
	}
	n.clock.pass(afterSilence)
	n.is(t, "local", false, "ClusterUnknown")
	n.cluster.knows(nil)
	n.clock.pass(afterSilence)
	n.is(t, "local", true, "")
	n.is(t, "other", true, "")
	if n.cluster.asked != 3 {
		t.Errorf("the API was asked %d times", n.cluster.asked)
	}
}

// TestNodeSelector stops creation only.
func TestNodeSelector(t *testing.T) {
	spec := local()
	spec.NodeSelector = map[string]string{"disk": "nvme"}
	n := start(t, spec)
	n.is(t, "local", false, "NodeUnknown")
	n.SetNodeLabels(map[string]string{"disk": "hdd"})
	n.is(t, "local", false, "NotSelected")
	if s := n.status(t, "local"); s.Reason != nodeapi.ReasonNotSelected || s.Selected {
		t.Errorf("%+v", s)
	}
	if err := n.use(t, "local"); !errors.Is(err, ErrNotHere) {
		t.Errorf("use: %v", err)
	}
	if err := n.Usable(t.Context(), "local"); err != nil {
		t.Errorf("usable: %v", err)
	}
	n.SetNodeLabels(map[string]string{"disk": "nvme"})
	n.is(t, "local", true, "")
	if room, largest := n.Capacity("local"); room == 0 || largest != room {
		t.Errorf("capacity %d, %d", room, largest)
	}
	n.SetNodeLabels(nil)
	n.is(t, "local", true, "")
	if room, largest := n.Capacity("local"); room == 0 || largest != 0 || n.status(t, "local").Selected {
		t.Errorf("no longer selected: capacity %d, %d", room, largest)
	}
	again := restart(t, n.memory, spec) // labels are not known yet
	again.is(t, "local", true, "")
}

// TestAnUnselectedNodeServesWhatTheClusterKnows.
func TestAnUnselectedNodeServesWhatTheClusterKnows(t *testing.T) {
	spec := local()
	spec.NodeSelector = map[string]string{"disk": "nvme"}
	n := start(t, spec)
	n.SetNodeLabels(nil)
	n.memory.AddDir("/pool/csi/pvc-1")
	n.cluster.knows(nil, here("pvc-1", "local"))
	n.is(t, "local", true, "")
	if _, largest := n.Capacity("local"); largest != 0 {
		t.Errorf("a volume of %d could be made", largest)
	}
}

// TestRequireMount: neither the root filesystem nor one that is gone is taken for the pool's.
func TestRequireMount(t *testing.T) {
	yes := true
	spec := other()
	spec.RequireMount = &yes
	n := start(t, spec)
	must(t, n.memory.Unmount("/other"))
	n.is(t, "other", false, "NotMounted")
	if len(n.Absent()) > 0 || n.status(t, "other").Used {
		t.Errorf("a pool that was never here is missed: %v", n.Absent())
	}
	if n.Usable(t.Context(), "other") == nil {
		t.Error("its volumes could be used")
	}
	n.memory.Mount("/other")
	n.is(t, "other", true, "")
	must(t, n.memory.Unmount("/other"))
	n.is(t, "other", false, "MarkerMissing")
	if len(n.Absent()) != 1 {
		t.Errorf("a pool that was here is not missed: %v", n.Absent())
	}
}

// TestFilesystemInMemory is never first used, also where the pool's path is made on it; one that was used is.
func TestFilesystemInMemory(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ramfs"} {
		n := start(t, other())
		n.memory.SetFSType("/other", kind)
		n.is(t, "other", false, "InMemory")
		if s := n.status(t, "other"); !strings.Contains(s.Message, "on a "+kind) || s.Used {
			t.Errorf("%+v", s)
		}
		n.memory.SetFSType("/other", "ext4")
		n.is(t, "other", true, "")
		n.memory.SetFSType("/other", kind)
		again := restart(t, n.memory, other())
		again.is(t, "other", true, "")
	}
	below := other()
	below.Path = "/other/below"
	n := start(t, below)
	n.memory.SetFSType("/other", "tmpfs")
	n.is(t, "other", false, "InMemory")
	if n.status(t, "other").Used {
		t.Errorf("%+v", n.status(t, "other"))
	}
}

// TestOverlay may be the root of a container, and is warned of once.
func TestOverlay(t *testing.T) {
	for _, path := range []string{"/other", "/other/below"} {
		spec := other()
		spec.Path = path
		n := start(t, spec)
		n.memory.SetFSType("/other", "overlay")
		n.is(t, "other", true, "")
		again := restart(t, n.memory, spec)
		again.is(t, "other", true, "")
		if n.warnings(t, "other") != nodeapi.WarningPoolOnOverlay || again.warnings(t, "other") != "" {
			t.Errorf("%s: warnings %q, then %q", path, n.warnings(t, "other"), again.warnings(t, "other"))
		}
	}
}

// TestNetworkFilesystem under a pool of scope node: refused by name, unless volumes of this node are there.
func TestNetworkFilesystem(t *testing.T) {
	n := start(t, other())
	n.memory.SetFSType("/other", "nfs")
	n.is(t, "other", false, "NetworkFilesystem")
	if s := n.status(t, "other"); !strings.Contains(s.Message, "(nfs)") || s.Used || len(n.Absent()) > 0 {
		t.Errorf("%+v, absent %v", s, n.Absent())
	}
	if facts, err := n.memory.Inspect("/other"); err != nil || facts.CSI {
		t.Errorf("something was made there: %+v, %v", facts, err)
	}
	n.memory.AddFile("/other/csi/.hpp/pool.json", []byte(`{"version":2,"id":"of-another-node"}`))
	n.is(t, "other", false, "NetworkFilesystem")
	n.clock.pass(askAgain)
	n.cluster.knows(nil, here("pvc-1", "other"))
	n.is(t, "other", false, "VolumesMissing")
	n.memory.AddDir("/other/csi/pvc-1")
	n.is(t, "other", true, "")
	n.cluster.knows(errSilent)
	again := restart(t, n.memory, other())
	again.is(t, "other", true, "")

	n = start(t, claimed())
	n.memory.Mount("/pool/csi")
	n.memory.SetFSType("/pool/csi", "nfs")
	n.is(t, "local", true, "")

	for _, name := range []string{"lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "cephfs", "smb", "9p", "fuse"} {
		n = start(t, other())
		n.memory.SetFSType("/other", name)
		n.is(t, "other", false, "NetworkFilesystem")
	}
}

// claimed is a pool whose filesystem comes from a claim.
func claimed() poolspec.Pool {
	spec := local()
	spec.PVCTemplate = map[string]any{"storageClassName": "fast"}
	return spec
}

// TestPoolFromAClaim waits for its claim, whatever is in the directory that the claim is to be mounted on.
func TestPoolFromAClaim(t *testing.T) {
	n := start(t, claimed())
	n.is(t, "local", false, "ClaimNotMounted")
	if facts, err := n.memory.Inspect("/pool"); err != nil || facts.Path {
		t.Errorf("something was made there: %+v, %v", facts, err)
	}
	if s := n.status(t, "local"); s.Used || !strings.Contains(s.Message, "hostpathprovisioner.kubevirt.io/pool=local") {
		t.Errorf("%+v", s)
	}
	n.memory.AddFile("/pool/csi/.hpp/pool.json", []byte(`{"version":2,"id":"of-the-OS-disk"}`))
	n.is(t, "local", false, "ClaimNotMounted")

	n.memory.Mount("/pool/csi")
	n.is(t, "local", true, "")
	id := n.status(t, "local").ID
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	must(t, n.memory.Unmount("/pool/csi"))
	n.is(t, "local", false, "ClaimNotMounted")
	if absent := n.Absent(); len(absent) != 1 || n.logged("pool is absent") != 2 {
		t.Errorf("absent %v, log %s", absent, n.log)
	}

	again := restart(t, n.memory.Crash(), claimed())
	again.is(t, "local", false, "ClaimNotMounted")
	again.memory.Mount("/pool/csi")
	again.is(t, "local", true, "")
	if s := again.status(t, "local"); s.ID != id || s.Volumes != 1 {
		t.Errorf("%+v, want pool %s with its volume", s, id)
	}
}

// TestAPoolGetsAClaim after it was used on the node's own disk: its volumes are missed, not shadowed.
func TestAPoolGetsAClaim(t *testing.T) {
	n := start(t, local())
	n.volume(t, "local", store.Record{ID: "pvc-1"})
	again := restart(t, n.memory, claimed())
	again.is(t, "local", false, "ClaimNotMounted")
	again.memory.Mount("/pool/csi")
	again.is(t, "local", false, "MarkerMissing")
	must(t, again.memory.Unmount("/pool/csi"))
	restart(t, n.memory, local()).is(t, "local", true, "")
}

// TestTwoPoolsOneDirectory: the second is refused, whichever way it leads there.
func TestTwoPoolsOneDirectory(t *testing.T) {
	second := local()
	second.Name, second.Path = "second", "/link"
	n := start(t, local(), second)
	n.memory.AddDir("/pool")
	n.memory.Symlink("/link", "/pool")
	n.is(t, "local", true, "")
	n.is(t, "second", false, "SameDirectory")
	if s := n.status(t, "second"); !strings.Contains(s.Message, "pool local as well") {
		t.Errorf("%s", s.Message)
	}
}

// TestSwappedDisks: each pool says where the disk belongs that it has, and neither can be forgotten: it would be taken
// for the other from then on.
func TestSwappedDisks(t *testing.T) {
	n := start(t, local(), other())
	n.is(t, "local", true, "")
	n.is(t, "other", true, "")
	was := map[string]string{"/other": n.status(t, "local").ID, "/pool": n.status(t, "other").ID}
	for path, id := range was {
		n.memory.ReplaceByEmpty(path + "/csi")
		n.memory.AddFile(path+"/csi/.hpp/pool.json", fmt.Appendf(nil, `{"version":2,"id":%q}`, id))
	}
	for name, belongs := range map[string]string{"local": "/other", "other": "/pool"} {
		n.is(t, name, false, "OtherPoolsDisk")
		if err := n.Forget(t.Context(), name); !errors.Is(err, ErrPresent) || !strings.Contains(err.Error(), belongs) {
			t.Errorf("forget %s: %v", name, err)
		}
	}
	for path := range was {
		n.memory.PutBack(path + "/csi")
	}
	n.is(t, "local", true, "")
	n.is(t, "other", true, "")
}

// TestTwoPoolsFirstUsedAtOnce: only one of them finds the directory new.
func TestTwoPoolsFirstUsedAtOnce(t *testing.T) {
	for range 20 {
		second := local()
		second.Name = "second"
		n := start(t, local(), second)
		done := make(chan error)
		for _, name := range []string{"local", "second"} {
			go func() { done <- n.Use(t.Context(), name, func(*Open) error { return nil }) }()
		}
		if a, b := <-done, <-done; (a == nil) == (b == nil) {
			t.Fatalf("%v, %v", a, b)
		}
	}
}

// TestDamagedState: that pool is absent, no other is, and to forget it is the way out.
func TestDamagedState(t *testing.T) {
	n := start(t, local(), other())
	n.check(t)
	n.memory.AddFile("/state/pools/local.json", []byte(`{"id": "AAA`))
	again := restart(t, n.memory, local(), other())
	again.cluster.knows(nil, here("pvc-1", "local"))
	again.is(t, "local", false, "StateDamaged")
	again.is(t, "other", true, "")
	if s := again.status(t, "local"); !s.Used || !strings.Contains(s.Message, "kubectl hpp pool forget local") {
		t.Errorf("%+v", s)
	}
	if absent := again.Absent(); len(absent) != 1 || again.Usable(t.Context(), "local") == nil {
		t.Errorf("absent: %v", absent)
	}
	must(t, again.Forget(t.Context(), "local"))
	again.is(t, "local", true, "")
	restart(t, n.memory.Crash(), local(), other()).is(t, "local", true, "")
}

// TestChangedUnderAnOperation: what works on is not disturbed, and the next one sees the change.
func TestChangedUnderAnOperation(t *testing.T) {
	n := start(t, local())
	n.check(t)
	must(t, n.Use(t.Context(), "local", func(o *Open) error {
		n.memory.ReplaceByEmpty("/pool/csi")
		return o.Disk.Mkdir("pvc-1", 0o700)
	}))
	n.is(t, "local", false, "MarkerMissing")
	n.memory.PutBack("/pool/csi")
	n.is(t, "local", true, "")
	if got := n.Untracked(); !slices.Equal(got["local"], []string{"pvc-1"}) {
		t.Errorf("untracked: %v", got)
	}
	must(t, n.Use(t.Context(), "local", func(o *Open) error { o.MarkTracked("pvc-1"); return nil }))
	if got := n.Untracked(); len(got) > 0 {
		t.Errorf("untracked: %v", got)
	}
}

// TestLayout: csi/ is closed to others, and what is missing is made when the pool comes back.
func TestLayout(t *testing.T) {
	n := start(t, local())
	n.memory.AddDir("/pool/csi")
	n.check(t)
	must(t, n.Use(t.Context(), "local", func(o *Open) error {
		for _, name := range []string{".", disk.MetaDir, disk.VolumesDir, disk.StagingDir, disk.TrashDir} {
			if info, err := o.Disk.Stat(name); err != nil || info.Mode.Perm() != 0o700 {
				t.Errorf("%s: %+v, %v", name, info, err)
			}
		}
		return nil
	}))
}

func TestResolve(t *testing.T) {
	named := func(names ...string) *node {
		var specs []poolspec.Pool
		for _, name := range names {
			specs = append(specs, poolspec.Pool{Name: name, Path: "/" + name})
		}
		return start(t, specs...)
	}
	for _, tc := range []struct {
		node       *node
		name, want string
		err        error
	}{
		{named("local"), "", "local", nil},
		{named("local"), "local", "local", nil},
		{named("a", "b"), "", "", ErrAmbiguous},
		{named(), "", "", ErrAmbiguous},
		{named("a", "legacy"), "", "legacy", nil},
		{named("a"), "other", "other", nil}, // which Use refuses
		{named("nvme0", "nvme1", "hdd"), "nvme*", "nvme0,nvme1", nil},
		{named("nvme0", "nvme1", "hdd"), "hdd,nvme0", "hdd,nvme0", nil},
		{named("nvme0"), "ssd*", "", ErrSeveral},
	} {
		got, err := tc.node.Resolve(tc.name)
		if strings.Join(got, ",") != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("resolve %q among %v: %q, %v; want %q, %v", tc.name, tc.node.Names(), got, err, tc.want, tc.err)
		}
	}
}

// TestPreferred: first those where sizes are enforced, then that of the source, then those with more room.
func TestPreferred(t *testing.T) {
	n := start(t, poolspec.Pool{Name: "away", Path: "/away"}, poolspec.Pool{Name: "hangs", Path: "/hangs"},
		poolspec.Pool{Name: "silent", Path: "/silent"}, poolspec.Pool{Name: "large", Path: "/large"},
		poolspec.Pool{Name: "medium", Path: "/medium"},
		poolspec.Pool{Name: "plain", Path: "/plain"}, poolspec.Pool{Name: "small", Path: "/small"})
	for name, free := range map[string]int64{"hangs": 9, "silent": 9, "large": 3, "medium": 2, "plain": 8, "small": 1} {
		p := n.find(name)
		p.update(func(s *state) {
			s.id, s.space = "present", disk.Space{Size: 10 << 30, Free: free << 30}
			if name != "plain" {
				s.backend = quota.Backend{Name: quota.Project, Enforcement: quota.Cooperative}
			}
		})
	}
	n.find("hangs").givenUp.Store(1)
	n.find("silent").update(func(s *state) { s.seen = n.Now().Add(-time.Hour) })
	all := []string{"away", "hangs", "large", "medium", "plain", "silent", "small"}
	const last = " plain away hangs silent"
	for source, want := range map[string]string{
		"": "large medium small" + last, "small": "small large medium" + last,
		"plain": "large medium small" + last, "away": "large medium small" + last,
	} {
		if got := strings.Join(n.Preferred(all, source), " "); got != want {
			t.Errorf("with a source in %q the order is %s, want %s", source, got, want)
		}
	}
	for _, name := range []string{"hangs", "silent"} {
		if _, largest := n.Capacity(name); largest > 0 {
			t.Errorf("pool %s, which does not answer, is said to have room for %d bytes", name, largest)
		}
	}
}
