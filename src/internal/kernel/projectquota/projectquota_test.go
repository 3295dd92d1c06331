package projectquota

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// What needs a kernel with project quota is in vm_test.go and runs in a VM: `make test-quota-vm`. Here is what holds on
// any kernel.

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wants(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("error %v, want %v", err, want)
	}
}

func open(tb testing.TB, path string) *os.File {
	tb.Helper()
	f, err := os.Open(path)
	must(tb, err)
	tb.Cleanup(func() { f.Close() })
	return f
}

// TestProbeWithoutQuota checks that quota which is off is seen, and that the reason names the remedy.
func TestProbeWithoutQuota(t *testing.T) {
	for _, test := range []struct{ filesystem, reason string }{
		{"xfs", "prjquota (a remount does not do)"},
		{"ext4", "tune2fs -O quota,project"},
	} {
		t.Run(test.filesystem, func(t *testing.T) {
			dir := open(t, mounttest.Disk(t, test.filesystem, 512<<20))
			s, err := Probe(dir)
			must(t, err)
			if s.Accounting || s.Enforcing || !strings.Contains(s.Reason, test.reason) {
				t.Errorf("%+v", s)
			}
			wants(t, Enforce(dir), errors.ErrUnsupported)
			if err := SetLimit(dir, 7, Limit{Bytes: Unit}); !errors.Is(err, unix.ESRCH) &&
				!errors.Is(err, unix.ENOSYS) {
				t.Errorf("error %v, want ESRCH or ENOSYS", err)
			}
		})
	}
}

func TestProbeElsewhere(t *testing.T) {
	dir := t.TempDir()
	mounttest.Tmpfs(t, dir, "size=1m")
	f := open(t, dir)
	defer f.Close()
	s, err := Probe(f)
	must(t, err)
	if s.Accounting || s.Enforcing || s.Reason == "" {
		t.Errorf("%+v", s)
	}
}

func TestInvalidIDs(t *testing.T) {
	f := open(t, t.TempDir())
	for _, id := range []uint32{0, 1<<32 - 1} {
		wants(t, SetLimit(f, id, Limit{}), fs.ErrInvalid)
	}
}
