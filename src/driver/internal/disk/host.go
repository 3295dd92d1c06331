package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// csiDir is the directory of a pool's path that holds everything of ours.
const csiDir = "csi"

// HostDisk is the Host of this machine. It keeps nothing open between calls.
type HostDisk struct{ root string }

var _ Host = (*HostDisk)(nil)

// NewHost sees the host's paths below root: where the host's / is mounted, or "/" itself.
func NewHost(root string) *HostDisk { return &HostDisk{root: root} }

// Device implements Host.
func (h *HostDisk) Device(path string) (uint64, error) {
	f, err := h.open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := stat(f)
	return info.Dev, err
}

// Inspect implements Host. Where csi is a link or no directory, it fails with ELOOP or ENOTDIR.
func (h *HostDisk) Inspect(path string) (facts Facts, err error) {
	var csi *os.File
	dir, err := h.open(path)
	if err == nil {
		defer dir.Close()
		facts.Path = true
		facts.MountPoint, err = describe(dir, &facts)
	}
	if err == nil {
		csi, err = openCSI(dir)
	}
	if err == nil {
		defer csi.Close()
		facts.CSI = true
		facts.CSIMountPoint, err = describe(csi, &facts)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return facts, nil
	}
	return facts, err
}

// describe adds what concerns the filesystem of a directory, and reports whether that is itself the root of a mount.
func describe(f *os.File, facts *Facts) (mountPoint bool, err error) {
	mount, err := bindmount.Describe(f)
	if err != nil {
		return false, err
	}
	on, err := statfs(f)
	facts.Dev, facts.Ino = mount.Dev, mount.Ino
	facts.FSID = fmt.Sprintf("%08x%08x", uint32(on.Fsid.Val[0]), uint32(on.Fsid.Val[1]))
	facts.FSType = fsType(int64(on.Type))
	facts.ReadOnly = mount.ReadOnly || err == nil && stopped(f, on)
	if err == nil && facts.FSType == "nfs" {
		facts.RemembersMissing, err = remembersMissing(f)
	}
	return mount.Mounted, err
}

// remembersMissing looks at the options of the filesystem that a directory is on; false where it has none.
func remembersMissing(f *os.File) (bool, error) {
	table, err := mounts.Read(mounts.Self)
	if err != nil {
		return false, err
	}
	mount, err := table.Of(f)
	return err == nil && mount != nil && !keepsNoMissing(mount.VFSOptions), err
}

// stopped reports an ext4 that takes no more writes because of an error, which newer kernels show among its options
// alone: there neither the mount nor statfs(2) is read-only. It does not read the mount table, which may be long.
func stopped(f *os.File, on unix.Statfs_t) bool {
	var st unix.Stat_t
	if on.Type != unix.EXT4_SUPER_MAGIC || unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return false
	}
	options, err := os.ReadFile(path.Join("/proc/fs/ext4", path.Base(device), "options"))
	return err == nil && slices.Contains(strings.Split(string(options), "\n"), "emergency_ro")
}

// keepsNoMissing reads the options as the kernel shows them (nfs_show_mount_options).
func keepsNoMissing(options string) bool {
	return slices.ContainsFunc(strings.Split(options, ","), func(o string) bool {
		return o == "lookupcache=pos" || o == "lookupcache=none"
	})
}

// fsType names the filesystems that matter here by the magic numbers of statfs(2). ext2 and ext3 share that of ext4,
// and virtiofs that of FUSE.
func fsType(magic int64) string {
	name, ok := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
		unix.NFS_SUPER_MAGIC: "nfs", unix.CEPH_SUPER_MAGIC: "cephfs",
		unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb", unix.CIFS_SUPER_MAGIC: "smb",
		unix.V9FS_MAGIC: "9p", unix.FUSE_SUPER_MAGIC: "fuse",
		// Several nodes have one of these at once, too. OCFS2's and GFS2's are in the kernel's headers, the others in
		// Lustre's lustre_user.h, IBM's gpfs.h and BeeGFS's client.
		unix.OCFS2_SUPER_MAGIC: "ocfs2", 0x01161970: "gfs2",
		0x0BD00BD0: "lustre", 0x47504653: "gpfs", 0x19830326: "beegfs",
	}[magic]
	if ok {
		return name
	}
	return fmt.Sprintf("%#x", uint32(magic))
}

// Open implements Host.
func (h *HostDisk) Open(path string) (FS, error) {
	f, err := h.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	csi, err := openCSI(f)
	if err != nil {
		return nil, err
	}
	return &hostFS{top: csi}, nil
}

// OpenDir implements Paths.
func (h *HostDisk) OpenDir(path string) (FS, error) {
	f, err := h.resolve(path, openat.Beneath)
	if err != nil {
		return nil, err
	}
	return &hostFS{top: f}, nil
}

// Create implements Host. What was made stays when a later step fails, but no directory of the path whose own name may
// not be on the disk.
func (h *HostDisk) Create(path string) error {
	dir, err := h.create(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := mkdir(dir, csiDir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	csi, err := openCSI(dir) // what exists may be a link or a file
	if err != nil {
		return err
	}
	defer csi.Close()
	return dir.Sync() // also where csi exists: the driver may have been killed before this
}

// create opens a directory, and makes it if it is missing, and so those above it.
func (h *HostDisk) create(p string) (*os.File, error) {
	dir, missing := h.open(p)
	if !errors.Is(missing, fs.ErrNotExist) || p == "/" {
		return dir, missing
	}
	above, err := h.create(path.Dir(p))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	name := path.Base(p)
	if err = mkdir(above, name, 0o755); err == nil {
		if err = above.Sync(); err != nil {
			err = errors.Join(err, unix.Unlinkat(int(above.Fd()), name, unix.AT_REMOVEDIR))
		}
	}
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("%w: a symbolic link leads to nothing", missing)
	}
	if err != nil {
		return nil, err
	}
	return h.open(p)
}

// open opens a directory as a process whose root directory is h.root would: links are followed and stay inside.
func (h *HostDisk) open(p string) (*os.File, error) {
	return h.resolve(p, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// resolve opens a directory below h.root.
func (h *HostDisk) resolve(p string, how uint64) (*os.File, error) {
	name, absolute := strings.CutPrefix(p, "/")
	if !absolute {
		return nil, openat.Failed("open", p, fs.ErrInvalid)
	}
	fd, err := unix.Open(h.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, openat.Failed("open", h.root, err)
	}
	root := os.NewFile(uintptr(fd), "/")
	defer root.Close()
	return openat.Open(root, cmp.Or(name, "."), unix.O_DIRECTORY, how)
}

// openCSI opens a pool's csi/, which may be a mount point but no link.
func openCSI(pool *os.File) (*os.File, error) {
	return openat.Open(pool, csiDir, unix.O_DIRECTORY, openat.Beneath)
}
