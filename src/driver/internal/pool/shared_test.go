package pool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// everybodys is a shared pool on a filesystem of its own.
func everybodys() poolspec.Pool {
	return poolspec.Pool{Name: "everybodys", Path: "/other", Scope: poolspec.ScopeShared, Quota: poolspec.QuotaNone}
}

// join starts a node with a controller on a filesystem that others have too.
func join(t *testing.T, memory *disktest.Disk, specs ...poolspec.Pool) *node {
	t.Helper()
	n := newNode(t, memory, func(c *Config) { c.Alone = false }, specs...)
	n.memory, n.opened = memory, memory.Opened()
	return n
}

func newMemory() *disktest.Disk {
	memory := disktest.New()
	memory.AddDir("/state")
	memory.Mount("/other")
	return memory
}

func (n *node) expect(expected guard.Expected) {
	n.SetExpected(map[string]guard.Expected{"everybodys": expected})
}

func TestASharedPoolIsWhatTheControllerSays(t *testing.T) {
	n := join(t, newMemory(), everybodys())
	n.check(t)
	n.wants(t, "everybodys", false, guard.IdentityUnknown)
	if absent := n.Absent(); len(absent) != 1 || !strings.Contains(absent[0], "everybodys") {
		t.Errorf("absent are %q: a volume may be in the pool that this node does not see", absent)
	}
	n.expect(guard.Expected{Make: true})
	n.check(t)
	n.wants(t, "everybodys", true, nodeapi.ReasonNoNewVolumes) // another controller may have let another node make it
	id, changed := n.status(t, "everybodys").ID, n.Changed()
	n.expect(guard.Expected{ID: id})
	n.check(t)
	n.wants(t, "everybodys", true, "")
	if len(changed) == 0 {
		t.Error("nobody was expected that volumes can be made")
	}
	n.expect(guard.Expected{ID: "AAAA"})
	n.check(t)
	n.wants(t, "everybodys", false, "MarkerDiffers")
	n.expect(guard.Expected{ID: id})
	n.check(t)
	n.wants(t, "everybodys", true, "")
	n.SetExpected(nil) // another controller, which has not said anything yet
	n.check(t)
	n.wants(t, "everybodys", true, "")
}

func TestAnEmptyFilesystemIsNotWhatOthersHave(t *testing.T) {
	memory := newMemory()
	n := join(t, memory, everybodys())
	n.expect(guard.Expected{ID: "AAAA"})
	n.check(t)
	n.wants(t, "everybodys", false, "MarkerMissing")
	if info, err := memory.Inspect("/other"); err != nil || info.CSI {
		t.Errorf("something was made there: %+v, %v", info, err)
	}
}

func TestTwoSharedPoolsInOneDirectory(t *testing.T) {
	memory := newMemory()
	memory.Symlink("/again", "/other")
	second := everybodys()
	second.Name, second.Path = "second", "/again"
	n := join(t, memory, everybodys(), second)
	n.SetExpected(map[string]guard.Expected{"everybodys": {Make: true}, "second": {Make: true}})
	n.check(t)
	n.wants(t, "everybodys", true, nodeapi.ReasonNoNewVolumes)
	n.wants(t, "second", false, "SameDirectory")
	id := n.status(t, "everybodys").ID
	joining := join(t, memory, second, everybodys())
	joining.Set.memory = map[string]guard.Remembered{}
	joining.SetExpected(map[string]guard.Expected{"everybodys": {ID: id}, "second": {Make: true}})
	joining.pools[1].Check(t.Context()) // the second first
	joining.wants(t, "second", false, "SameDirectory")
	joining.check(t)
	joining.wants(t, "everybodys", true, "")
}

// TestAVolumeThatIsMissingKeepsNoNodeAway: what other nodes have is not a wrong disk.
func TestAVolumeThatIsMissingKeepsNoNodeAway(t *testing.T) {
	n := join(t, newMemory(), everybodys())
	n.expect(guard.Expected{Make: true})
	n.check(t)
	joining := join(t, n.memory, everybodys())
	joining.Set.memory = map[string]guard.Remembered{}
	joining.cluster.knows(nil, nodeapi.PersistentVolume{Name: "typo", Handle: "typo", Pool: "everybodys"})
	joining.expect(guard.Expected{ID: n.status(t, "everybodys").ID})
	joining.check(t)
	joining.wants(t, "everybodys", true, "")
}

// TestARoomIsMadeAgain: somebody has removed it while the node runs.
func TestARoomIsMadeAgain(t *testing.T) {
	n := join(t, newMemory(), everybodys())
	n.expect(guard.Expected{Make: true})
	n.check(t)
	beside, err := n.memory.Open("/other")
	must(t, err)
	must(t, beside.RemoveTree(t.Context(), ".hpp/trash/this", nil))
	must(t, beside.Close())
	n.clock.pass(rescanInterval)
	n.check(t)
	beside, err = n.memory.Open("/other")
	must(t, err)
	_, err = beside.Stat(".hpp/trash/this/.spare")
	must(t, errors.Join(err, beside.Close()))
}

// TestWhatOthersDoIsCounted makes and removes a record beside the node.
func TestWhatOthersDoIsCounted(t *testing.T) {
	n := join(t, newMemory(), everybodys())
	n.expect(guard.Expected{Make: true})
	n.check(t)
	beside, err := n.memory.Open("/other")
	must(t, err)
	defer func() { _ = beside.Close() }()
	n.opened = n.memory.Opened()
	r := store.Record{Version: store.Version, ID: "pvc-1", Pool: "everybodys", Bytes: 4096, Node: "b"}
	must(t, store.Add(beside, r))
	must(t, beside.Mkdir(".hpp/staging/b", 0o700))
	wants := func(volumes int) {
		t.Helper()
		n.clock.pass(rescanInterval)
		n.check(t)
		if got := n.status(t, "everybodys"); got.Volumes != volumes || !slices.Equal(got.NodeDirs, []string{"b"}) {
			t.Errorf("%d volumes, directories %v; want %d, and that of b", got.Volumes, got.NodeDirs, volumes)
		}
	}
	wants(1)
	must(t, store.Remove(beside, "pvc-1"))
	wants(0)
}

// TestConfirmationIsAwaited after a hiccup of the mount and after a restart too. A pool that was forgotten has no
// volumes to wait for.
func TestConfirmationIsAwaited(t *testing.T) {
	n := join(t, newMemory(), everybodys())
	n.expect(guard.Expected{Make: true})
	n.check(t)
	n.memory.ReplaceByEmpty("/other/csi")
	n.check(t)
	n.memory.PutBack("/other/csi")
	n.check(t)
	n.wants(t, "everybodys", true, nodeapi.ReasonNoNewVolumes)
	again := join(t, n.memory, everybodys())
	again.check(t)
	again.wants(t, "everybodys", true, nodeapi.ReasonNoNewVolumes)

	without := join(t, newMemory(), everybodys())
	without.check(t)
	must(t, without.Forget(t.Context(), "everybodys"))
	if absent := without.Absent(); len(absent) > 0 {
		t.Errorf("absent are %q", absent)
	}
}

// TestAnNFSClientThatRemembersWhatIsMissing is warned of while the pool is there.
func TestAnNFSClientThatRemembersWhatIsMissing(t *testing.T) {
	for kind, want := range map[string]string{"nfs": nodeapi.WarningPoolMountOptions, "cephfs": ""} {
		memory := newMemory()
		memory.SetFSType("/other", kind)
		n := join(t, memory, everybodys())
		n.expect(guard.Expected{Make: true})
		n.check(t)
		n.expect(guard.Expected{ID: n.status(t, "everybodys").ID})
		n.check(t)
		if n.wants(t, "everybodys", true, ""); n.warnings(t, "everybodys") != want {
			t.Errorf("%s: warnings %q, want %q", kind, n.warnings(t, "everybodys"), want)
		}
	}
}
