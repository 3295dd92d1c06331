// Package disk is the driver's only way to a pool's disk: the csi/ directory of one pool, opened for the length of one
// operation (an open descriptor would hide a disk mounted later and block the admin's umount). HostDisk is real,
// and package disktest has a strict disk in memory that forgets at a crash whatever was not synced.
package disk

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

// MaxFile is the most that ReadFile reads, in bytes.
const MaxFile = 1 << 20

// FS is an open directory: a pool's csi/, or the driver's state directory. Names are slash-separated and relative to it
// ("." is the directory itself); a name that is empty, absolute or has ".." is refused with fs.ErrInvalid. A symbolic
// link is never followed. Errors are *fs.PathError or *os.LinkError around a syscall.Errno.
type FS interface {
	Reader
	Writer
	Mover
	Linker
	Opener
}

// Reader changes nothing.
type Reader interface {
	// ReadFile reads a regular file of at most MaxFile.
	ReadFile(name string) ([]byte, error)
	// ReadDir lists a directory, in no particular order.
	ReadDir(name string) ([]Entry, error)
	// Stat describes a link itself.
	Stat(name string) (Info, error)
	// Space is what statfs(2) says of the filesystem.
	Space() (Space, error)
}

// Writer makes names and changes what they are.
type Writer interface {
	// Mkdir makes a directory with exactly this mode, whatever the umask.
	Mkdir(name string, mode fs.FileMode) error
	// WriteFile makes a new file (else fs.ErrExist) and fsyncs it; on error none is left. Its name is durable only
	// after Sync of its directory.
	WriteFile(name string, data []byte, mode fs.FileMode) error
	// Own sets owner and permission bits, the owner first: chown(2) clears setuid and setgid.
	Own(name string, uid, gid int, mode fs.FileMode) error
	// Unlock makes a read-only subvolume writable, and clears the immutable and append-only flags of a directory
	// (chattr -i -a).
	Unlock(name string) error
}

// Mover moves and removes names.
type Mover interface {
	// Rename moves a name to one that is free, else fs.ErrExist (RENAME_NOREPLACE).
	Rename(from, to string) error
	// Replace moves a file over another, atomically.
	Replace(from, to string) error
	// Remove removes a file, a link or an empty directory.
	Remove(name string) error
	// RemoveTree removes whatever name is, without following links or entering mounts; a name that is gone is no
	// error. step is called before each system call that opens, moves or removes something. Its error ends the work,
	// which a later RemoveTree takes up, and which has come nearer to its end if step allowed some 200 calls, however
	// deep or wide the tree. To that end a directory that lies deep is moved up, beside name (as removetree.Prefix +
	// a random suffix) or into name itself; whatever has such a name beside name is removed too. Immutable and
	// append-only flags are cleared. What cannot be removed (a mount point) is left while the rest goes, and the
	// error names the first such thing.
	RemoveTree(ctx context.Context, name string, step func(context.Context) error) error
}

// Linker gives a file a second name.
type Linker interface {
	// Link fails with fs.ErrExist where the new name is taken.
	Link(from, to string) error
}

// Opener opens directories, and makes what was changed durable.
type Opener interface {
	// Open opens a directory for reading; the caller closes the handle.
	Open(name string) (Handle, error)
	// Sync makes the entries of a directory durable (fsync).
	Sync(name string) error
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

// Same reports whether both are one inode.
func (i Info) Same(other Info) bool { return i.Dev == other.Dev && i.Ino == other.Ino }

// Space is a filesystem's size and use, in bytes and inodes; Free is what an unprivileged user may take. Inodes are 0
// where the filesystem does not count them (btrfs).
type Space struct {
	Size, Used, Free               int64
	Inodes, InodesUsed, InodesFree int64
	ReadOnly                       bool
}

// Handle is an open directory. File is nil on an in-memory disk, which has no quota.
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
	// Path and CSI report whether the directories exist; a link on the way is followed, inside the host's root.
	Path, CSI bool
	// MountPoint reports whether the path, CSIMountPoint whether csi/ is itself the root of a mount.
	MountPoint, CSIMountPoint bool
	// Dev and Ino are the device (st_dev) and inode number of csi/ if it exists, else of the path.
	Dev, Ino uint64
	// FSID is the filesystem's identity (statfs(2) f_fsid), in hexadecimal; for information.
	FSID string
	// FSType is the filesystem's name ("ext4", "xfs", "nfs" …), else the magic number of statfs(2) in hexadecimal.
	FSType   string
	ReadOnly bool
	// RemembersMissing reports an NFS client that remembers for a while which names are not there, as it does unless it
	// is mounted with lookupcache=positive or none (nfs(5)).
	RemembersMissing bool
}

// InMemory reports whether a boot empties the filesystem.
func (f Facts) InMemory() bool { return f.FSType == "tmpfs" || f.FSType == "ramfs" }

// Paths opens what is in no pool.
type Paths interface {
	// OpenDir opens a directory itself. A link on the way is ELOOP.
	OpenDir(path string) (FS, error)
}

// Host opens directories of the host by their absolute path on it.
type Host interface {
	Paths
	// Device is the device number (st_dev) of the directory at path itself; fs.ErrNotExist where it is missing.
	Device(path string) (uint64, error)
	// Inspect looks without changing anything.
	Inspect(path string) (Facts, error)
	// Create makes path (0755) with its parents and path/csi (0700), whatever is missing, durably.
	Create(path string) error
	// Open opens path/csi; fs.ErrNotExist where it is missing.
	Open(path string) (FS, error)
}
