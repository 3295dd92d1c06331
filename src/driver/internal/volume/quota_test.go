package volume_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func withQuota(q poolspec.Quota) option {
	p := retained("local", poolPath)
	p.Quota = q
	return withPools(p)
}

// check lets the pool look at itself, as its watch does every two seconds.
func (n *node) check(t *testing.T) pool.Status {
	t.Helper()
	n.clock.advance(time.Minute)
	n.pool(t).Check(t.Context())
	return n.set.Status()[0]
}

func (n *node) pool(t *testing.T) *pool.Pool {
	t.Helper()
	return poolOf(t, n.set)
}

// checked lets a pool look at itself.
func checked(t *testing.T, set *pool.Set) pool.Status {
	t.Helper()
	poolOf(t, set).Check(t.Context())
	return set.Status()[0]
}

func poolOf(t *testing.T, set *pool.Set) *pool.Pool {
	t.Helper()
	p, err := set.Get("local")
	if err != nil {
		t.Fatal(err)
	}
	real, ok := p.(*pool.Pool)
	if !ok {
		t.Fatalf("the pool is a %T", p)
	}
	return real
}

func TestQuotaOption(t *testing.T) {
	for name, test := range map[string]struct {
		fs          string // ext4 unless said
		on          poolfs.Quota
		want        poolspec.Quota
		backend     string
		enforcement volume.Enforcement
		err         error
	}{
		"auto on nothing":             {want: poolspec.QuotaAuto, backend: "plain", enforcement: volume.None},
		"auto on project quota":       {on: poolfs.QuotaProject, want: poolspec.QuotaAuto, backend: "project", enforcement: volume.Cooperative},
		"auto on simple quota":        {on: poolfs.QuotaSimple, want: poolspec.QuotaAuto, backend: "btrfs", enforcement: volume.Strict},
		"auto on qgroups":             {on: poolfs.QuotaFull, want: poolspec.QuotaAuto, backend: "btrfs", enforcement: volume.Cooperative},
		"auto switches nothing on":    {fs: "btrfs", want: poolspec.QuotaAuto, backend: "plain", enforcement: volume.None},
		"required switches btrfs's":   {fs: "btrfs", want: poolspec.QuotaRequired, backend: "btrfs", enforcement: volume.Strict},
		"required where there is one": {on: poolfs.QuotaProject, want: poolspec.QuotaRequired, backend: "project", enforcement: volume.Cooperative},
		"required where there is not": {want: poolspec.QuotaRequired, err: volume.ErrPoolAbsent},
		"none":                        {on: poolfs.QuotaSimple, want: poolspec.QuotaNone, backend: "plain", enforcement: volume.None},
	} {
		t.Run(name, func(t *testing.T) {
			disk := quotaDisk(t, test.on)
			if test.fs != "" {
				disk.SetFSType(poolPath, test.fs)
			}
			n := start(t, disk, withQuota(test.want))
			v, err := n.Create(t.Context(), spec("pvc-1"))
			if test.err != nil {
				wants(t, err, test.err, "quota", poolPath)
				if s := n.set.Status()[0]; s.Reason != "QuotaUnavailable" {
					t.Errorf("the pool is absent for %s", s.Reason)
				}
				if names := n.ls(t, "."); len(names) > 0 {
					t.Errorf("the driver has made %v in a pool that it refuses", names)
				}
				return
			}
			if err != nil || v.Backend != test.backend || v.Enforcement != test.enforcement || (v.ProjectID != 0) != (test.enforcement != volume.None) {
				t.Errorf("%+v, %v; want %s, %s", v, err, test.backend, test.enforcement)
			}
			data, err := n.open(t).ReadFile(poolfs.MarkerFile)
			if err != nil || !strings.Contains(string(data), fmt.Sprintf("%q: %q", "backend", test.backend)) {
				t.Errorf("the marker does not name the backend: %s, %v", data, err)
			}
			enabled := test.fs == "btrfs" && test.want == poolspec.QuotaRequired
			if n.events.tell("QuotaEnabled", "btrfs") != enabled {
				t.Errorf("events %v", n.events.told)
			}
			told := strings.Join(n.cluster.told, "; ")
			if strings.Contains(told, "ns/claim SizeNotEnforced") != (test.enforcement == volume.None) {
				t.Errorf("the claim was told %q", told)
			}
		})
	}
}

// TestQuotaSwitchedOff: volumes stay served, everybody is told, and where quota is required none is made.
func TestQuotaSwitchedOff(t *testing.T) {
	for name, on := range map[string]poolfs.Quota{"project": poolfs.QuotaProject, "simple": poolfs.QuotaSimple} {
		for _, want := range []poolspec.Quota{poolspec.QuotaAuto, poolspec.QuotaRequired} {
			t.Run(name+" "+string(want), func(t *testing.T) {
				disk := quotaDisk(t, on)
				n := start(t, disk, withQuota(want))
				mustCreate(t, n, "pvc-1")
				disk.SetQuota(poolPath, poolfs.QuotaOff)
				disk.SetFSType(poolPath, map[string]string{"project": "xfs", "simple": "btrfs"}[name])
				if s := n.check(t); !s.Present || !s.EnforcementLost || s.Enforcement != "none" || !n.events.tell("EnforcementLost", "local") {
					t.Fatalf("status %+v, events %v", s, n.events.told)
				}
				again := start(t, disk, withQuota(want))
				if err := openPool(t.Context(), again); err != nil {
					t.Fatal(err)
				}
				for _, n := range []*node{n, again} {
					if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
						t.Errorf("publish: %v", err)
					}
					if v, _, err := n.Get(t.Context(), "pvc-1"); err != nil || v.Enforcement != volume.None {
						t.Errorf("get: %+v, %v", v, err)
					}
					_, err := n.Expand(t.Context(), "pvc-1", 2<<20, 0)
					wants(t, err, volume.ErrNotEnforced, "quota")
					room, _, err := n.set.Capacity(t.Context(), "local")
					if err != nil || (room > 0) != (want == poolspec.QuotaAuto) {
						t.Errorf("capacity %d, %v", room, err)
					}
				}
				_, err := again.Create(t.Context(), spec("pvc-2"))
				if want == poolspec.QuotaRequired {
					wants(t, err, volume.ErrPoolNotHere, "quota is required")
				} else if err != nil {
					t.Errorf("create: %v", err)
				}
				disk.SetQuota(poolPath, on)
				if s := again.check(t); s.EnforcementLost || s.Enforcement == "none" || !again.events.tell("EnforcementRestored", "local") {
					t.Errorf("switched on again: %+v, events %v", s, again.events.told)
				}
				if want == poolspec.QuotaRequired { // with auto there is a volume that nothing is enforced on
					again.consistent(t, "restored")
				}
				if v, err := again.Expand(t.Context(), "pvc-1", 2<<20, 0); err != nil || v.Bytes != 2<<20 || v.Enforcement == volume.None {
					t.Errorf("expand: %+v, %v", v, err)
				}
			})
		}
	}
}

// TestOneBadVolumeIsRefused: a directory that counts elsewhere, and two records with one number.
func TestOneBadVolumeIsRefused(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	n := warm(t, disk)
	for _, id := range []string{"pvc-1", "pvc-2", "pvc-3"} {
		mustCreate(t, n, id)
	}
	pool := n.open(t)
	quotas, _ := poolfs.QuotasOf(pool)
	if err := errors.Join(quotas.Count("pvc-1", 4711), pool.Close()); err != nil {
		t.Fatal(err)
	}
	again := warm(t, disk)
	if s := again.set.Status()[0]; s.Refused != 1 || !s.Present || s.Volumes != 3 || !again.events.tell("VolumeRefused", "pvc-1") {
		t.Errorf("status %+v, events %v", s, again.events.told)
	}
	err := again.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target})
	wants(t, err, volume.ErrBroken, "4711", "csi/pvc-1")
	_, err = again.Expand(t.Context(), "pvc-1", 2<<20, 0)
	wants(t, err, volume.ErrBroken)
	if err := again.Publish(t.Context(), volume.PublishRequest{ID: "pvc-2", Target: target}); err != nil {
		t.Errorf("another volume: %v", err)
	}
	if err := again.Delete(t.Context(), "pvc-1"); err != nil {
		t.Errorf("delete the bad one: %v", err)
	}
	twin := again.records(t)["pvc-2"]
	twin.ID = "pvc-3"
	pool = again.open(t)
	if err := errors.Join((store.Files{}).Replace(pool, twin), pool.Close()); err != nil {
		t.Fatal(err)
	}
	if s := warm(t, disk).set.Status()[0]; s.Refused != 1 || s.Volumes != 2 {
		t.Errorf("two records with one number: %+v", s)
	}
}

// TestConcurrentCreatesForTheLastRoom: exactly as many succeed as fit.
func TestConcurrentCreatesForTheLastRoom(t *testing.T) {
	onEveryQuota(t, func(t *testing.T, fresh func() *memfs.Disk) {
		disk := fresh()
		const gi = 1 << 30
		disk.SetSpace(poolPath, poolfs.Space{Size: 10 * gi, Used: 9 * gi, Free: gi})
		p := retained("local", poolPath)
		if strings.HasSuffix(t.Name(), "/plain") { // it cannot tell whose data is there, and promises once only where it is told to
			disk.SetSpace(poolPath, poolfs.Space{Size: gi, Free: gi})
			p.Overcommit = 1
		}
		n := start(t, disk, withPools(p))
		var made, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				s := spec(fmt.Sprintf("pvc-%d", i))
				s.Bytes = gi / 8
				switch _, err := n.Create(t.Context(), s); {
				case err == nil:
					made.Add(1)
				case errors.Is(err, volume.ErrNoSpace):
					refused.Add(1)
				default:
					t.Errorf("create %d: %v", i, err)
				}
			})
		}
		all.Wait()
		if made.Load() != 8 || refused.Load() != 992 {
			t.Errorf("%d were made and %d refused, want 8 and 992", made.Load(), refused.Load())
		}
		n.consistent(t, "full")
	})
}

// TestParametersOnEveryBackend: what a class says of the directory is so, and survives a restart.
func TestParametersOnEveryBackend(t *testing.T) {
	for name, on := range quotas() {
		t.Run(name, func(t *testing.T) {
			disk := quotaDisk(t, on)
			n := warm(t, disk)
			s := spec("pvc-1")
			s.Mode, s.UID, s.GID = 0o750, 1000, 2000
			few := spec("pvc-2")
			few.Inodes = 3
			_, err := n.Create(t.Context(), s)
			_, fewErr := n.Create(t.Context(), few)
			hasInodes := on != poolfs.QuotaSimple && on != poolfs.QuotaFull
			if !hasInodes {
				wants(t, fewErr, volume.ErrUnsupported, "inodeLimit", "btrfs")
				tiny := spec("pvc-3")
				tiny.Bytes = 64 << 10
				_, fewErr = n.Create(t.Context(), tiny)
				wants(t, fewErr, volume.ErrOutOfRange, "65536")
				fewErr = nil
			}
			if err := errors.Join(err, fewErr); err != nil {
				t.Fatal(err)
			}
			n.parameters(t, s, few, hasInodes)
			n = warm(t, disk.CrashKeepingAll())
			n.parameters(t, s, few, hasInodes)
			n.consistent(t, "restarted")
			n.atMostFiles(t, few, on == poolfs.QuotaProject)
		})
	}
}

// parameters checks that two volumes are as they were asked for, and that a request for them is answered again.
func (n *node) parameters(t *testing.T, s, few volume.Spec, hasInodes bool) {
	t.Helper()
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	info, err := disk.Stat(s.ID)
	if err != nil || info.Mode.Perm() != s.Mode || info.UID != s.UID || info.GID != s.GID {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := n.Create(t.Context(), s); err != nil {
		t.Errorf("asked for again: %v", err)
	}
	if !hasInodes {
		return
	}
	if v, err := n.Create(t.Context(), few); err != nil || v.Inodes != few.Inodes {
		t.Errorf("inodeLimit: %+v, %v", v, err)
	}
}

// atMostFiles makes more files in a volume than its limit lets, where one is enforced. The directory is one of them.
func (n *node) atMostFiles(t *testing.T, s volume.Spec, enforced bool) {
	t.Helper()
	if _, _, err := n.Get(t.Context(), s.ID); errors.Is(err, volume.ErrNotFound) {
		return
	}
	disk := n.open(t)
	defer func() { _ = disk.Close() }()
	var err error
	made := int64(1)
	for ; made < 10; made++ {
		if err = disk.WriteFile(path.Join(s.ID, fmt.Sprint(made)), nil, 0o600); err != nil {
			break
		}
	}
	if held := errors.Is(err, syscall.EDQUOT) && made == s.Inodes; held != enforced {
		t.Errorf("with inodeLimit %d there are %d: %v", s.Inodes, made, err)
	}
}

// TestStatsAreTheVolumesOwn where it is enforced, and the filesystem's elsewhere.
func TestStatsAreTheVolumesOwn(t *testing.T) {
	for name, on := range quotas() {
		t.Run(name, func(t *testing.T) {
			disk := quotaDisk(t, on)
			disk.SetSpace(poolPath, poolfs.Space{Size: 100 << 20, Used: 40 << 20, Free: 60 << 20, Inodes: 1000, InodesUsed: 100, InodesFree: 900})
			n := warm(t, disk)
			s := spec("pvc-1")
			s.Bytes = 50 << 20
			if on == poolfs.QuotaProject {
				s.Inodes = 10
			}
			if _, err := n.Create(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			n.fill(t, "pvc-1")
			if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
				t.Fatal(err)
			}
			got, _, err := n.Stats(t.Context(), "pvc-1", target)
			want := map[string]volume.Stats{
				"plain":   {Bytes: 100 << 20, BytesUsed: 40 << 20, BytesAvailable: 60 << 20, Inodes: 1000, InodesUsed: 100, InodesAvailable: 900},
				"project": {Own: true, Bytes: 50 << 20, BytesUsed: 4, BytesAvailable: 50<<20 - 4, Inodes: 10, InodesUsed: 2, InodesAvailable: 8},
				"simple":  {Own: true, Bytes: 50 << 20, BytesUsed: 4, BytesAvailable: 50<<20 - 4},
				"qgroups": {Own: true, Bytes: 50 << 20, BytesUsed: 4, BytesAvailable: 50<<20 - 4},
			}[name]
			if err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// TestQuotaIsSettledOnceThatIsPossible: a pool whose marker cannot be written serves its volumes, says what is wrong and makes none, until
// the disk takes the marker; nobody restarts anything.
func TestQuotaIsSettledOnceThatIsPossible(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(disk *memfs.Disk, broken bool)
		says    string
	}{
		"full":      {func(d *memfs.Disk, broken bool) { d.SetFull(poolPath, broken) }, "no space left on device"},
		"read-only": {func(d *memfs.Disk, broken bool) { d.SetReadOnly(poolPath, broken) }, "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk(t)
			n := start(t, disk, withQuota(poolspec.QuotaAuto))
			mustCreate(t, n, "pvc-1")
			disk.SetQuota(poolPath, poolfs.QuotaProject) // as after a mount with prjquota: the marker has to say so
			test.arrange(disk, true)
			for range 3 {
				s := n.check(t)
				if !s.Present || s.Reason != pool.NoNewVolumes || !strings.Contains(s.Message, test.says) || s.Available != 0 {
					t.Fatalf("status %+v, want the error %q", s, test.says)
				}
			}
			if told := n.events.count("QuotaUnsettled"); told != 1 || !n.events.tell("QuotaUnsettled", test.says) {
				t.Errorf("told %d times, want once, with the error: %v", told, n.events.told)
			}
			if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
				t.Errorf("a volume that is there: %v", err)
			}
			_, err := n.Create(t.Context(), spec("pvc-2"))
			wants(t, err, volume.ErrPoolNotHere, test.says, "make room")

			test.arrange(disk, false)
			if s := n.check(t); s.Reason != "" || s.Message != "" || s.Available == 0 || !n.events.tell("QuotaSettled", "local") {
				t.Errorf("there is room again: %+v, %v", s, n.events.told)
			}
			if v, err := n.Create(t.Context(), spec("pvc-2")); err != nil || v.Enforcement == volume.None {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// TestNumbersComeFromARangeThatIsOnTheDisk, whichever step of settling the quota failed first.
func TestNumbersComeFromARangeThatIsOnTheDisk(t *testing.T) {
	for step := 1; ; step++ {
		disk := newDisk(t)
		n := start(t, disk, withQuota(poolspec.QuotaAuto))
		mustCreate(t, n, "pvc-1")
		disk.SetQuota(poolPath, poolfs.QuotaProject)
		before := disk.Calls()
		disk.FailAt(step, syscall.EIO)
		n.check(t)
		if disk.Calls() < before+step {
			break
		}
		about := fmt.Sprintf("step %d (%s)", step, disk.Trace()[before+step-1])
		n.check(t)
		number := n.numbered(t, "pvc-2")
		after := start(t, disk.Crash())
		data, err := after.open(t).ReadFile(poolfs.MarkerFile)
		var marker struct{ FirstNumber uint32 }
		if err := errors.Join(err, json.Unmarshal(data, &marker)); err != nil {
			t.Fatal(err)
		}
		if number == 0 || number-marker.FirstNumber >= backend.RangeSize {
			t.Errorf("%s: the number is %d, the pool's range begins with %d", about, number, marker.FirstNumber)
		}
	}
}

// TestSettlingIsTriedLessAndLessOften: from two seconds to a minute, however often the pool is looked at.
func TestSettlingIsTriedLessAndLessOften(t *testing.T) {
	disk := newDisk(t)
	n := start(t, disk, withQuota(poolspec.QuotaAuto))
	mustCreate(t, n, "pvc-1")
	disk.SetQuota(poolPath, poolfs.QuotaProject)
	disk.SetFull(poolPath, true)
	n.check(t)
	tried := func() bool {
		before := disk.Calls()
		n.pool(t).Check(t.Context())
		return disk.Calls() > before
	}
	for _, seconds := range []int{2, 4, 8, 16, 32, 60, 60} {
		pause := time.Duration(seconds) * time.Second
		n.clock.advance(pause - 1)
		if tried() {
			t.Errorf("tried again before %s are over", pause)
		}
		n.clock.advance(1)
		if !tried() {
			t.Errorf("not tried again after %s", pause)
		}
	}
}
