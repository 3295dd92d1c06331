package ioctl

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRequest compares with what the C compiler makes of the kernel's headers (linux/btrfs.h, linux/fs.h,
// linux-libc-dev 6.1).
func TestRequest(t *testing.T) {
	for _, test := range []struct {
		name string
		got  Request
		want Request
	}{
		{"BTRFS_IOC_SUBVOL_CREATE_V2", W(0x94, 24, 4096), 0x50009418},
		{"BTRFS_IOC_START_SYNC", R(0x94, 24, 8), 0x80089418},
		{"BTRFS_IOC_QUOTA_CTL", RW(0x94, 40, 16), 0xc0109428},
		{"FS_IOC_FSGETXATTR", R('X', 31, 28), 0x801c581f},
		{"FS_IOC_FSSETXATTR", W('X', 32, 28), 0x401c5820},
	} {
		if test.got != test.want {
			t.Errorf("%s is %#x, want %#x", test.name, test.got, test.want)
		}
	}
}

func TestDo(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	if _, err := writer.WriteString("12345"); err != nil {
		t.Fatal(err)
	}
	var waiting int32
	if err := Do(reader, "count", unix.TIOCINQ, &waiting); err != nil || waiting != 5 {
		t.Errorf("%d bytes wait, %v; want 5", waiting, err)
	}
	err = Do(reader, "frobnicate", R(0xff, 0xff, 4), &waiting)
	if !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("error %v, want ENOTTY", err)
	}
	if want := "frobnicate " + reader.Name() + ": inappropriate ioctl for device"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
