// Package bindmount mounts directories below one directory, the kubelet's, and unmounts them again. Names below that
// directory are resolved without following links. New mounts keep the propagation of what they are mounted on, so
// they reach the host out of a container whose kubelet directory is mounted Bidirectional.
package bindmount

import (
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

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/beneath"
)

// ErrTarget is a target that is no clean absolute path below the directory.
var ErrTarget = errors.New("not a place to mount")

// maxStacked is how many mounts Unmount takes off one target before it gives up; somebody is mounting as fast as
// it unmounts.
const maxStacked = 64

// Options are the attributes of one mount.
type Options struct {
	ReadOnly, NoSUID, NoDev, NoExec bool
	// Atime is "noatime", "relatime", "strictatime" or "nodiratime"; "" takes what the source's mount has.
	Atime string
}

// Mount is what is mounted at a target.
type Mount struct {
	Mounted  bool
	Dev, Ino uint64 // of the mounted directory
	Options
}

// Tree is the directory below which mounts are made.
type Tree struct{ path string }

// New works below the directory at path, which may be a link.
func New(path string) *Tree { return &Tree{path: filepath.Clean(path)} }

// Inspect tells what is mounted at target: the last of several mounts. It is the zero Mount where nothing is, or where
// target does not exist.
func (t *Tree) Inspect(target string) (Mount, error) {
	dir, name, err := t.open(target)
	if err != nil {
		return Mount{}, err
	}
	defer dir.Close()
	mount, err := inspect(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Mount{}, nil
	}
	return mount, err
}

func inspect(dir *beneath.Dir, name string) (Mount, error) {
	sub, err := dir.Sub(name)
	if err != nil {
		return Mount{}, err
	}
	defer sub.Close()
	if is, err := sub.MountPoint(); err != nil || !is {
		return Mount{}, err
	}
	info, err := sub.Stat(".")
	if err != nil {
		return Mount{}, err
	}
	st, err := sub.Statfs()
	if err != nil {
		return Mount{}, err
	}
	return Mount{Mounted: true, Dev: info.Dev, Ino: info.Ino, Options: options(st.Flags)}, nil
}

// Bind mounts the directory that source is open on at target, a directory that it makes (0750) if it is missing, and
// verifies what it did. On error nothing is mounted and nothing made.
func (t *Tree) Bind(source *os.File, target string, o Options) error {
	dir, name, err := t.open(target)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = dir.Mkdir(name, 0o750)
	made := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the directory above it, which the kubelet makes, is missing", err)
	case err != nil && !errors.Is(err, fs.ErrExist):
		return err
	}
	err = t.bind(source, dir, name, o)
	if err != nil && made {
		err = errors.Join(err, rmdir(dir, name))
	}
	return err
}

func (t *Tree) bind(source *os.File, dir *beneath.Dir, name string, o Options) error {
	there, err := inspect(dir, name)
	if err != nil {
		return err
	}
	if there.Mounted {
		return t.fail("mount", name, fmt.Errorf("%w: something is mounted there", unix.EBUSY))
	}
	if err := attach(source, dir, name, o); err != nil {
		return t.fail("mount", name, err)
	}
	if err := verify(source, dir, name, o); err != nil {
		return errors.Join(t.fail("mount", name, err), unmount(dir, name))
	}
	return nil
}

// verify looks whether what is mounted is the source, with the options asked for.
func verify(source *os.File, dir *beneath.Dir, name string, o Options) error {
	var want unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &want); err != nil {
		return fmt.Errorf("stat source: %w", err)
	}
	is, err := inspect(dir, name)
	switch {
	case err != nil:
		return fmt.Errorf("verify: %w", err)
	case !is.Mounted || is.Dev != want.Dev || is.Ino != want.Ino:
		return fmt.Errorf("%w: another directory than asked for is mounted there (%d:%d, want %d:%d)",
			unix.ESTALE, is.Dev, is.Ino, want.Dev, want.Ino)
	case is.ReadOnly && !o.ReadOnly:
		return fmt.Errorf("%w: %s is on a filesystem that is mounted read-only", unix.EROFS, source.Name())
	case !o.within(is.Options):
		return fmt.Errorf("%w: the mount has options %+v, want %+v", unix.EINVAL, is.Options, o)
	}
	return nil
}

// within tells whether a mount has at least the options asked for.
func (o Options) within(is Options) bool {
	return (is.ReadOnly || !o.ReadOnly) && (is.NoSUID || !o.NoSUID) && (is.NoDev || !o.NoDev) && (is.NoExec || !o.NoExec) &&
		(o.Atime == "" || o.Atime == is.Atime)
}

// Unmount unmounts until nothing is mounted at target and removes the empty directory there. No target is no error.
//
// A mount that a process still uses is an error (EBUSY), to be tried again: MNT_DETACH would hide it at once, but
// the process would go on writing into a volume that may then be deleted as one that nobody uses.
func (t *Tree) Unmount(target string) error {
	dir, name, err := t.open(target)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = unmount(dir, name)
	if err == nil {
		err = rmdir(dir, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unmount takes everything off name.
func unmount(dir *beneath.Dir, name string) error {
	parent, _, err := dir.Handle(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	full := dir.Name() + "/" + name
	// umount2(2) has no form that takes a descriptor; this path leads through the parent's.
	at := procPath(parent) + "/" + path.Base(name)
	for range maxStacked {
		err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL): // not a mount point; or one that we may not unmount
			if left, err := inspect(dir, name); err == nil && left.Mounted {
				return &fs.PathError{Op: "umount", Path: full, Err: fmt.Errorf("%w: the mount belongs to another namespace", unix.EINVAL)}
			}
			return nil
		case errors.Is(err, unix.EBUSY):
			return &fs.PathError{Op: "umount", Path: full, Err: fmt.Errorf("%w: a process still uses it, or something is mounted inside", err)}
		default:
			return &fs.PathError{Op: "umount", Path: full, Err: err}
		}
	}
	return &fs.PathError{Op: "umount", Path: full, Err: fmt.Errorf("%w: still mounted after %d unmounts", unix.EBUSY, maxStacked)}
}

// rmdir removes an empty directory, and nothing else.
func rmdir(dir *beneath.Dir, name string) error {
	parent, _, err := dir.Handle(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	err = unix.Unlinkat(int(parent.Fd()), path.Base(name), unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		err = fmt.Errorf("%w: nothing is mounted there, yet it holds files; look at them and remove them", err)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir.Name() + "/" + name, Err: err}
	}
	return nil
}

// Published lists the targets below the directory by the last name of the path that is mounted there, as its filesystem
// knows it. It reads the mount table once; mounts that are not ours are among them.
func (t *Tree) Published() (map[string][]string, error) {
	resolved, err := filepath.EvalSymlinks(t.path) // the mount table has no links
	if err != nil {
		return nil, fmt.Errorf("find the mounts below %s: %w", t.path, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	published := map[string][]string{}
	for _, m := range mounts {
		name := path.Base(strings.TrimSuffix(m.Root, "//deleted"))
		target := t.path + strings.TrimPrefix(m.Mountpoint, resolved)
		if name == "/" || target == t.path || slices.Contains(published[name], target) {
			continue
		}
		published[name] = append(published[name], target)
	}
	return published, nil
}

// open opens the directory and says what target is called below it.
func (t *Tree) open(target string) (*beneath.Dir, string, error) {
	name, below := strings.CutPrefix(target, strings.TrimSuffix(t.path, "/")+"/")
	if !below || path.Clean(target) != target || strings.IndexByte(target, 0) >= 0 {
		return nil, "", fmt.Errorf("%w: %q must be a clean absolute path below %s", ErrTarget, target, t.path)
	}
	dir, err := beneath.OpenAcross(t.path)
	return dir, name, err
}

func (t *Tree) fail(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: t.path + "/" + name, Err: err}
}

// procPath names an open file, so that a system call that takes only paths acts on just that file.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
