package pool

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// reserve tries to make room for a volume.
func (n *node) reserve(t *testing.T, name string) error {
	t.Helper()
	return n.Use(t.Context(), name, func(o *Open) error {
		release, err := o.Ledger.Reserve("new", 4096, disk.Space{Size: 1 << 40, Free: 1 << 40})
		if err == nil {
			release()
		}
		return err
	})
}

// without is a node whose pool local, with one volume, has left the configuration.
func without(t *testing.T, was poolspec.Pool, now ...poolspec.Pool) *node {
	t.Helper()
	n := start(t, was, other())
	n.check(t)
	n.volume(t, was.Name, store.Record{ID: "pvc-1"})
	n = restart(t, n.memory.Crash(), now...)
	n.check(t)
	return n
}

// TestAPoolThatLeftTheConfiguration goes on with what it has, and gets nothing new.
func TestAPoolThatLeftTheConfiguration(t *testing.T) {
	n := without(t, local(), other())
	if s := n.status(t, "local"); !s.Served() || s.Configured || s.Selected || s.Volumes != 1 ||
		s.Reason != nodeapi.ReasonNotConfigured || s.Path != "/pool" ||
		!strings.Contains(s.Message, "kubectl hpp pool forget local") {
		t.Errorf("%+v", s)
	}
	if absent := n.Absent(); len(absent) > 0 || n.logged("pool is absent") > 0 {
		t.Errorf("absent %v, log %s", absent, n.log)
	}
	if _, largest := n.Capacity("local"); largest != 0 || n.status(t, "local").Allocatable != 0 {
		t.Errorf("a volume of %d could be made", largest)
	}
	err := n.reserve(t, "local")
	const want = "the configuration no longer has pool local"
	if !errors.Is(err, ledger.ErrClosed) || !strings.Contains(err.Error(), want) {
		t.Errorf("a new volume: %v", err)
	}
	n.SetNodeLabels(map[string]string{"disk": "nvme"})
	if err := n.reserve(t, "local"); err == nil {
		t.Error("the node's labels have selected it")
	}
	if !slices.Equal(n.volumes(), []string{"pvc-1"}) || n.Usable(t.Context(), "local") != nil {
		t.Errorf("volumes %v", n.volumes())
	}
	if names, err := n.Resolve(""); !slices.Equal(names, []string{"other"}) || err != nil {
		t.Errorf("a class without a pool means %q, %v", names, err)
	}
	if name, ok := n.PoolOf(nodeapi.PersistentVolume{}); ok {
		t.Errorf("a nodeapi.PersistentVolume without a pool, which may be older, is in %s", name)
	}

	must(t, n.memory.Unmount("/other"))
	n.memory.ReplaceByEmpty("/pool/csi")
	n.is(t, "local", false, "MarkerMissing")
	if absent := n.Absent(); len(absent) != 2 || !strings.Contains(absent[0], "no longer has it; put it back") {
		t.Errorf("absent: %v", absent)
	}
	n.memory.PutBack("/pool/csi")
	n.is(t, "local", true, nodeapi.ReasonNotConfigured)

	again := restart(t, n.memory, local())
	again.is(t, "local", true, "")
	if err := again.reserve(t, "local"); err != nil {
		t.Errorf("it is configured again: %v", err)
	}
}

// TestForgetWantsAPoolEmpty that left the configuration; records, directories and other nodes' volumes count.
func TestForgetWantsAPoolEmpty(t *testing.T) {
	n := without(t, local(), other())
	err := n.Forget(t.Context(), "local")
	if !errors.Is(err, ErrPresent) || !strings.Contains(err.Error(), "still has volumes in /pool/csi: pvc-1") {
		t.Errorf("forget: %v", err)
	}
	n.discard(t, "local", "pvc-1")
	n.memory.AddDir("/pool/csi/pvc-2")
	if err := n.Forget(t.Context(), "local"); !errors.Is(err, ErrPresent) || !strings.Contains(err.Error(), "pvc-2") {
		t.Errorf("forget with a directory that nobody knows: %v", err)
	}
	n.is(t, "local", true, nodeapi.ReasonNotConfigured)
	beside, err := n.memory.Open("/pool")
	must(t, err)
	must(t, errors.Join(beside.Remove("pvc-2"), beside.Mkdir("lost+found", 0o700), beside.Close()))
	must(t, n.Forget(t.Context(), "local"))
	for range 2 {
		if _, known := n.abandoned()["local"]; known || len(n.Status()) != 1 || len(n.Absent()) > 0 {
			t.Errorf("%+v, absent %v", n.Status(), n.Absent())
		}
		if err := n.use(t, "local"); !errors.Is(err, ErrUnknown) {
			t.Errorf("use of a forgotten one: %v", err)
		}
		if err := n.Usable(t.Context(), "local"); err != nil {
			t.Errorf("its volumes are gone: %v", err)
		}
		n.check(t)
		n = restart(t, n.memory.Crash(), other())
		n.check(t)
	}
	if n.Usable(t.Context(), "never") == nil {
		t.Error("a pool that never was is usable")
	}
}

// TestALeftPoolThatIsGone is given up without a look into it, as its disk is not there.
func TestALeftPoolThatIsGone(t *testing.T) {
	n := without(t, local(), other())
	n.memory.ReplaceByEmpty("/pool/csi")
	n.check(t)
	must(t, n.Forget(t.Context(), "local"))
	if len(n.Absent()) > 0 || len(n.Status()) != 1 {
		t.Errorf("absent %v, %+v", n.Absent(), n.Status())
	}
}

// TestNothingIsPurgedByAge in a pool that left the configuration; what was never to be kept goes.
func TestNothingIsPurgedByAge(t *testing.T) {
	for retention, kept := range map[time.Duration]bool{time.Hour: true, 0: false} {
		spec := local()
		spec.Trash = poolspec.Trash{Retention: poolspec.Duration(retention), PurgeWhenFull: true}
		n := without(t, spec, other())
		n.discard(t, "local", "pvc-1")
		n.clock.pass(1000 * time.Hour)
		must(t, n.Use(t.Context(), "local", func(o *Open) error {
			_, err := o.Ledger.Grow("pvc-1", 1<<60, disk.Space{})
			if err == nil {
				t.Error("there was room")
			}
			return nil
		}))
		for range 5 {
			n.find("local").Purge(t.Context())
		}
		if left := len(n.inTrash(t, "local")) > 0; left != kept {
			t.Errorf("retention %s: kept is %v", retention, left)
		}
	}
}

// TestARenamedPool is served under its new name alone, wherever that is.
func TestARenamedPool(t *testing.T) {
	renamed, again := local(), local()
	renamed.Name, again.Name = "nvme", "fast"
	n := without(t, local(), renamed, other())
	n.is(t, "nvme", true, "")
	if s := n.status(t, "nvme"); s.Volumes != 1 || len(n.Status()) != 2 || len(n.Absent()) > 0 {
		t.Errorf("%+v, absent %v", n.Status(), n.Absent())
	}
	if name, ok := n.PoolOf(nodeapi.PersistentVolume{Pool: "local"}); name != "nvme" || !ok ||
		n.Usable(t.Context(), "local") != nil {
		t.Errorf("a nodeapi.PersistentVolume of the old name is in %q", name)
	}
	if err := n.Forget(t.Context(), "local"); !errors.Is(err, ErrPresent) ||
		!strings.Contains(err.Error(), "local is nvme now") {
		t.Errorf("forget of the old name: %v", err)
	}
	n = restart(t, n.memory.Crash(), again, other())
	n.is(t, "fast", true, "")
	n = restart(t, n.memory.Crash(), other()) // and now it leaves
	n.is(t, "fast", true, nodeapi.ReasonNotConfigured)
	if len(n.Status()) != 2 || !slices.Equal(n.volumes(), []string{"pvc-1"}) {
		t.Errorf("%+v", n.Status())
	}
	n = restart(t, n.memory.Crash(), local(), other()) // back to the first name
	n.is(t, "local", true, "")
	if name, _ := n.PoolOf(nodeapi.PersistentVolume{Pool: "fast"}); name != "local" || len(n.Status()) != 2 {
		t.Errorf("fast is %q, %+v", name, n.Status())
	}
}

// TestARenamedPoolOfWhichSomebodyWorks: the old name's work ends before the new name's begins.
func TestARenamedPoolOfWhichSomebodyWorks(t *testing.T) {
	renamed := local()
	renamed.Name, renamed.RequireMount = "nvme", new(bool)
	n := without(t, local(), renamed, other())
	n = restart(t, n.memory, renamed, other()) // nobody has looked yet
	must(t, n.state.Put("local", guard.Memory{ID: n.remembered("nvme").ID, Path: "/pool", Spec: &poolspec.Pool{
		Name: "local", Path: "/pool", Scope: poolspec.ScopeNode, Quota: poolspec.QuotaAuto,
	}}))
	must(t, n.state.Put("nvme", guard.Memory{Forgotten: true}))
	n = restart(t, n.memory, renamed, other())
	done := make(chan error)
	must(t, n.Use(t.Context(), "local", func(*Open) error {
		go func() { done <- n.use(t, "nvme") }()
		select {
		case err := <-done:
			t.Errorf("both names are used at once: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		return nil
	}))
	must(t, <-done)
	if len(n.Status()) != 2 {
		t.Errorf("%+v", n.Status())
	}
}

// TestAMemoryOfAnOlderDriver does not say how the pool was configured: it cannot be served, and is missed.
func TestAMemoryOfAnOlderDriver(t *testing.T) {
	n := start(t, local(), other())
	n.check(t)
	for _, content := range []string{
		`{"id":"AAAA","path":"/pool"}`, `{"id":"AAAA","path":"/pool","configuration":{"name":"else","path":"/pool"}}`,
		`{"id":"AAAA","path":"/pool","configuration":{"name":"local"}}`, `{"id":"AAAA","configuration":7}`,
	} {
		n.memory.AddFile("/state/pools/local.json", []byte(content))
		again := restart(t, n.memory, other())
		again.check(t)
		if absent := again.Absent(); len(absent) != 1 || !strings.Contains(absent[0], "no longer has it") {
			t.Errorf("%s: absent %v", content, absent)
		}
		if s := again.status(t, "local"); s.Configured || s.Served() || s.Reason != nodeapi.ReasonNotConfigured {
			t.Errorf("%s: %+v", content, s)
		}
		if err := again.use(t, "local"); !errors.Is(err, ErrAbsent) || again.Usable(t.Context(), "local") == nil {
			t.Errorf("%s: use: %v", content, err)
		}
	}
	id := read(t, n.memory, disk.MarkerFile)
	_, id, _ = strings.Cut(id, `"id": "`)
	id, _, _ = strings.Cut(id, `"`)
	n.memory.AddFile("/state/pools/local.json", []byte(`{"id":"`+id+`","path":"/pool"}`))
	restart(t, n.memory, local()).is(t, "local", true, "") // which learns it
	restart(t, n.memory, other()).is(t, "local", true, nodeapi.ReasonNotConfigured)
}

// TestASharedPoolThatLeft serves what its marker is, and clears nothing for others.
func TestASharedPoolThatLeft(t *testing.T) {
	n := join(t, newMemory(), everybodys())
	n.expect(guard.Expected{Make: true, Owner: ours})
	n.check(t)
	id := n.status(t, "everybodys").ID
	n.expect(guard.Expected{ID: id, Owner: ours})
	n.check(t)
	n.volume(t, "everybodys", store.Record{ID: "pvc-1"})
	n = join(t, n.memory.Crash())
	n.check(t)
	n.wants(t, "everybodys", true, nodeapi.ReasonNotConfigured)
	if s := n.status(t, "everybodys"); !s.Shared || s.Volumes != 1 {
		t.Errorf("%+v", s)
	}
	n.expect(guard.Expected{ID: "BBBB", Owner: ours})
	n.check(t)
	n.wants(t, "everybodys", false, "MarkerDiffers")
	n.expect(guard.Expected{ID: id, Owner: ours})
	n.is(t, "everybodys", true, nodeapi.ReasonNotConfigured)
}

// dyingHost has a state directory that is there when its driver starts, and dies with its disks.
type dyingHost struct {
	*disktest.Faulty
	memory *disktest.Disk
}

func (d dyingHost) OpenDir(path string) (disk.FS, error) { return d.memory.OpenDir(path) }

type dyingState struct {
	disk.FS
	with *disktest.Faulty // nil while the driver starts
}

func (d *dyingState) step(op, name string) error {
	if d.with == nil {
		return nil
	}
	return d.with.Step(op, name)
}

func (d *dyingState) WriteFile(name string, data []byte, mode fs.FileMode) error {
	if err := d.step("write", name); err != nil {
		return err
	}
	return d.FS.WriteFile(name, data, mode)
}

func (d *dyingState) Replace(from, to string) error {
	if err := d.step("rename", from); err != nil {
		return err
	}
	return d.FS.Replace(from, to)
}

func (d *dyingState) Sync(name string) error {
	if err := d.step("sync", name); err != nil {
		return err
	}
	return d.FS.Sync(name)
}

// TestACrashWhileAPoolIsRenamed: whichever of the memories was written, the next start serves the pool once.
func TestACrashWhileAPoolIsRenamed(t *testing.T) {
	renamed := local()
	renamed.Name = "nvme"
	for step := 1; ; step++ {
		n := without(t, local(), other())
		dying := disktest.NewFaulty(n.memory, step, nil)
		state := &dyingState{}
		crashed := newNode(
			t,
			dyingHost{dying, n.memory},
			func(c *Config) { state.FS, c.State = c.State, state },
			renamed,
			other(),
		)
		state.with = dying
		for _, p := range crashed.pools {
			p.Check(t.Context())
		}
		reached := dying.Steps() >= step
		after := restart(t, n.memory.Crash(), renamed, other())
		after.check(t)
		after.is(t, "nvme", true, "")
		if len(after.Status()) != 2 || !slices.Equal(after.volumes(), []string{"pvc-1"}) {
			t.Fatalf("dead from call %d on: %+v", step, after.Status())
		}
		if !reached {
			if step < 5 {
				t.Errorf("only %d steps", step)
			}
			return
		}
	}
}
