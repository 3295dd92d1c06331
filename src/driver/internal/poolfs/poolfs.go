// Package poolfs is the driver's only way to a pool's disk: the csi/ directory of one pool, opened for the length
// of one operation (an open descriptor would hide a disk mounted later and block the admin's umount).
// Everything above it is written against the interfaces here; Host is the real thing, package memfs a strict
// in-memory one that forgets at a crash whatever was not synced.
package poolfs

import (
	"context"
	"io/fs"
	"os"
)

// Layout below csi/ (docs/reference/on-disk.md).
const (
	MetaDir    = ".hpp"
	MarkerFile = ".hpp/pool.json"
	VolumesDir = ".hpp/volumes"
	StagingDir = ".hpp/staging"
	TrashDir   = ".hpp/trash"
)

// FS is an open directory: a pool's csi/, or the driver's state directory. Names are slash-separated and relative to
// it ("." is the directory itself); a name that is empty, absolute or holds ".." is refused with fs.ErrInvalid, and a
// symbolic link or another filesystem in any component but the last is an error, never followed. Errors are
// *fs.PathError or *os.LinkError around a syscall.Errno, so errors.Is with fs.ErrNotExist, fs.ErrExist,
// syscall.ENOSPC … works.
type FS interface {
	// Mkdir makes a directory with exactly this mode, whatever the umask.
	Mkdir(name string, mode fs.FileMode) error
	// Chmod and Chown never follow a link in the last component either.
	Chmod(name string, mode fs.FileMode) error
	Chown(name string, uid, gid int) error
	// WriteFile makes a new file (fs.ErrExist if the name is taken), writes and fsyncs it. The name itself is durable
	// only after Sync of its directory. On error nothing of the name is left.
	WriteFile(name string, data []byte, mode fs.FileMode) error
	// ReadFile reads a regular file of at most 1 MiB.
	ReadFile(name string) ([]byte, error)
	// ReadDir lists a directory, in no particular order.
	ReadDir(name string) ([]Entry, error)
	// Stat does not follow a link in the last component.
	Stat(name string) (Info, error)
	// Rename moves a name; it fails with fs.ErrExist where to exists already (RENAME_NOREPLACE).
	Rename(from, to string) error
	// Replace moves a file over another, atomically.
	Replace(from, to string) error
	// Remove removes a file, a link or an empty directory.
	Remove(name string) error
	// RemoveTree removes whatever name is, descending without following links; pace is called before each removal and
	// its error ends the work, which can be taken up again later. A name that is gone is no error.
	RemoveTree(ctx context.Context, name string, pace func(context.Context) error) error
	// Sync makes the entries of a directory durable (fsync).
	Sync(name string) error
	// Space is what statfs(2) says of the filesystem.
	Space() (Space, error)
	// Handle opens a directory for mounting.
	Handle(name string) (Handle, error)
	Close() error
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Dir  bool // a directory, not a link to one
}

// Info is the identity and kind of a name.
type Info struct {
	Dev, Ino uint64
	Mode     fs.FileMode // type and permission bits
	UID, GID int
}

// Space is a filesystem's size and use, in bytes and inodes. Free is what an unprivileged user may still take.
// Inodes are all 0 on filesystems that do not count them (btrfs).
type Space struct {
	Size, Used, Free               int64
	Inodes, InodesUsed, InodesFree int64
}

// Handle is an open O_PATH descriptor on a volume's directory, to be closed by who asked for it. File is nil on an
// in-memory disk.
type Handle struct {
	File     *os.File
	Dev, Ino uint64
}

// Close closes the descriptor, if there is one.
func (h Handle) Close() error {
	if h.File == nil {
		return nil
	}
	return h.File.Close()
}

// Facts is what the mount guard wants to know of a pool's path before it opens it.
type Facts struct {
	// Path and CSI tell whether the directories exist; a link on the way is followed, inside the host's root.
	Path, CSI bool
	// MountPoint tells whether the path, CSIMountPoint whether csi/ is itself the root of a mount (STATX_ATTR_MOUNT_ROOT).
	MountPoint, CSIMountPoint bool
	// Dev is the device number (st_dev) of csi/ if it exists, else of the path.
	Dev uint64
	// FSID is a filesystem's identity as statfs(2) f_fsid gives it, in hexadecimal; for information.
	FSID string
	// FSType is the filesystem's name ("ext4", "xfs", "btrfs", "tmpfs", else the magic number in hexadecimal).
	FSType string
	// ReadOnly tells that the filesystem is mounted read-only.
	ReadOnly bool
}

// Disk opens directories of the host by their absolute path on it.
type Disk interface {
	// Device is the device number (st_dev) of the directory at path itself; fs.ErrNotExist where it is missing.
	Device(path string) (uint64, error)
	// Inspect looks without changing anything.
	Inspect(path string) (Facts, error)
	// Create makes path (0755) with its parents and path/csi (0700), whatever is missing, durably.
	Create(path string) error
	// Open opens path/csi; fs.ErrNotExist where it is missing.
	Open(path string) (FS, error)
}
