package disktest

import (
	"io/fs"
	"path"
	"slices"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// What follows arranges the host for a test. It is not counted, takes no injected failures, and is durable at once.
// Misuse (a directory where a file is, a path that does not exist) panics: the test is wrong, not the driver.

// AddDir makes a directory with its parents (0755).
func (d *Disk) AddDir(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addDir(p)
}

func (d *Disk) addDir(p string) *node {
	n := d.root.root
	for _, prefix := range prefixes(p) {
		dir := d.seen(n)
		next, ok := dir.now.entries[base(prefix)]
		if !ok {
			next = d.node(dir.on, fs.ModeDir, 0o755)
			add(dir, base(prefix), next)
		}
		if next.kind != fs.ModeDir {
			panic("disktest: " + prefix + " is no directory")
		}
		n = next
	}
	return n
}

func add(dir *node, name string, n *node) {
	dir.now.entries[name] = n
	dir.disk.entries[name] = n
}

// AddFile makes a file (0644), or changes its data, and the directories above it.
func (d *Disk) AddFile(p string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := d.seen(d.addDir(path.Dir(p)))
	n := d.node(dir.on, 0, 0o644)
	n.now.data, n.disk.data = slices.Clone(data), slices.Clone(data)
	add(dir, base(p), n)
}

// Symlink plants a symbolic link, and makes the directories above it.
func (d *Disk) Symlink(p, target string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := d.seen(d.addDir(path.Dir(p)))
	n := d.node(dir.on, fs.ModeSymlink, fs.ModePerm)
	n.target = target
	add(dir, base(p), n)
}

// Mount mounts at a path, which it makes if needed, the filesystem last unmounted there, or else a new empty one.
func (d *Disk) Mount(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev, ok := d.parked[p]
	if !ok {
		dev = d.device()
	}
	delete(d.parked, p)
	d.mount(p, dev)
}

// MountNew mounts a new empty filesystem at a path; one that was unmounted there stays away.
func (d *Disk) MountNew(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mount(p, d.device())
}

func (d *Disk) mount(p string, dev *device) {
	at := d.addDir(p)
	d.mounts[at] = append(d.mounts[at], dev)
}

// Unmount unmounts what is mounted at a path; Mount brings it back. It is EBUSY while an FS is open on it, as umount(2)
// is.
func (d *Disk) Unmount(p string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.addDir(p)
	stack := d.mounts[at]
	if len(stack) == 0 {
		panic("disktest: nothing is mounted at " + p)
	}
	top := stack[len(stack)-1]
	if top.opened > 0 {
		return &fs.PathError{Op: "umount", Path: p, Err: syscall.EBUSY}
	}
	d.parked[p] = top
	if len(stack) == 1 {
		delete(d.mounts, at)
	} else {
		d.mounts[at] = stack[:len(stack)-1]
	}
	return nil
}

// ReplaceByEmpty moves the directory at a path away and puts an empty one there.
func (d *Disk) ReplaceByEmpty(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away[p] = d.takeAway(p)
	d.addDir(p)
}

// PutBack undoes ReplaceByEmpty; what is there meanwhile is lost.
func (d *Disk) PutBack(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.away[p]
	if !ok {
		panic("disktest: nothing was moved away from " + p)
	}
	delete(d.away, p)
	d.takeAway(p)
	add(d.seen(d.addDir(path.Dir(p))), base(p), n)
}

func (d *Disk) takeAway(p string) *node {
	dir := d.seen(d.addDir(path.Dir(p)))
	n, ok := dir.now.entries[base(p)]
	if !ok {
		panic("disktest: there is no " + p)
	}
	delete(dir.now.entries, base(p))
	delete(dir.disk.entries, base(p))
	return n
}

// filesystem is what a path lies on, with what is mounted there.
func (d *Disk) filesystem(p string) *device { return d.seen(d.addDir(p)).on }

// SetSpace says how large and how full the filesystem of a path is.
func (d *Disk) SetSpace(p string, s disk.Space) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filesystem(p).space = s
}

// SetFull lets everything that needs room on the filesystem of a path fail with ENOSPC.
func (d *Disk) SetFull(p string, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filesystem(p).full = full
}

// SetReadOnly lets every change on the filesystem of a path fail with EROFS.
func (d *Disk) SetReadOnly(p string, readOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filesystem(p).readOnly = readOnly
}

// SetFSType sets what Facts.FSType is for the filesystem of a path, at first "ext4".
func (d *Disk) SetFSType(p, kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filesystem(p).kind = kind
}

// SetImmutable gives a directory the immutable flag, which Unlock and RemoveTree clear.
func (d *Disk) SetImmutable(p string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.seen(d.addDir(p))
	n.now.immutable, n.disk.immutable = true, true
}

// Opened is how many FS are open, on all filesystems: 0 between the driver's operations.
func (d *Disk) Opened() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[*device]bool{}
	total := 0
	for _, n := range d.nodes() {
		if !seen[n.on] {
			seen[n.on] = true
			total += n.on.opened
		}
	}
	return total
}
