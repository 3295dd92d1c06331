package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
)

// Use is where something is mounted in or at a directory, and where it, or one above it, is mounted: "" for nowhere.
type Use struct{ Inside, At, Above string }

// Uses looks for what is mounted in an open directory of that path, and for mounts of it, of what is in it, and of
// what it is in, in all mount namespaces of the node: a hostPath volume is mounted in that of its container alone.
func (n Node) Uses(dir disk.Handle, p string) (u Use, err error) {
	if dir.File == nil { // of an in-memory disk
		return u, nil
	}
	own, err := mounts.Read(mounts.Self)
	if err != nil {
		return u, err
	}
	on, err := own.Of(dir.File)
	if err != nil {
		return u, err
	}
	if on == nil {
		return u, fmt.Errorf("%w: something was mounted at %s just now; try again", ErrRefused, p)
	}
	here := path.Join(n.Root, p)
	for _, m := range own {
		if mounts.Below(m.Mountpoint, here) {
			u.Inside = path.Join("/", relative(n.Root, m.Mountpoint))
		}
	}
	inFilesystem := path.Join(on.Root, relative(on.Mountpoint, here))
	u.At, err = n.mountOf(func(m mounts.Table) string {
		for _, at := range m {
			if mounts.Same(at, on) && mounts.Below(at.Root, inFilesystem) {
				return at.Mountpoint
			}
		}
		return ""
	})
	if err == nil && u.At == "" {
		u.Above, err = n.above(own, on, inFilesystem)
	}
	return u, err
}

// above looks for mounts of directories that have this one in them. Those of the host, which everything is below, and
// the copies that others have of them do not count; neither does a whole filesystem.
func (n Node) above(own mounts.Table, on *mountinfo.Info, inFilesystem string) (string, error) {
	host, err := mounts.Read(filepath.Join(n.Root, "proc", "1", "mountinfo"))
	if err != nil {
		return "", fmt.Errorf("see what the node itself has mounted: %w", err)
	}
	theirs := map[string]bool{"/": true}
	for _, at := range slices.Concat(own, host) {
		if mounts.Same(at, on) {
			theirs[at.Root] = true
		}
	}
	return n.mountOf(func(m mounts.Table) string {
		for _, at := range m {
			if mounts.Same(at, on) && mounts.Below(inFilesystem, at.Root) && !theirs[at.Root] {
				return at.Mountpoint
			}
		}
		return ""
	})
}

func relative(above, p string) string {
	below, err := filepath.Rel(above, p)
	if err != nil {
		return p
	}
	return below
}

// mountOf looks through the mount tables of all processes, one of each namespace.
func (n Node) mountOf(find func(mounts.Table) string) (at string, err error) {
	proc := filepath.Join(n.Root, "proc")
	entries, err := os.ReadDir(proc)
	if err != nil {
		return "", fmt.Errorf("see what the node's processes have mounted: %w", err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		namespace, err := os.Readlink(filepath.Join(proc, e.Name(), "ns", "mnt"))
		if gone(err) || seen[namespace] {
			continue
		}
		if err != nil { // this takes more rights than what counts
			namespace = e.Name()
		}
		table, err := mounts.Read(filepath.Join(proc, e.Name(), "mountinfo"))
		if gone(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("see what process %s of the node has mounted: %w", e.Name(), err)
		}
		seen[namespace] = true
		if at := find(table); at != "" {
			return fmt.Sprintf("%s (process %s)", at, e.Name()), nil
		}
	}
	if len(seen) == 0 {
		return "", fmt.Errorf("%w: %s shows no process of the node, so nobody knows what uses the directory",
			ErrRefused, proc)
	}
	return "", nil
}

// gone reports whether a process has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// MountID is that of the mount which an open directory is in; 0 of an in-memory disk.
func MountID(dir disk.Handle) (uint64, error) {
	if dir.File == nil {
		return 0, nil
	}
	return mounts.ID(dir.File)
}
