// Package claim puts the filesystem of a claim at csi/ in a pool's path, and takes one without volumes away again. It
// keeps nothing of its own: whatever was done before, by whom and how far, is seen from what is there.
package claim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
)

// Errors of what is not done, because it could hide or destroy data.
var (
	ErrForeign  = errors.New("something else is mounted there")
	ErrShadowed = errors.New("it has files, which the claim would hide")
	ErrNotBlank = errors.New("the device is not blank")
)

// Source is where the pod has the claim: one of the two is set.
type Source struct {
	Directory string // where it is mounted
	Device    string // the block device
}

// Claim is a claim and its place in a pool.
type Claim struct {
	csi  string
	tree *bindmount.Tree
	open func(context.Context) (*os.File, error) // the filesystem, attached nowhere
	is   bindmount.Mount                         // what was seen at the place last, if it was the claim
}

// New is for the pool at a path, a directory that the host shares with the pod.
func New(pool string, from Source, log *slog.Logger) *Claim {
	c := &Claim{csi: filepath.Join(pool, "csi"), tree: bindmount.New(pool), open: directory(from.Directory).open}
	if from.Device != "" {
		c.open = (&device{path: from.Device, log: log}).open
	}
	return c
}

// Ensure sees that the claim is mounted at its place, and reports whether it had to mount it.
func (c *Claim) Ensure(ctx context.Context) (done bool, err error) {
	mount, err := c.open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = mount.Close() }()
	want, err := identity(mount)
	if err != nil {
		return false, err
	}
	there, err := c.tree.Inspect(c.csi)
	if err == nil && !there.Mounted {
		done, err = true, c.attach(mount)
		if err == nil {
			there, err = c.tree.Inspect(c.csi)
		}
	}
	if err == nil && !sameMount(there, want) {
		err = c.foreign(there, want)
	}
	if err == nil {
		c.is = there
	}
	return done && err == nil, err
}

// identity is what a detached mount is the root of. A directory that was removed still can be mounted, and loses
// whatever is written to it.
func identity(mount *os.File) (bindmount.Mount, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(mount.Fd()), &st); err != nil {
		return bindmount.Mount{}, &os.PathError{Op: "stat", Path: mount.Name(), Err: err}
	}
	if st.Nlink == 0 {
		return bindmount.Mount{}, fmt.Errorf("the claim's directory was removed where it is stored (%s): restore it, "+
			"or replace the claim", mount.Name())
	}
	return bindmount.Describe(mount)
}

func sameMount(a, b bindmount.Mount) bool { return a.Mounted && a.Dev == b.Dev && a.Ino == b.Ino }

// attach mounts the claim on an empty directory. One with files was a pool without the claim, or is none.
func (c *Claim) attach(mount *os.File) error {
	if err := os.Mkdir(c.csi, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	names, err := listNames(c.csi)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%s: %w (%s): move them away on the node, csi/ in the pool's path must be empty; volumes "+
			"among them need the pool as it was, without pvcTemplate", c.csi, ErrShadowed, abridge(names))
	}
	return c.tree.Attach(mount, c.csi)
}

// foreign says what is mounted at the place of the claim.
func (c *Claim) foreign(there, want bindmount.Mount) error {
	what := fmt.Sprintf("device %d:%d, inode %d", unix.Major(there.Dev), unix.Minor(there.Dev), there.Ino)
	here := func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != c.csi, false }
	if mounts, err := mountinfo.GetMounts(here); err == nil && len(mounts) > 0 {
		last := mounts[len(mounts)-1]
		what = fmt.Sprintf("%s %s, its directory %s", last.FSType, last.Source, last.Root)
	}
	return fmt.Errorf("%s: %w: %s; the claim is device %d:%d, inode %d. If the claim is right, unmount csi/ in the "+
		"pool's path on the node", c.csi, ErrForeign, what, unix.Major(want.Dev), unix.Minor(want.Dev), want.Ino)
}

// Release unmounts the claim where no volume is on it, and reports whether it did. Others stay, so that a restart
// disturbs nobody; so does what is mounted below the claim, at which nobody has looked.
func (c *Claim) Release() (bool, error) {
	there, err := c.tree.Inspect(c.csi)
	if err != nil || !sameMount(there, c.is) {
		return false, err
	}
	if used, err := inUse(c.csi); err != nil || used {
		return false, err
	}
	return true, c.tree.UnmountLast(c.csi)
}

// inUse reports whether a pool's csi/ has a volume, or anything but the driver's own empty directories.
func inUse(csi string) (bool, error) {
	names, err := listNames(csi)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if name != ".hpp" && name != "lost+found" {
			return true, nil
		}
	}
	own, err := os.ReadDir(filepath.Join(csi, ".hpp"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	for _, entry := range own {
		if !entry.IsDir() {
			continue
		}
		if used, err := filled(filepath.Join(csi, ".hpp", entry.Name())); used || err != nil {
			return used, err
		}
	}
	return false, nil
}

// filled reports whether one of the driver's own directories has anything but directories that are empty: where nodes
// share the claim, each has one in staging and in the trash.
func filled(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			return true, nil
		}
		names, err := listNames(filepath.Join(dir, entry.Name()))
		if err != nil || len(names) > 0 && strings.Join(names, "") != spare {
			return err == nil, err
		}
	}
	return false, nil
}

// spare is an empty directory that the trash has for a full disk.
const spare = ".spare"

// most is how many names of a directory are looked at: more say nothing new.
const most = 5

func listNames(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

func abridge(names []string) string {
	if len(names) < most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names, ", ") + ", …"
}

// directory is where the pod has a claim mounted.
type directory string

func (d directory) open(context.Context) (*os.File, error) {
	dir, err := os.OpenFile(string(d), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the claim: %w", err)
	}
	defer func() { _ = dir.Close() }()
	is, err := bindmount.Describe(dir)
	if err != nil {
		return nil, err
	}
	if !is.Mounted {
		return nil, fmt.Errorf("nothing is mounted at %s, where the pod must have the claim", d)
	}
	return bindmount.Clone(dir)
}
