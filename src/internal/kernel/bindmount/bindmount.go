// Package bindmount mounts directories below one directory, the kubelet's, and unmounts them again. Names below that
// directory are resolved without following links. New mounts keep the propagation of what they are mounted on, so
// they reach the host out of a container whose kubelet directory is mounted Bidirectional.
package bindmount

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// ErrTarget is a target that is no clean absolute path below the directory.
var ErrTarget = errors.New("not a place to mount")

// Tree is the directory below which mounts are made.
type Tree struct{ path string }

// New works below the directory at path, which may be a link.
func New(path string) *Tree { return &Tree{path: filepath.Clean(path)} }

// Inspect returns what is mounted at target, the last of several mounts: nothing where target does not exist.
func (t *Tree) Inspect(target string) (Mount, error) {
	p, err := t.open(target)
	var mount Mount
	if err == nil {
		defer p.above.Close()
		mount, err = p.inspect()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Mount{}, nil
	}
	return mount, err
}

// Bind mounts the directory that source is open on at target, a directory that it makes (0750) if it is missing, and
// verifies what it did. On error nothing is mounted and nothing made.
func (t *Tree) Bind(source *os.File, target string, o Options) error {
	p, err := t.open(target)
	if err != nil {
		return err
	}
	defer p.above.Close()
	err = unix.Mkdirat(p.dir(), p.name, 0o750)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return p.fail("mkdir", err)
	}
	err = p.bind(source, o)
	if err != nil && made {
		err = errors.Join(err, p.rmdir())
	}
	return err
}

// Attach puts a detached mount at target, a directory that exists.
func (t *Tree) Attach(mount *os.File, target string) error {
	p, err := t.open(target)
	if err != nil {
		return err
	}
	defer p.above.Close()
	if err := p.move(mount); err != nil {
		return p.fail("mount", err)
	}
	return nil
}

// Unmount unmounts until nothing is mounted at target and removes the empty directory there. No target is no error.
//
// A mount that a process uses is an error (EBUSY), to be tried again: MNT_DETACH would hide it at once, but the process
// would go on writing into a volume that may then be deleted as one that nobody uses.
func (t *Tree) Unmount(target string) error {
	p, err := t.open(target)
	if err == nil {
		defer p.above.Close()
		err = p.unmount()
	}
	if err == nil {
		err = p.rmdir()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// UnmountLast unmounts what Inspect sees at target, and nothing below it; where that was all, it removes the empty
// directory. A mount that a process uses is an error, as for Unmount.
func (t *Tree) UnmountLast(target string) error {
	p, err := t.open(target)
	if err != nil {
		return err
	}
	defer p.above.Close()
	if _, err := p.unmountLast(); err != nil {
		return err
	}
	if below, err := p.inspect(); err != nil || below.Mounted {
		return err
	}
	return p.rmdir()
}

// Published lists the targets below the directory by the last name of the path that is mounted there, as its filesystem
// knows it. It reads the mount table once; mounts that are not ours are among them.
func (t *Tree) Published() (map[string][]string, error) {
	resolved, err := filepath.EvalSymlinks(t.path) // the mount table has no links
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	published := map[string][]string{}
	for _, m := range mounts {
		name := path.Base(strings.TrimSuffix(m.Root, "//deleted"))
		target := t.path + strings.TrimPrefix(m.Mountpoint, resolved)
		if name != "/" && target != t.path && !slices.Contains(published[name], target) {
			published[name] = append(published[name], target)
		}
	}
	return published, nil
}

// maxStacked is how many mounts Unmount takes off a target: somebody who goes on mounting must not keep it.
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
	mount, err := Clone(source)
	if err != nil {
		return err
	}
	defer mount.Close()
	if o != (Options{}) {
		if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, o.attributes()); err != nil {
			return fmt.Errorf("set %+v, which needs Linux 5.12 or newer: %w", o, err)
		}
	}
	return p.move(mount)
}

// move attaches a detached mount.
func (p target) move(mount *os.File) error {
	at, err := openDir(p.above, p.name)
	if err != nil {
		return err
	}
	defer at.Close()
	if there, err := Describe(at); err != nil || there.Mounted {
		return cmp.Or(err, fmt.Errorf("%w: something is mounted there", unix.EBUSY))
	}
	const whole = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	return unix.MoveMount(int(mount.Fd()), "", int(at.Fd()), "", whole)
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
	for range maxStacked {
		if none, err := p.unmountLast(); none || err != nil {
			return err
		}
	}
	return p.fail("umount", fmt.Errorf("%w: something is mounted after %d unmounts", unix.EBUSY, maxStacked))
}

// unmountLast takes the last mount off the target, and reports whether there was none.
func (p target) unmountLast() (none bool, err error) {
	// umount2(2) has no form that takes a descriptor; this path leads through the one of the directory above.
	at := "/proc/self/fd/" + strconv.Itoa(p.dir()) + "/" + p.name
	err = unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
	switch {
	case errors.Is(err, unix.EINVAL): // not a mount point; or one that we may not unmount
		if left, _ := p.inspect(); !left.Mounted {
			return true, nil
		}
		err = fmt.Errorf("%w: the mount belongs to another namespace", err)
	case errors.Is(err, unix.EBUSY):
		err = fmt.Errorf("%w: a process uses it, or something is mounted inside", err)
	}
	if err != nil {
		err = p.fail("umount", err)
	}
	return false, err
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
