package projectquota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxID is the greatest project ID that the kernel takes as one; the next is "invalid".
const MaxID = 1<<32 - 2

// SetLimit sets what may count to a project; bytes are rounded up to a Unit. It applies at once, also below what is
// used: then nothing more can be written. It is on the disk after a sync of the filesystem, or an fsync of XFS.
func SetLimit(f *os.File, id uint32, l Limit) error {
	const op = "set project quota"
	if id == 0 || id > MaxID {
		return &fs.PathError{Op: op, Path: f.Name(), Err: fmt.Errorf("%w: project %d can have no limit", fs.ErrInvalid, id)}
	}
	b := block{hardBytes: l.Bytes / Unit, hardInodes: l.Inodes, valid: limitsValid}
	if l.Bytes%Unit != 0 {
		b.hardBytes++
	}
	return of(id, quotactl(f, op, setQuota, id, &b))
}

// Get reads a project's limit and usage in one system call. One that never had any is all zero. XFS frees removed files
// in the background: a project is free to be used again when its usage is zero. Quota that is off is ESRCH or ENOSYS.
func Get(f *os.File, id uint32) (Quota, error) {
	var b block
	err := quotactl(f, "read project quota", getQuota, id, &b)
	if errors.Is(err, unix.ENOENT) { // XFS
		err = nil
	}
	return b.quota(id), of(id, err)
}

// Next is Get of the first project from this ID on that the kernel lists: each that has a limit or usage, and some that
// had. None is fs.ErrNotExist. ext4 looks right only from a multiple of 256 to the power of n on, through a block of
// 256 times that: where it enters another block, it passes over what is there before the place it came from
// (find_next_id, fs/quota/quota_tree.c). Hence the steps.
func Next(f *os.File, from uint32) (Quota, error) {
	const op = "list project quota"
	for shift := 0; shift < 32; shift += 8 {
		start := (uint64(from) + 1<<shift - 1) >> shift << shift
		if start > MaxID {
			break
		}
		var b block
		err := quotactl(f, op, getNextQuota, uint32(start), &b)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return Quota{}, err
		}
		if err == nil && uint64(b.id) >= start && uint64(b.id)>>shift>>8 == start>>shift>>8 {
			return b.quota(b.id), nil
		}
	}
	return Quota{}, &fs.PathError{Op: op, Path: f.Name(), Err: unix.ENOENT}
}

// state reads the flags of the quota's state; 0 where quota is off or not in the kernel.
func state(dir *os.File) (uint16, error) {
	s := quotaState{version: stateVersion}
	err := quotactl(dir, "read quota state", xGetState, 0, &s)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return 0, nil
	}
	return s.flags, err
}

// quotactl is quotactl_fd(2), which Linux has since 5.14. T is the kernel's structure for the command, laid out as the
// kernel's.
func quotactl[T any](f *os.File, op string, c uintptr, id uint32, argument *T) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command(c), uintptr(id),
			uintptr(unsafe.Pointer(argument)), 0, 0) //nolint:gosec // G103: quotactl_fd(2) takes a pointer
		runtime.KeepAlive(f)
		switch {
		case errno == 0:
			return nil
		case !errors.Is(errno, unix.EINTR):
			return &fs.PathError{Op: op, Path: f.Name(), Err: errno}
		}
	}
}

func of(id uint32, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("project %d: %w", id, err)
}
