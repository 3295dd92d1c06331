// Package projectquota limits directories by the project quota of XFS and ext4. It works on open directories, which
// must not be O_PATH ones, and knows nothing of volumes.
//
// Files belong to projects by an ID; a directory with the inheritance flag gives its own to what is made in it, and
// what has another id can be neither moved nor linked into it (EXDEV). Setting limits needs CAP_SYS_ADMIN.
package projectquota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
)

// Unit is the granularity of byte limits in the interface to the kernel: QIF_DQBLKSIZE of include/uapi/linux/quota.h.
const Unit = 1024

// Support is what a filesystem can do now.
type Support struct {
	Accounting bool // usage is counted
	Enforcing  bool // limits are enforced
	// Reason says, where limits are not enforced, why and what to do.
	Reason string
	xfs    bool
}

// Limit is the most that may count to a project; 0 is no limit.
type Limit struct{ Bytes, Inodes uint64 }

// Usage is what counts to a project: allocated bytes, and files, directories and links, the top directory among them.
type Usage struct{ Bytes, Inodes uint64 }

// Quota is one project's.
type Quota struct {
	ID    uint32
	Limit Limit
	Usage Usage
}

// Probe looks at what the filesystem of dir can do; the error is one of looking, not of lacking.
func Probe(dir *os.File) (Support, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return Support{}, &fs.PathError{Op: "statfs", Path: dir.Name(), Err: err}
	}
	if st.Type != unix.XFS_SUPER_MAGIC && st.Type != unix.EXT4_SUPER_MAGIC { // the latter is ext2's and ext3's too
		return Support{Reason: "only XFS and ext4 have project quota"}, nil
	}
	if _, _, err := ProjectID(dir); errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		return Support{Reason: "this filesystem has no project IDs"}, nil
	} else if err != nil {
		return Support{}, err
	}
	flags, err := state(dir)
	if err != nil {
		return Support{}, err
	}
	s := Support{Accounting: flags&projectAccounting != 0, Enforcing: flags&projectEnforcing != 0}
	s.xfs = st.Type == unix.XFS_SUPER_MAGIC
	s.Reason = reason(s)
	return s, nil
}

// reason says what to do; the kernel does not say which of the conditions is missing.
func reason(s Support) string {
	const counted = "project quota is counted but not enforced: mount the filesystem with the option prjquota"
	switch {
	case s.Enforcing:
		return ""
	case s.Accounting && s.xfs:
		return counted + " instead of pqnoenforce"
	case s.Accounting:
		return counted
	case s.xfs:
		return "project quota is off: mount the filesystem with the option prjquota (a remount does not do), on " +
			"Linux 5.14 or newer with CONFIG_XFS_QUOTA"
	default:
		return "project quota is off: run `tune2fs -O quota,project -Q prjquota` on the unmounted filesystem and " +
			"mount it with the option prjquota, on Linux 5.14 or newer with CONFIG_QFMT_V2"
	}
}

// Enforce makes the kernel enforce limits on a filesystem whose Support says that it only counts; it lasts until the
// filesystem is unmounted. Where limits are enforced already it does nothing.
func Enforce(dir *os.File) error {
	const op = "enforce project quota"
	s, err := Probe(dir)
	switch {
	case err != nil || s.Enforcing:
		return err
	case !s.Accounting:
		return &fs.PathError{Op: op, Path: dir.Name(), Err: fmt.Errorf("%w: %s", errors.ErrUnsupported, s.Reason)}
	case s.xfs:
		flags := uint32(projectEnforcing)
		return quotactl(dir, op, xQuotaOn, 0, &flags)
	default:
		return quotactl[byte](dir, op, quotaOn, formatV1, nil)
	}
}

// ProjectID reads the project that a file or directory belongs to (0: none that anybody set), and whether what is
// made in it will.
func ProjectID(f *os.File) (id uint32, inherit bool, err error) {
	x, err := attributes(f)
	return x.project, x.flags&flagProjectInherit != 0, err
}

// SetProjectID moves a file, or a directory without its content, to a project, with its use. An fsync makes it durable.
func SetProjectID(f *os.File, id uint32, inherit bool) error {
	x, err := attributes(f)
	if err != nil {
		return err
	}
	x.project = id
	x.flags &^= flagProjectInherit
	if inherit {
		x.flags |= flagProjectInherit
	}
	return ioctl.Do(f, "set project id", ioctl.W(fsxMagic, 32, unsafe.Sizeof(x)), &x)
}

func attributes(f *os.File) (xattr, error) {
	var x xattr
	err := ioctl.Do(f, "read project id", ioctl.R(fsxMagic, 31, unsafe.Sizeof(x)), &x)
	return x, err
}

// MaxID is the greatest project ID that the kernel takes as one; the next is "invalid".
const MaxID = 1<<32 - 2

// SetLimit sets what may count to a project; bytes are rounded up to a Unit. It applies at once, also below what is
// used: then nothing more can be written. It is on the disk after a sync of the filesystem, or an fsync of XFS.
func SetLimit(f *os.File, id uint32, l Limit) error {
	const op = "set project quota"
	if id == 0 || id > MaxID {
		return &fs.PathError{Op: op, Path: f.Name(), Err: fmt.Errorf("%w: project %d can have no limit", fs.ErrInvalid,
			id)}
	}
	b := block{hardBytes: l.Bytes / Unit, hardInodes: l.Inodes, valid: limitsValid}
	if l.Bytes%Unit != 0 {
		b.hardBytes++
	}
	return nameID(id, quotactl(f, op, setQuota, id, &b))
}

// Get reads a project's limit and usage in one system call. One that never had any is all zero. XFS frees removed files
// in the background: a project is free to be used again when its usage is zero. Quota that is off is ESRCH or ENOSYS.
func Get(f *os.File, id uint32) (Quota, error) {
	var b block
	err := quotactl(f, "read project quota", getQuota, id, &b)
	if errors.Is(err, unix.ENOENT) { // XFS
		err = nil
	}
	return b.quota(id), nameID(id, err)
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

// quotactl is quotactl_fd(2) (Linux 5.14). T is laid out as the kernel's structure for the command.
func quotactl[T any](f *os.File, op string, c uintptr, id uint32, argument *T) error {
	return ioctl.Call(f, op, func() unix.Errno {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command(c), uintptr(id),
			uintptr(unsafe.Pointer(argument)), 0, 0) //nolint:gosec // G103: quotactl_fd(2) takes a pointer
		return errno
	})
}

func nameID(id uint32, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("project %d: %w", id, err)
}
