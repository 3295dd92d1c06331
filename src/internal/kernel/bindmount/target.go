package bindmount

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// maxStacked is how many mounts Unmount takes off one target before it gives up; somebody is mounting as fast as
// it unmounts.
const maxStacked = 64

// target is a name in an open directory.
type target struct {
	above *os.File
	name  string
}

// open opens the directory above a target.
func (t *Tree) open(at string) (target, error) {
	name, below := strings.CutPrefix(at, strings.TrimSuffix(t.path, "/")+"/")
	if !below || !openat.Valid(name) || name == "." {
		return target{}, fmt.Errorf("%w: %q must be a clean absolute path below %s", ErrTarget, at, t.path)
	}
	top, err := os.OpenFile(t.path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return target{}, err
	}
	defer top.Close()
	above, err := openDir(top, path.Dir(name))
	return target{above: above, name: path.Base(name)}, err
}

func openDir(dir *os.File, name string) (*os.File, error) {
	return openat.Open(dir, name, unix.O_PATH|unix.O_DIRECTORY, openat.Beneath)
}

func (p target) dir() int { return int(p.above.Fd()) }

func (p target) fail(op string, err error) error {
	return openat.Failed(op, openat.Path(p.above, p.name), err)
}

func (p target) inspect() (Mount, error) {
	dir, err := openDir(p.above, p.name)
	if err != nil {
		return Mount{}, err
	}
	defer dir.Close()
	mount, err := Describe(dir)
	if !mount.Mounted {
		mount = Mount{}
	}
	return mount, err
}

func (p target) bind(source *os.File, o Options) error {
	if err := p.attach(source, o); err != nil {
		return p.fail("mount", err)
	}
	if err := p.verify(source, o); err != nil {
		return errors.Join(p.fail("mount", err), p.unmount())
	}
	return nil
}

// attach makes a detached copy of the source's mount, sets its attributes, and attaches it: nobody ever sees the target
// without them. There is no fallback to mount(2): the calls that are needed without options are older (Linux 5.2) than
// openat2(2), and what MS_REMOUNT sets afterwards does not propagate, so the host and the pods would get the mount
// without the options.
func (p target) attach(source *os.File, o Options) error {
	at, err := openDir(p.above, p.name)
	if err != nil {
		return err
	}
	defer at.Close()
	if there, err := Describe(at); err != nil || there.Mounted {
		return cmp.Or(err, fmt.Errorf("%w: something is mounted there", unix.EBUSY))
	}
	tree, err := unix.OpenTree(int(source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone the mount of %s: %w", source.Name(), err)
	}
	defer unix.Close(tree)
	if o != (Options{}) {
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, o.attributes()); err != nil {
			return fmt.Errorf("set %+v, which needs Linux 5.12 or newer: %w", o, err)
		}
	}
	const whole = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	return unix.MoveMount(tree, "", int(at.Fd()), "", whole)
}

// verify looks whether what is mounted is the source, with the options asked for.
func (p target) verify(source *os.File, o Options) error {
	want, err := Describe(source)
	if err != nil {
		return err
	}
	is, err := p.inspect()
	switch {
	case err != nil:
		return err
	case is.Dev != want.Dev || is.Ino != want.Ino:
		return fmt.Errorf("%w: another directory than asked for is mounted there (%d:%d, want %d:%d)",
			unix.ESTALE, is.Dev, is.Ino, want.Dev, want.Ino)
	case is.ReadOnly && !o.ReadOnly:
		return fmt.Errorf("%w: %s is on a filesystem that is mounted read-only", unix.EROFS, source.Name())
	case !is.Meets(o):
		return fmt.Errorf("%w: the mount has options %+v, want %+v", unix.EINVAL, is.Options, o)
	}
	return nil
}

// unmount takes everything off the target.
func (p target) unmount() error {
	// umount2(2) has no form that takes a descriptor; this path leads through the one of the directory above.
	at := "/proc/self/fd/" + strconv.Itoa(p.dir()) + "/" + p.name
	for range maxStacked {
		err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL): // not a mount point; or one that we may not unmount
			if left, _ := p.inspect(); !left.Mounted {
				return nil
			}
			err = fmt.Errorf("%w: the mount belongs to another namespace", err)
		case errors.Is(err, unix.EBUSY):
			err = fmt.Errorf("%w: a process uses it, or something is mounted inside", err)
		}
		if err != nil {
			return p.fail("umount", err)
		}
	}
	return p.fail("umount", fmt.Errorf("%w: something is mounted after %d unmounts", unix.EBUSY, maxStacked))
}

// rmdir removes an empty directory, and nothing else.
func (p target) rmdir() error {
	err := unix.Unlinkat(p.dir(), p.name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		err = fmt.Errorf("%w: nothing is mounted there, yet it has files; look at them and remove them", err)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return p.fail("rmdir", err)
	}
	return nil
}
