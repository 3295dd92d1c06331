//go:build !vm

package pool

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// enable is `btrfs quota enable --simple`, which older tools do not have.
func enable(t *testing.T, root string) {
	t.Helper()
	dir, err := os.Open(root)
	must(t, err)
	must(t, errors.Join(btrfs.EnableSimpleQuota(dir), dir.Close()))
}

// onBtrfs is a node whose root is a new btrfs.
func onBtrfs(t *testing.T, specs ...poolspec.Pool) (n *node, root string) {
	t.Helper()
	root = mounttest.Disk(t, "btrfs", 1<<30)
	return onMachine(t, root, specs...), root
}

// enforced makes a volume of 8 MiB that the pool's quota limits.
func (n *node) enforced(t *testing.T, id string) store.Record {
	t.Helper()
	r := store.Record{Version: store.Version, ID: id, Bytes: 8 << 20, Backend: quota.Btrfs}
	must(t, n.Use(t.Context(), "local", func(o *Open) (err error) {
		if r.QuotaID, err = o.Limits.Make(id, 0o700, r.Limit(), func(quota.ID) error { return nil }); err != nil {
			return err
		}
		if err := store.Add(o.Disk, r); err != nil {
			return err
		}
		v, err := o.Reconcile(r)
		if !v.Counted {
			t.Errorf("%+v", v)
		}
		return err
	}))
	return r
}

// TestQuotaSwitchedOffAndOn: a quota that the pool switched on is seen to be lost and to be back, and volumes are
// served all the time.
func TestQuotaSwitchedOffAndOn(t *testing.T) {
	for _, want := range []poolspec.Quota{poolspec.QuotaRequired, poolspec.QuotaAuto} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			spec := local()
			spec.Quota = want
			n, root := onBtrfs(t, spec)
			if want == poolspec.QuotaAuto { // which switches nothing on
				n.is(t, "local", true, "")
				if s := n.status(t, "local"); s.Backend != quota.Plain || s.EnforcementLost {
					t.Errorf("%+v", s)
				}
				enable(t, root)
			}
			n.is(t, "local", true, "")
			if s := n.status(t, "local"); s.Backend != quota.Btrfs || s.Enforcement != string(quota.Strict) {
				t.Fatalf("%+v", s)
			}
			if got := n.status(t, "local").EnforcementReason; got != "" {
				t.Errorf("it is enforced, and not: %s", got)
			}
			n.enforced(t, "pvc-1")
			n.switchedOff(t, root, want)
			n.switchedOn(t, root)
		})
	}
}

func (n *node) switchedOff(t *testing.T, root string, want poolspec.Quota) {
	t.Helper()
	reason := nodeapi.ReasonEnforcementLost
	if want == poolspec.QuotaRequired {
		reason = nodeapi.ReasonNoNewVolumes
	}
	mounttest.Run(t, "btrfs", "quota", "disable", root)
	for range 2 {
		n.is(t, "local", true, reason)
	}
	s := n.status(t, "local")
	if !s.EnforcementLost || s.Backend != quota.Plain || !slices.Equal(n.volumes(), []string{"pvc-1"}) ||
		!strings.Contains(s.Message, "btrfs quota enable --simple") ||
		!strings.Contains(s.EnforcementReason, "btrfs quota enable") ||
		!strings.HasPrefix(n.warnings(t, "local"), "VolumeNotEnforced pvc-1") ||
		n.logged("sizes are no longer enforced") != 1 {
		t.Errorf("%+v, volumes %v, log %s", s, n.volumes(), n.log)
	}
	room, largest := n.Capacity("local")
	if required := want == poolspec.QuotaRequired; (room == 0) != required || (largest == 0) != required {
		t.Errorf("capacity %d, %d", room, largest)
	}
	must(t, n.Use(t.Context(), "local", func(o *Open) error {
		if e := o.Enforcement("pvc-1"); e != quota.None {
			t.Errorf("enforcement of the volume: %s", e)
		}
		_, err := o.Disk.Stat("pvc-1")
		return err
	}))
}

func (n *node) switchedOn(t *testing.T, root string) {
	t.Helper()
	enable(t, root)
	for range 2 {
		n.is(t, "local", true, "")
	}
	s := n.status(t, "local")
	if s.EnforcementLost || s.Backend != quota.Btrfs || n.logged("sizes are enforced again") != 1 ||
		n.logged("sizes are no longer enforced") != 1 {
		t.Errorf("%+v, log %s", s, n.log)
	}
	// btrfs has forgotten what counted to what, which is reported and not repaired.
	if s.Volumes != 1 || s.Uncounted != 1 || !strings.HasPrefix(n.warnings(t, "local"), "VolumeNotEnforced pvc-1") {
		t.Errorf("%+v", s)
	}
	if _, largest := n.Capacity("local"); largest == 0 {
		t.Error("no volume can be made")
	}
	n.enforced(t, "pvc-2")
}

// TestQuotaIsSwitchedOnOnlyBeforeTheFirstVolume: what is there would not be counted.
func TestQuotaIsSwitchedOnOnlyBeforeTheFirstVolume(t *testing.T) {
	t.Parallel()
	required := local()
	required.Quota = poolspec.QuotaRequired
	n, root := onBtrfs(t, required)
	must(t, os.MkdirAll(filepath.Join(root, "pool/csi/somebodys"), 0o700))
	n.is(t, "local", false, "QuotaUnavailable")
	if n.status(t, "local").Used || len(n.Absent()) > 0 {
		t.Errorf("%+v, absent %v", n.status(t, "local"), n.Absent())
	}
	must(t, os.Remove(filepath.Join(root, "pool/csi/somebodys")))
	n.is(t, "local", true, "")
	if got := n.warnings(t, "local"); got != nodeapi.WarningQuotaChanged {
		t.Errorf("warnings: %s", got)
	}
	data, err := os.ReadFile(filepath.Join(root, "pool/csi", disk.MarkerFile))
	must(t, err)
	var m guard.Marker
	must(t, json.Unmarshal(data, &m))
	if m.EnforcedBy != quota.Btrfs || m.Enforcement != quota.Strict || m.ID != n.status(t, "local").ID {
		t.Errorf("%+v", m)
	}
}

// TestUsageIsReadForAll: what volumes have written is theirs, and what was promised counts once.
func TestUsageIsReadForAll(t *testing.T) {
	t.Parallel()
	required := local()
	required.Quota = poolspec.QuotaRequired
	n, root := onBtrfs(t, required)
	n.check(t)
	n.enforced(t, "pvc-1")
	n.clock.pass(usageInterval)
	n.check(t)
	before, _ := n.Capacity("local")
	if err := os.WriteFile(filepath.Join(root, "pool/csi/pvc-1/file"), make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	mounttest.Run(t, "sync", "-f", root)
	n.clock.pass(usageInterval)
	n.check(t)
	after, _ := n.Capacity("local")
	if taken := before - after; taken > 1<<20 {
		t.Errorf("6 MiB that were promised take another %d bytes of the room", taken)
	}
	n.discard(t, "local", "pvc-1")
	if freed, _ := n.Capacity("local"); freed > after+2<<20 {
		t.Errorf("its data is in the trash, and the room grew from %d to %d", after, freed)
	}
	if !n.pools[0].ledger.Guessed() {
		t.Error("usage need not be read")
	}
	n.check(t)
	if n.pools[0].ledger.Guessed() {
		t.Error("usage was not read")
	}
}
