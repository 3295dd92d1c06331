//go:build !vm

package sanity_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/vm"
)

// filesystems are what pools lie on in these tests: a directory, and each
// filesystem that a pool can have to itself, on a loop device.
func filesystems() []string {
	return []string{
		directory, "ext4", "xfs", "btrfs", enforcing + "btrfs", qgroups + "btrfs", sharedBy + "ext4",
		sharedBy + network,
	}
}

// enforcing begins the name of a filesystem whose quota the driver is to turn on, qgroups that of one with full qgroups
// on already, which the driver does not use, sharedBy that of one whose pool has scope shared.
const (
	enforcing = "enforcing-"
	qgroups   = "qgroups-"
	sharedBy  = "shared-"
)

// requires reports whether the pool on a filesystem has quota: required.
func requires(filesystem string) bool { return strings.HasPrefix(filesystem, enforcing) }

// shared reports whether the pool on a filesystem has scope: shared.
func shared(filesystem string) bool { return strings.HasPrefix(filesystem, sharedBy) }

// enforcement is what the driver has to say of a pool on a filesystem. For the kernel's project quota these
// tests run in a VM (disk_vm_test.go).
func enforcement(filesystem string) string {
	if requires(filesystem) {
		return "strict"
	}
	return "none"
}

// diskBytes is enough for a volume that grows by 1 GiB, as csi-sanity has it. The file is sparse.
const diskBytes = 2 << 30

// mountPool makes a directory for a pool, on a loop device unless filesystem
// is directory, and takes it away when the test ends.
func mountPool(t *testing.T, filesystem, pool, image string) {
	t.Helper()
	if err := os.Mkdir(pool, 0o700); err != nil {
		t.Fatal(err)
	}
	if filesystem == directory {
		return
	}
	if filesystem == sharedBy+network {
		mountNetwork(t, image, pool)
		return
	}
	kind := filesystem[strings.LastIndexByte(filesystem, '-')+1:]
	if err := vm.Image(t.Context(), image, diskBytes, "mkfs."+kind); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "-o", "loop", image, pool)
	if strings.HasPrefix(filesystem, qgroups) {
		command(t, "btrfs", "quota", "enable", pool)
	}
	t.Cleanup(func() {
		out, err := exec.Command("umount", pool).CombinedOutput() // t.Context() is over by now
		if err != nil {
			t.Errorf("unmount the pool on %s: something holds it open: %v: %s", filesystem, err, out)
		}
	})
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// buildDriver compiles the driver as it is shipped and returns the binary.
func buildDriver(t *testing.T) string { t.Helper(); return process.Build(t, "./src/driver") }

// keepLog puts the log where CI picks it up.
func (d *instance) keepLog(t *testing.T) {
	t.Helper()
	folder := filepath.Join("..", "..", "artifacts", "sanity")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Error(err)
	}
	file := filepath.Join(folder, "driver-on-"+d.filesystem+".log")
	if err := os.WriteFile(file, []byte(d.Log()), 0o644); err != nil {
		t.Error(err)
	}
	t.Logf("log of the driver on %s: %s", d.filesystem, file)
}
