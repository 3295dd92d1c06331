package entry

import (
	"bytes"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// copiedFlags are FS_SYNC_FL, FS_IMMUTABLE_FL, FS_APPEND_FL, FS_NODUMP_FL, FS_NOATIME_FL and FS_DIRSYNC_FL
// (include/uapi/linux/fs.h). Neither FS_PROJINHERIT_FL, nor what says how a filesystem keeps the data.
const copiedFlags = 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x10000

const (
	maxXattr  = 64 << 10 // XATTR_SIZE_MAX and XATTR_LIST_MAX (include/uapi/linux/limits.h)
	maxXattrs = 1 << 20  // bytes of one file's extended attributes; XFS has no limit
)

// isCopied reports whether an extended attribute is copied. SELinux, IMA and EVM make their own.
func isCopied(name string) bool {
	switch name {
	case "system.posix_acl_access", "system.posix_acl_default", "security.capability":
		return true
	case "trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT":
		return false // other names of these ACLs on XFS
	}
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.")
}

// Read reads a file's attributes. An O_PATH one must not be a regular file or a directory: just those have flags.
func (e *Entry) Read(f *os.File, st *unix.Stat_t) error {
	e.Attributes = Attributes{
		Mode: st.Mode, UID: st.Uid, GID: st.Gid, Rdev: uint64(st.Rdev),
		Atime: [2]int64{int64(st.Atim.Sec), int64(st.Atim.Nsec)},
		Mtime: [2]int64{int64(st.Mtim.Sec), int64(st.Mtim.Nsec)},
	}
	if kind := KindOf(st); kind == unix.S_IFREG || kind == unix.S_IFDIR {
		flags, err := Flags(f)
		if err != nil {
			return err
		}
		e.Flags = flags & copiedFlags
	}
	names, err := listXattrs(f)
	if err != nil || len(names) == 0 {
		return err
	}
	e.Xattrs = map[string][]byte{}
	total, value := 0, make([]byte, maxXattr)
	for _, name := range names {
		n, err := unix.Getxattr(openat.Self(f), name, value)
		if errors.Is(err, unix.ENODATA) { // removed meanwhile
			continue
		}
		if total += n; err == nil && total > maxXattrs {
			err = unix.E2BIG
		}
		if err != nil {
			return openat.Failed("read attribute "+name, f.Name(), err)
		}
		e.Xattrs[name] = bytes.Clone(value[:n])
	}
	return nil
}

// listXattrs are the names of the extended attributes that are copied.
func listXattrs(f *os.File) (names []string, err error) {
	n, err := unix.Listxattr(openat.Self(f), nil)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && n == 0 {
		return nil, nil
	}
	list := make([]byte, maxXattr)
	if err == nil {
		n, err = unix.Listxattr(openat.Self(f), list)
	}
	if err != nil {
		return nil, openat.Failed("list attributes", f.Name(), err)
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if isCopied(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Make makes a link, a FIFO, a socket or a device in a directory.
func (e *Entry) Make(dir *os.File) error {
	err, kind := error(ErrEntry), e.Mode&unix.S_IFMT
	switch kind {
	case unix.S_IFLNK:
		err = unix.Symlinkat(string(e.Data), int(dir.Fd()), e.Name)
	case unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
		err = unix.Mknodat(int(dir.Fd()), e.Name, kind, int(e.Rdev))
	}
	return openat.FailedAt("create", dir, e.Name, err)
}

// Apply gives a file everything but the flags. A change of owner takes set-ID bits and capabilities away, and an ACL is
// a part of the mode: hence the order.
func (e *Entry) Apply(f *os.File) error {
	err := unix.Chown(openat.Self(f), int(e.UID), int(e.GID))
	if err != nil {
		return openat.Failed("chown", f.Name(), err)
	}
	if err = e.applyXattrs(f); err != nil {
		return err
	}
	if e.Mode&unix.S_IFMT != unix.S_IFLNK {
		err = unix.Chmod(openat.Self(f), e.Mode&^unix.S_IFMT)
	}
	if err != nil {
		return openat.Failed("chmod", f.Name(), err)
	}
	return e.ApplyTimes(f)
}

// ApplyAll gives a file everything. The flags come last: nothing of an immutable file can be changed.
func (e *Entry) ApplyAll(f *os.File) error {
	err := e.Apply(f)
	if err == nil {
		err = e.ApplyFlags(f)
	}
	return err
}

// applyXattrs also removes those that the file has by inheritance, or from before.
func (e *Entry) applyXattrs(f *os.File) error {
	names, err := listXattrs(f)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, keep := e.Xattrs[name]; !keep && err == nil {
			err = openat.Failed("remove attribute "+name, f.Name(), unix.Removexattr(openat.Self(f), name))
		}
	}
	for name, value := range e.Xattrs {
		if err == nil && !isCopied(name) {
			err = ErrEntry
		}
		if err == nil {
			err = unix.Setxattr(openat.Self(f), name, value, 0)
		}
		err = openat.Failed("set attribute "+name, f.Name(), err)
	}
	return err
}

// ApplyTimes gives a file its times.
func (e *Entry) ApplyTimes(f *os.File) error {
	times := []unix.Timespec{{Sec: e.Atime[0], Nsec: e.Atime[1]}, {Sec: e.Mtime[0], Nsec: e.Mtime[1]}}
	return openat.Failed("set times of", f.Name(), unix.UtimesNanoAt(unix.AT_FDCWD, openat.Self(f), times, 0))
}

// ApplyFlags gives a file its flags.
func (e *Entry) ApplyFlags(f *os.File) error {
	now, err := Flags(f)
	if want := now&^copiedFlags | e.Flags&copiedFlags; err == nil && want != now {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(want))
	}
	return openat.Failed("chattr", f.Name(), supported(err))
}

// Flags are a file's flags, none where the filesystem has no such thing.
func Flags(f *os.File) (uint32, error) {
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	return flags, openat.Failed("lsattr", f.Name(), supported(err))
}

func supported(err error) error {
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}
