package bindmount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/beneath"
)

// attach makes a detached copy of the source's mount, sets its attributes, and attaches it: nobody ever sees the
// target without them. There is no fallback to mount(2): the calls that are needed without options are older (Linux 5.2)
// than openat2(2), and what MS_REMOUNT sets afterwards does not propagate, so the host and the pods would get the mount
// without the options.
func attach(source *os.File, dir *beneath.Dir, name string, o Options) error {
	target, _, err := dir.Handle(name)
	if err != nil {
		return err
	}
	defer target.Close()
	tree, err := unix.OpenTree(int(source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone the mount of %s: %w", source.Name(), err)
	}
	defer unix.Close(tree)
	if o != (Options{}) {
		attr := attributes(o)
		err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
		if errors.Is(err, unix.ENOSYS) {
			err = fmt.Errorf("%w: mount options need Linux 5.12 or newer", err)
		}
		if err != nil {
			return fmt.Errorf("set %+v on the mount of %s: %w", o, source.Name(), err)
		}
	}
	const whole = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err := unix.MoveMount(tree, "", int(target.Fd()), "", whole); err != nil {
		return fmt.Errorf("attach the mount of %s: %w", source.Name(), err)
	}
	return nil
}

// attributes are the options for mount_setattr(2). Flags that the source's mount has stay, except for those of access times
// where the options name one.
func attributes(o Options) unix.MountAttr {
	var a unix.MountAttr
	for _, f := range []struct {
		on   bool
		attr uint64
	}{
		{o.ReadOnly, unix.MOUNT_ATTR_RDONLY},
		{o.NoSUID, unix.MOUNT_ATTR_NOSUID},
		{o.NoDev, unix.MOUNT_ATTR_NODEV},
		{o.NoExec, unix.MOUNT_ATTR_NOEXEC},
		{o.Atime == "noatime", unix.MOUNT_ATTR_NOATIME},
		{o.Atime == "strictatime", unix.MOUNT_ATTR_STRICTATIME},
		{o.Atime == "nodiratime", unix.MOUNT_ATTR_NODIRATIME},
	} {
		if f.on {
			a.Attr_set |= f.attr
		}
	}
	if o.Atime != "" {
		a.Attr_clr = unix.MOUNT_ATTR__ATIME | unix.MOUNT_ATTR_NODIRATIME // relatime is 0
	}
	return a
}

// options reads the flags of statfs(2), which has the mount's and the filesystem's together. Of several about access
// times the one that says most is told.
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
