// Package disktest is a host's file tree in memory, for tests of what survives a crash. It is strict: whatever was not
// fsynced is forgotten, a directory's entries and a file's data each on their own. It counts every call that changes or
// syncs something, so that a test can let each of them fail, or let the crash come there.
package disktest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// ErrCrashed is what every call fails with from the crash on.
var ErrCrashed = errors.New("disktest: the machine has crashed")

// Disk is the file tree of a host: a root filesystem and whatever a test mounts on it. It is safe for
// concurrent use.
type Disk struct {
	mu      sync.Mutex
	root    *device
	mounts  map[*node][]*device // by the directory they cover, the last one on top
	parked  map[string]*device  // unmounted, by path
	away    map[string]*node    // directories that ReplaceByEmpty moved away, by path
	lastIno uint64
	lastDev uint64
	faults  faults
}

// device is one filesystem.
type device struct {
	dev      uint64
	root     *node
	space    disk.Space
	kind     string
	full     bool
	readOnly bool
	opened   int // FS that are open on it
}

// node is an inode. Its ino, kind and target never change; the rest has the version that programs see and the
// one that is on the disk.
type node struct {
	ino       uint64
	on        *device
	kind      fs.FileMode // type bits
	target    string      // of a symbolic link
	now, disk state
}

// state is one version of an inode.
type state struct {
	entries   map[string]*node
	data      []byte
	mode      fs.FileMode // permission bits
	uid, gid  int
	immutable bool
}

func (s state) clone() state {
	s.entries = maps.Clone(s.entries)
	s.data = slices.Clone(s.data)
	return s
}

// New is an empty root filesystem of 100 GiB, 80 of them free.
func New() *Disk {
	d := &Disk{mounts: map[*node][]*device{}, parked: map[string]*device{}, away: map[string]*node{}}
	d.root = d.device()
	return d
}

func (d *Disk) device() *device {
	const gib = 1 << 30
	d.lastDev++
	dev := &device{
		dev: d.lastDev, kind: "ext4",
		space: disk.Space{
			Size: 100 * gib, Used: 20 * gib, Free: 80 * gib,
			Inodes: 1 << 20, InodesUsed: 1 << 10, InodesFree: 1<<20 - 1<<10,
		},
	}
	dev.root = d.node(dev, fs.ModeDir, 0o755)
	return dev
}

func (d *Disk) node(on *device, kind, mode fs.FileMode) *node {
	d.lastIno++
	n := &node{ino: d.lastIno, on: on, kind: kind}
	n.now = state{mode: mode}
	if kind == fs.ModeDir {
		n.now.entries = map[string]*node{}
	}
	n.disk = n.now.clone()
	return n
}

// seen is the directory that a lookup of n finds: the root of what is mounted on it, or n.
func (d *Disk) seen(n *node) *node {
	for {
		stack := d.mounts[n]
		if len(stack) == 0 {
			return n
		}
		n = stack[len(stack)-1].root
	}
}

// Device implements disk.Host.
func (d *Disk) Device(path string) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.crashed {
		return 0, ErrCrashed
	}
	n, err := d.lookup(path)
	if err != nil {
		return 0, err
	}
	return d.seen(n).on.dev, nil
}

// Inspect implements disk.Host.
func (d *Disk) Inspect(path string) (disk.Facts, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.crashed {
		return disk.Facts{}, ErrCrashed
	}
	under, err := d.lookup(path)
	if errors.Is(err, fs.ErrNotExist) {
		return disk.Facts{}, nil
	}
	if err != nil {
		return disk.Facts{}, err
	}
	n := d.seen(under)
	facts := disk.Facts{Path: true, MountPoint: n.on.root == n}
	csi, err := d.csi(n, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return disk.Facts{}, err
	default:
		n = d.seen(csi)
		facts.CSI, facts.CSIMountPoint = true, n.on.root == n
	}
	facts.Dev, facts.Ino = n.on.dev, n.ino
	facts.FSID = fmt.Sprintf("%016x", n.on.dev)
	facts.FSType = n.on.kind
	facts.RemembersMissing = n.on.kind == "nfs"
	facts.ReadOnly = n.on.readOnly
	return facts, nil
}

// csi finds the directory csi/ in a pool's path.
func (d *Disk) csi(n *node, path string) (*node, error) {
	csi, ok := n.now.entries["csi"]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: path + "/csi", Err: syscall.ENOENT}
	case csi.kind == fs.ModeSymlink:
		return nil, &fs.PathError{Op: "open", Path: path + "/csi", Err: syscall.ELOOP}
	case csi.kind != fs.ModeDir:
		return nil, &fs.PathError{Op: "open", Path: path + "/csi", Err: syscall.ENOTDIR}
	}
	return csi, nil
}

// Create implements disk.Host.
func (d *Disk) Create(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, err := d.makeAll(path)
	if err != nil {
		return err
	}
	made := false
	if dir.now.entries["csi"] == nil {
		if err := d.mkdir(dir, "csi", path+"/csi", 0o700); err != nil {
			return err
		}
		made = true
	}
	if _, err := d.csi(dir, path); err != nil {
		return err
	}
	if err := d.sync(dir, path); err != nil {
		if made && !d.faults.crashed {
			delete(dir.now.entries, "csi")
		}
		return err
	}
	return nil
}

// makeAll makes what is missing of path, durably.
func (d *Disk) makeAll(path string) (*node, error) {
	if d.faults.crashed {
		return nil, ErrCrashed
	}
	if !absolute(path) {
		return nil, &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrInvalid}
	}
	dir := d.seen(d.root.root)
	for _, prefix := range prefixes(path) {
		n, err := d.lookup(prefix)
		if err == nil { // its name may not be durable
			if err := d.sync(dir, prefix); err != nil {
				return nil, err
			}
			dir = d.seen(n)
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := d.makeDurable(dir, prefix); err != nil {
			return nil, err
		}
		dir = dir.now.entries[base(prefix)]
	}
	return dir, nil
}

func (d *Disk) makeDurable(dir *node, path string) error {
	name := base(path)
	if _, taken := dir.now.entries[name]; taken { // a link to nothing
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOENT}
	}
	if err := d.mkdir(dir, name, path, 0o755); err != nil {
		return err
	}
	if err := d.sync(dir, path); err != nil {
		if !d.faults.crashed {
			delete(dir.now.entries, name)
		}
		return err
	}
	return nil
}

// Open implements disk.Host.
func (d *Disk) Open(path string) (disk.FS, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.crashed {
		return nil, ErrCrashed
	}
	n, err := d.lookup(path)
	if err != nil {
		return nil, err
	}
	csi, err := d.csi(d.seen(n), path)
	if err != nil {
		return nil, err
	}
	return d.open(d.seen(csi), path+"/csi"), nil
}

// OpenDir opens a directory itself, as disk.OpenDir does.
func (d *Disk) OpenDir(path string) (disk.FS, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.crashed {
		return nil, ErrCrashed
	}
	n, err := d.lookup(path)
	if err != nil {
		return nil, err
	}
	return d.open(d.seen(n), path), nil
}

func (d *Disk) open(n *node, label string) *dir {
	n.on.opened++
	return &dir{disk: d, node: n, label: label}
}
