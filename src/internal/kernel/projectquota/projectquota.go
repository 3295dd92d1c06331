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
		return "project quota is off: mount the filesystem with the option prjquota (a remount does not do), on Linux " +
			"5.14 or newer with CONFIG_XFS_QUOTA"
	default:
		return "project quota is off: run `tune2fs -O quota,project -Q prjquota` on the unmounted filesystem and mount it " +
			"with the option prjquota, on Linux 5.14 or newer with CONFIG_QFMT_V2"
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

// SetProjectID moves a file or directory to a project; what is in the directory stays where it is. Use moves with
// it. It is on the disk after an fsync.
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
