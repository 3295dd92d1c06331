package memfs

import (
	"io/fs"
	"path"
	"slices"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
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
			panic("memfs: " + prefix + " is no directory")
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

// Unmount unmounts what is mounted at a path; Mount brings it back. It is EBUSY while an FS is open on it, as umount(2) is.
func (d *Disk) Unmount(p string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.addDir(p)
	stack := d.mounts[at]
	if len(stack) == 0 {
		panic("memfs: nothing is mounted at " + p)
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
		panic("memfs: nothing was moved away from " + p)
	}
	delete(d.away, p)
	d.takeAway(p)
	add(d.seen(d.addDir(path.Dir(p))), base(p), n)
}

func (d *Disk) takeAway(p string) *node {
	dir := d.seen(d.addDir(path.Dir(p)))
	n, ok := dir.now.entries[base(p)]
	if !ok {
		panic("memfs: there is no " + p)
	}
	delete(dir.now.entries, base(p))
	delete(dir.disk.entries, base(p))
	return n
}

// filesystem is what a path lies on, with what is mounted there.
func (d *Disk) filesystem(p string) *device { return d.seen(d.addDir(p)).on }

// SetSpace says how large and how full the filesystem of a path is.
func (d *Disk) SetSpace(p string, s poolfs.Space) {
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

// SetFSType says what Facts.FSType tells of the filesystem of a path, "ext4" unless said.
func (d *Disk) SetFSType(p, kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filesystem(p).kind = kind
}

// SetQuota switches a quota of the filesystem of a path on, or with poolfs.QuotaOff off: then btrfs forgets all limits, a project quota
// only stops. The filesystem becomes one that has such a quota.
func (d *Disk) SetQuota(p string, q poolfs.Quota) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev := d.filesystem(p)
	switch q {
	case poolfs.QuotaProject:
		dev.kind = "xfs"
	case poolfs.QuotaSimple, poolfs.QuotaFull:
		dev.kind = "btrfs"
	case poolfs.QuotaOff:
		if dev.kind == "btrfs" {
			dev.limits = newLimits(nil)
			for _, n := range d.nodes() {
				if n.on == dev {
					n.now.account, n.disk.account = 0, 0
				}
			}
		}
	}
	dev.quota, dev.lost = q, nil
}

// SetUnprivileged lets every call about limits on the filesystem of a path fail with EPERM, as for a driver in a user namespace.
func (d *Disk) SetUnprivileged(p string, unprivileged bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filesystem(p).unprivileged = unprivileged
}

// Opened is the number of FS that are open, on all filesystems: 0 between the driver's operations.
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
