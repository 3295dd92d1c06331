package poolfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/beneath"
)

// csiDir is the directory of a pool's path that holds everything of ours.
const csiDir = "csi"

// Host is the Disk of the machine. It keeps nothing open between calls.
type Host struct{ root string }

// NewHost sees the host's paths below root: where the host's / is mounted, or "/" itself.
func NewHost(root string) *Host { return &Host{root: root} }

// OpenDir opens a directory of this process's own file tree (the state directory) as an FS.
func OpenDir(path string) (FS, error) {
	dir, err := beneath.Open(path)
	if err != nil {
		return nil, err
	}
	return hostFS{dir}, nil
}

// Device implements Disk.
func (h *Host) Device(path string) (uint64, error) {
	dir, err := beneath.OpenInRoot(h.root, path)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	info, err := dir.Stat(".")
	return info.Dev, err
}

// Inspect implements Disk. Where csi is a link or no directory, it fails with ELOOP or ENOTDIR.
func (h *Host) Inspect(path string) (Facts, error) {
	dir, err := beneath.OpenInRoot(h.root, path)
	if errors.Is(err, fs.ErrNotExist) {
		return Facts{}, nil
	}
	if err != nil {
		return Facts{}, err
	}
	defer dir.Close()
	facts := Facts{Path: true}
	if facts.MountPoint, err = dir.MountPoint(); err != nil {
		return Facts{}, err
	}
	csi, err := dir.Sub(csiDir)
	if errors.Is(err, fs.ErrNotExist) {
		return facts, describe(dir, &facts)
	}
	if err != nil {
		return Facts{}, err
	}
	defer csi.Close()
	facts.CSI = true
	if facts.CSIMountPoint, err = csi.MountPoint(); err != nil {
		return Facts{}, err
	}
	err = describe(csi, &facts)
	return facts, err
}

// describe adds what concerns the filesystem.
func describe(dir *beneath.Dir, facts *Facts) error {
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	st, err := dir.Statfs()
	if err != nil {
		return err
	}
	facts.Dev = info.Dev
	facts.FSID = fmt.Sprintf("%08x%08x", uint32(st.Fsid.Val[0]), uint32(st.Fsid.Val[1]))
	facts.FSType = fsType(int64(st.Type))
	facts.ReadOnly = st.Flags&unix.ST_RDONLY != 0
	return nil
}

// fsType names the filesystems that matter here by the magic numbers of statfs(2). (ext2 and ext3 have ext4's, and its
// driver.)
func fsType(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	default:
		return fmt.Sprintf("%#x", uint32(magic))
	}
}

// Create implements Disk.
func (h *Host) Create(path string) error {
	dir, err := beneath.MakeInRoot(h.root, path, 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = dir.Mkdir(csiDir, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	csi, err := dir.Sub(csiDir) // what exists may be a link or a file
	if err != nil {
		return err
	}
	defer csi.Close()
	// Also when csi was there: an earlier Create may have ended between the two.
	if err := dir.Sync("."); err != nil {
		if made {
			return errors.Join(err, dir.Remove(csiDir))
		}
		return err
	}
	return nil
}

// Open implements Disk.
func (h *Host) Open(path string) (FS, error) {
	dir, err := beneath.OpenInRoot(h.root, path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	csi, err := dir.Sub(csiDir)
	if err != nil {
		return nil, err
	}
	return withQuota(csi)
}

// hostFS is an FS on a real directory; what is not here, beneath.Dir has in the same words.
type hostFS struct{ *beneath.Dir }

// ReadDir implements FS.
func (f hostFS) ReadDir(name string) ([]Entry, error) {
	entries, err := f.Dir.ReadDir(name)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, len(entries))
	for i, e := range entries {
		out[i] = Entry(e)
	}
	return out, nil
}

// Stat implements FS.
func (f hostFS) Stat(name string) (Info, error) {
	info, err := f.Dir.Stat(name)
	return Info(info), err
}

// Space implements FS.
func (f hostFS) Space() (Space, error) {
	st, err := f.Statfs()
	if err != nil {
		return Space{}, err
	}
	// statfs(2) counts in f_frsize; where a filesystem leaves that 0, in f_bsize.
	unit := int64(st.Frsize)
	if unit == 0 {
		unit = int64(st.Bsize)
	}
	return Space{
		Size:       int64(st.Blocks) * unit,
		Used:       int64(st.Blocks-st.Bfree) * unit,
		Free:       int64(st.Bavail) * unit,
		Inodes:     int64(st.Files),
		InodesUsed: int64(st.Files - st.Ffree),
		InodesFree: int64(st.Ffree),
	}, nil
}

// Handle implements FS.
func (f hostFS) Handle(name string) (Handle, error) {
	file, info, err := f.Dir.Handle(name)
	if err != nil {
		return Handle{}, err
	}
	return Handle{File: file, Dev: info.Dev, Ino: info.Ino}, nil
}
