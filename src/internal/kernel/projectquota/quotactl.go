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

// maxID is the greatest project id that the kernel takes as one; the next is "invalid".
const maxID = 1<<32 - 2

// SetLimit sets what a project may hold; bytes are rounded up to a Unit. It applies at once, also below what is used:
// then nothing more can be written. It is on the disk after a sync of the filesystem, or an fsync of XFS.
func SetLimit(f *os.File, id uint32, l Limit) error {
	if id == 0 || id > maxID {
		return &fs.PathError{Op: "set project quota", Path: f.Name(), Err: fmt.Errorf("%w: project %d can have no limit", fs.ErrInvalid, id)}
	}
	units := l.Bytes / Unit
	if l.Bytes%Unit != 0 {
		units++
	}
	b := block{hardBytes: units, hardInodes: l.Inodes, valid: limitsValid}
	return of(id, quotactl(f, "set project quota", command(setQuota), uintptr(id), unsafe.Pointer(&b))) //nolint:gosec // G103: quotactl(2) takes a pointer
}

// Get reads a project's limit and use, whatever it holds in one system call. One that never had any is all zero. XFS frees
// removed files in the background: a project is free to be used again when its use is zero. Quota that is off is ESRCH or
// ENOSYS.
func Get(f *os.File, id uint32) (Quota, error) {
	var b block
	err := quotactl(f, "read project quota", command(getQuota), uintptr(id), unsafe.Pointer(&b)) //nolint:gosec // G103: quotactl(2) takes a pointer
	if errors.Is(err, unix.ENOENT) {                                                             // XFS
		err = nil
	}
	if err != nil {
		return Quota{}, of(id, err)
	}
	return Quota{
		ID:    id,
		Limit: Limit{Bytes: b.hardBytes * Unit, Inodes: b.hardInodes},
		Usage: Usage{Bytes: b.bytes, Inodes: b.inodes},
	}, nil
}

// List is Get of every project from first to last that has a limit or holds something.
func List(f *os.File, first, last uint32) ([]Quota, error) {
	var found []Quota
	for id := uint64(first); id <= uint64(min(last, maxID)); {
		var b nextBlock
		err := quotactl(f, "list project quota", command(getNextQuota), uintptr(id), unsafe.Pointer(&b)) //nolint:gosec // G103: quotactl(2) takes a pointer
		if errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return nil, err
		}
		if b.id > last || uint64(b.id) < id {
			break
		}
		q := Quota{
			ID:    b.id,
			Limit: Limit{Bytes: b.hardBytes * Unit, Inodes: b.hardInodes},
			Usage: Usage{Bytes: b.bytes, Inodes: b.inodes},
		}
		if q.Limit != (Limit{}) || q.Usage != (Usage{}) {
			found = append(found, q)
		}
		id = uint64(b.id) + 1
	}
	return found, nil
}

// state reads the flags of the quota's state; 0 where quota is off or not in the kernel.
func state(dir *os.File) (uint16, error) {
	s := quotaState{version: stateVersion}
	err := quotactl(dir, "read quota state", command(xGetState), 0, unsafe.Pointer(&s)) //nolint:gosec // G103: quotactl(2) takes a pointer
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return 0, nil
	default:
		return s.flags, err
	}
}

// quotactl is quotactl_fd(2), and where the kernel has only quotactl(2) (before 5.14), that.
func quotactl(f *os.File, op string, command, id uintptr, address unsafe.Pointer) error {
	err := retry(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command, id, uintptr(address), 0, 0)
		runtime.KeepAlive(f)
		return result(errno)
	})
	// A filesystem without quota is ENOSYS too.
	if errors.Is(err, unix.ENOSYS) && !hasQuotactlFD() {
		err = bySpecial(f, command, id, address)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

// hasQuotactlFD tells whether the kernel knows quotactl_fd(2): it looks at the descriptor first.
func hasQuotactlFD() bool {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, ^uintptr(0), command(getQuota), 0, 0, 0, 0)
	return errno != unix.ENOSYS
}

func result(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func of(id uint32, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("project %d: %w", id, err)
}
