package projectquota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bySpecial is quotactl(2), which takes the path of the block device that f's filesystem is on. A container need not have
// that path, so a node of the device is made for the call.
func bySpecial(f *os.File, command, id uintptr, address unsafe.Pointer) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/dev", "hpp-quota-") // not nodev, in containers too
	if err != nil {
		return fmt.Errorf("make a node of the block device: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // in a tmpfs; what is left of it has no content
	node := filepath.Join(dir, "device")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Dev)); err != nil {
		return fmt.Errorf("make a node of the block device: %w", err)
	}
	path, err := unix.BytePtrFromString(node)
	if err != nil {
		return err
	}
	err = retry(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, command, uintptr(unsafe.Pointer(path)), id, uintptr(address), 0, 0) //nolint:gosec // G103: quotactl(2) takes pointers
		return result(errno)
	})
	if errors.Is(err, unix.ENOTBLK) {
		return fmt.Errorf("%w: the filesystem is on no block device", err)
	}
	return err
}
