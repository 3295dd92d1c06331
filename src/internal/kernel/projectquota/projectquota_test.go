package projectquota

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// loop makes a filesystem in a file, mounts it without options and opens its top directory.
func loop(t *testing.T, mkfs string) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root: it mounts a loop device")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 512<<20))
	for _, command := range [][]string{{mkfs, "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	return open(t, dir)
}

// TestProbeWithoutQuota checks that quota which is off is seen, and that the reason names the remedy.
func TestProbeWithoutQuota(t *testing.T) {
	for _, test := range []struct{ filesystem, reason string }{
		{"xfs", "prjquota (a remount does not do)"},
		{"ext4", "tune2fs -O quota,project"},
	} {
		t.Run(test.filesystem, func(t *testing.T) {
			dir := loop(t, "mkfs."+test.filesystem)
			s, err := Probe(dir)
			must(t, err)
			if s.Accounting || s.Enforcing || !strings.Contains(s.Reason, test.reason) {
				t.Errorf("%+v", s)
			}
			wants(t, Enforce(dir), errors.ErrUnsupported)
			if err := SetLimit(dir, 7, Limit{Bytes: Unit}); !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOSYS) {
				t.Errorf("error %v, want ESRCH or ENOSYS", err)
			}
		})
	}
}

func TestProbeElsewhere(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("hpp-test", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
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
