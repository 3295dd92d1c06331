package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxFile is the most that ReadFile reads, in bytes.
const maxFile = 1 << 20

// Info is the identity and kind of a name.
type Info struct {
	Dev, Ino uint64
	Mode     fs.FileMode // type and permission bits
	UID, GID int
}

// Mkdir makes a directory with exactly this mode, whatever the umask.
func (d *Dir) Mkdir(name string, mode fs.FileMode) error {
	p, err := d.entry("mkdir", name)
	if err != nil {
		return err
	}
	defer p.close()
	if err := unix.Mkdirat(p.fd, p.last, uint32(mode.Perm())); err != nil {
		return d.fail("mkdir", name, err)
	}
	if err := chmod(p, mode); err != nil {
		return errors.Join(d.fail("chmod", name, err), unix.Unlinkat(p.fd, p.last, unix.AT_REMOVEDIR))
	}
	return nil
}

// Chmod sets the permission bits; a link is ELOOP.
func (d *Dir) Chmod(name string, mode fs.FileMode) error {
	p, err := d.parent("chmod", name)
	if err != nil {
		return err
	}
	defer p.close()
	if err := chmod(p, mode); err != nil {
		return d.fail("chmod", name, err)
	}
	return nil
}

// chmod goes through /proc, because fchmodat2(2) came only with Linux 6.6 and an ordinary open of a device or a
// FIFO has effects.
func chmod(p place, mode fs.FileMode) error {
	fd, err := openat2(p.fd, p.last, unix.O_PATH|unix.O_NOFOLLOW, within&^unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Fchmodat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unixMode(mode), 0)
}

// Chown sets the owner; of a link, the link's own.
func (d *Dir) Chown(name string, uid, gid int) error {
	p, err := d.parent("chown", name)
	if err != nil {
		return err
	}
	defer p.close()
	if err := unix.Fchownat(p.fd, p.last, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return d.fail("chown", name, err)
	}
	return nil
}

// Stat does not follow a link in the last component, and shows the root of what is mounted there.
func (d *Dir) Stat(name string) (Info, error) {
	p, err := d.parent("stat", name)
	if err != nil {
		return Info{}, err
	}
	defer p.close()
	var st unix.Stat_t
	if err := unix.Fstatat(p.fd, p.last, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, d.fail("stat", name, err)
	}
	return info(&st), nil
}

// Rename moves a name; EEXIST where to exists.
func (d *Dir) Rename(from, to string) error {
	return d.rename(from, to, func(source, dest place) error {
		return unix.Renameat2(source.fd, source.last, dest.fd, dest.last, unix.RENAME_NOREPLACE)
	})
}

// Replace moves a file, atomically over another file if to exists; a directory is EISDIR.
func (d *Dir) Replace(from, to string) error {
	return d.rename(from, to, func(source, dest place) error {
		var st unix.Stat_t
		if err := unix.Fstatat(source.fd, source.last, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR { // rename(2) would replace an empty one
			return unix.EISDIR
		}
		return unix.Renameat2(source.fd, source.last, dest.fd, dest.last, 0)
	})
}

func (d *Dir) rename(from, to string, call func(source, dest place) error) error {
	source, err := d.entry("rename", from)
	if err != nil {
		return err
	}
	defer source.close()
	dest, err := d.entry("rename", to)
	if err != nil {
		return err
	}
	defer dest.close()
	if err := call(source, dest); err != nil {
		return &os.LinkError{Op: "rename", Old: printable(d.path(from)), New: printable(d.path(to)), Err: err}
	}
	return nil
}

// Remove removes a file, a link or an empty directory.
func (d *Dir) Remove(name string) error {
	p, err := d.entry("remove", name)
	if err != nil {
		return err
	}
	defer p.close()
	err = unix.Unlinkat(p.fd, p.last, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(p.fd, p.last, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return d.fail("remove", name, explain(p.fd, p.last, err))
	}
	return nil
}

// Sync makes the entries of a directory durable.
func (d *Dir) Sync(name string) error {
	fd, err := d.open("sync", name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := retry(func() error { return unix.Fsync(fd) }); err != nil {
		return d.fail("sync", name, err)
	}
	return nil
}

// Statfs is fstatfs(2) of the directory.
func (d *Dir) Statfs() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd, &st) }); err != nil {
		return st, d.fail("statfs", ".", err)
	}
	return st, nil
}

// MountPoint tells whether the directory is itself the root of a mount (Linux 5.8 and newer).
func (d *Dir) MountPoint() (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(d.fd, "", unix.AT_EMPTY_PATH, 0, &st); err != nil {
		return false, d.fail("statx", ".", err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, d.fail("statx", ".", fmt.Errorf("%w: the kernel does not tell mount points; Linux 5.8 is needed", unix.ENOTSUP))
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// Handle opens a directory with O_PATH, for mounting; the caller closes it.
func (d *Dir) Handle(name string) (*os.File, Info, error) {
	fd, err := d.open("open", name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, Info{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, Info{}, errors.Join(d.fail("stat", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), d.path(name)), info(&st), nil
}

// explain adds to EPERM the one reason for it that root can meet and that errno does not tell.
func explain(dir int, name string, err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	const fixed = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	var entry, above unix.Statx_t
	_ = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, 0, &entry) // no answer: no explanation
	_ = unix.Statx(dir, "", unix.AT_EMPTY_PATH, 0, &above)
	if (entry.Attributes|above.Attributes)&fixed == 0 {
		return err
	}
	return fmt.Errorf("%w: it or its directory is immutable or append-only, clear that with chattr -i -a", err)
}

// OpenDir opens a directory for calls that take no O_PATH descriptor; the caller closes it.
func (d *Dir) OpenDir(name string) (*os.File, error) {
	fd, err := d.open("open", name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.path(name)), nil
}
