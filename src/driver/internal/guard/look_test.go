package guard_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
)

// TestMakeAfterTheClaimLeft: a claim whose volume is a directory of the same disk has that disk's device number, and
// still no pool is made in the directory below it.
func TestMakeAfterTheClaimLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root: it mounts")
	}
	root := t.TempDir()
	claim, csi := root+"/claim", root+"/pool/csi"
	if err := errors.Join(os.Mkdir(claim, 0o700), os.MkdirAll(csi, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(claim, csi, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	host := disk.NewHost(root)
	before, err := host.Inspect("/pool")
	if err := errors.Join(err, unix.Unmount(csi, 0)); err != nil {
		t.Fatal(err)
	}
	after, err := host.Inspect("/pool")
	if err != nil || !before.CSIMountPoint || after.CSIMountPoint || after.Dev != before.Dev {
		t.Fatalf("before %+v, after %+v, %v", before, after, err)
	}
	if d, err := guard.Make(host, "/pool", before); err == nil {
		t.Error("the directory below was taken for the claim", d.Close())
	}
	d, err := guard.Make(host, "/pool", after)
	if err != nil {
		t.Fatalf("without a change in between: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
