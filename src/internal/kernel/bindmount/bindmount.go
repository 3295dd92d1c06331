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
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// ErrTarget is a target that is no clean absolute path below the directory.
var ErrTarget = errors.New("not a place to mount")

// Tree is the directory below which mounts are made.
type Tree struct{ path string }

// New works below the directory at path, which may be a link.
func New(path string) *Tree { return &Tree{path: filepath.Clean(path)} }

// Inspect returns what is mounted at target: the last of several mounts. Nothing is mounted where target does not
// exist.
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
