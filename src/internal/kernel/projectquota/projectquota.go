// Package projectquota limits directories by the project quota of XFS and ext4. It works on open directories, which must
// not be O_PATH ones, and knows nothing of volumes.
//
// Files belong to projects by an id; a directory with the inheritance flag gives its own to what is made in it, and what
// has another id can be neither moved nor linked into it (EXDEV). Setting limits needs CAP_SYS_ADMIN.
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
	Filesystem string // "xfs", "ext4", or "" for one that has no project quota
	BlockSize  uint64 // bytes; what files are allocated in
	Accounting bool   // use is counted
	Enforcing  bool   // limits hold
	// Reason says, where limits do not hold, why and what to do.
	Reason string
}

// Limit is the most that a project may hold; 0 is no limit.
type Limit struct{ Bytes, Inodes uint64 }

// Usage is what a project holds: allocated bytes, and files, directories and links, the top directory among them.
type Usage struct{ Bytes, Inodes uint64 }

// Quota is one project's.
type Quota struct {
	ID    uint32
	Limit Limit
	Usage Usage
}

// Probe tells what the filesystem of dir can do; the error is one of looking, not of lacking.
func Probe(dir *os.File) (Support, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(int(dir.Fd()), &st) }); err != nil {
		return Support{}, &fs.PathError{Op: "statfs", Path: dir.Name(), Err: err}
	}
	s := Support{BlockSize: uint64(st.Bsize)}
	switch int64(st.Type) {
	case unix.XFS_SUPER_MAGIC:
		s.Filesystem = "xfs"
	case unix.EXT4_SUPER_MAGIC: // ext2's and ext3's too
		s.Filesystem = "ext4"
	default:
		s.Reason = "only XFS and ext4 have project quota"
		return s, nil
	}
	if _, _, err := ProjectID(dir); errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		s.Reason = "this filesystem has no project ids"
		return s, nil
	} else if err != nil {
		return Support{}, err
	}
	flags, err := state(dir)
	if err != nil {
		return Support{}, err
	}
	s.Accounting = flags&projectAccounting != 0
	s.Enforcing = flags&projectEnforcing != 0
	s.Reason = reason(s)
	return s, nil
}

// reason says what to do; the kernel does not tell which of the conditions is missing.
func reason(s Support) string {
	switch {
	case s.Enforcing:
		return ""
	case s.Filesystem == "xfs" && s.Accounting:
		return "project quota is counted but not enforced: mount the filesystem with the option prjquota instead of pqnoenforce"
	case s.Filesystem == "xfs":
		return "project quota is off: mount the filesystem with the option prjquota (a remount does not do), on a kernel with CONFIG_XFS_QUOTA"
	case s.Accounting:
		return "project quota is counted but not enforced: mount the filesystem with the option prjquota"
	default:
		return "project quota is off: run `tune2fs -O quota,project -Q prjquota` on the unmounted filesystem and mount it with the option " +
			"prjquota, on a kernel with CONFIG_QFMT_V2"
	}
}

// Enforce makes the kernel enforce limits on a filesystem whose Support says that it only counts; it lasts until the filesystem
// is unmounted. Where limits hold already it does nothing.
func Enforce(dir *os.File) error {
	s, err := Probe(dir)
	switch {
	case err != nil || s.Enforcing:
		return err
	case !s.Accounting:
		return &fs.PathError{Op: "enforce project quota", Path: dir.Name(), Err: fmt.Errorf("%w: %s", errors.ErrUnsupported, s.Reason)}
	case s.Filesystem == "xfs":
		flags := uint32(projectEnforcing)
		return quotactl(dir, "enforce project quota", command(xQuotaOn), 0, unsafe.Pointer(&flags)) //nolint:gosec // G103: quotactl(2) takes a pointer
	default:
		return quotactl(dir, "enforce project quota", command(quotaOn), formatV1, nil)
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

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
