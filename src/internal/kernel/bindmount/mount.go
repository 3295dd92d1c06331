package bindmount

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Mount is what is mounted at a target.
type Mount struct {
	Mounted  bool
	Dev, Ino uint64 // of the mounted directory
	Options
}

// Options are the attributes of one mount.
type Options struct {
	ReadOnly, NoSUID, NoDev, NoExec bool
	// Atime is "noatime", "relatime", "strictatime" or "nodiratime"; "" takes what the source's mount has.
	Atime string
}

// Meets reports whether a mount is read-only as asked and has at least the other options asked for: a bind mount
// inherits those of the source's mount.
func (o Options) Meets(asked Options) bool {
	return o.ReadOnly == asked.ReadOnly &&
		(o.NoSUID || !asked.NoSUID) && (o.NoDev || !asked.NoDev) && (o.NoExec || !asked.NoExec) &&
		(asked.Atime == "" || o.Atime == asked.Atime)
}

// Describe looks at an open directory: whether it is the root of a mount, and the options of the mount that it is in.
func Describe(dir *os.File) (Mount, error) {
	var st unix.Statx_t
	var on unix.Statfs_t
	err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO, &st)
	if err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = fmt.Errorf("%w: Linux 5.8 or newer is needed", unix.ENOTSUP)
	}
	if err == nil {
		err = unix.Fstatfs(int(dir.Fd()), &on)
	}
	if err != nil {
		return Mount{}, &fs.PathError{Op: "inspect", Path: dir.Name(), Err: err}
	}
	return Mount{
		Mounted: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		Dev:     unix.Mkdev(st.Dev_major, st.Dev_minor),
		Ino:     st.Ino,
		Options: options(on.Flags),
	}, nil
}

// options reads the flags of statfs(2), which has the mount's and the filesystem's together. Of several about access
// times, the one that says most is taken.
func options(flags int64) Options {
	o := Options{
		ReadOnly: flags&unix.ST_RDONLY != 0,
		NoSUID:   flags&unix.ST_NOSUID != 0,
		NoDev:    flags&unix.ST_NODEV != 0,
		NoExec:   flags&unix.ST_NOEXEC != 0,
		Atime:    "strictatime",
	}
	switch {
	case flags&unix.ST_NOATIME != 0:
		o.Atime = "noatime"
	case flags&unix.ST_NODIRATIME != 0:
		o.Atime = "nodiratime"
	case flags&unix.ST_RELATIME != 0:
		o.Atime = "relatime"
	}
	return o
}

// attributes are the options for mount_setattr(2). Flags that the source's mount has stay, except for those of access
// times where the options name one.
func (o Options) attributes() *unix.MountAttr {
	var a unix.MountAttr
	for attribute, on := range map[uint64]bool{
		unix.MOUNT_ATTR_RDONLY:      o.ReadOnly,
		unix.MOUNT_ATTR_NOSUID:      o.NoSUID,
		unix.MOUNT_ATTR_NODEV:       o.NoDev,
		unix.MOUNT_ATTR_NOEXEC:      o.NoExec,
		unix.MOUNT_ATTR_NOATIME:     o.Atime == "noatime",
		unix.MOUNT_ATTR_STRICTATIME: o.Atime == "strictatime",
		unix.MOUNT_ATTR_NODIRATIME:  o.Atime == "nodiratime",
	} {
		if on {
			a.Attr_set |= attribute
		}
	}
	if o.Atime != "" {
		a.Attr_clr = unix.MOUNT_ATTR__ATIME | unix.MOUNT_ATTR_NODIRATIME // relatime is 0
	}
	return &a
}
