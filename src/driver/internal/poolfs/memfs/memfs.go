// Package memfs is a host's file tree in memory, for tests of what survives a crash. It is strict: whatever was not
// fsynced is forgotten, a directory's entries and a file's data each on their own. It counts every call that changes or
// syncs something, so that a test can let each of them fail, or let the crash come there.
package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// ErrCrashed is what every call fails with from the crash on.
var ErrCrashed = errors.New("memfs: the machine has crashed")

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
	number   uint64
	root     *node
	space    poolfs.Space
	kind     string
	full     bool
	readOnly bool
	opened   int // FS that are open on it
	quota    poolfs.Quota
	limits   limits
	lost     *lost // nil while qgroups count right
	// whole tells that a subvolume was renamed since the last commit: until the next one, btrfs writes all or nothing.
	whole bool
	// unprivileged lets every call about limits fail.
	unprivileged bool
}

// node is an inode. Its number, kind and target never change; the rest has the version that programs see and the
// one that is on the disk.
type node struct {
	ino       uint64
	on        *device
	kind      fs.FileMode // type bits
	target    string      // of a symbolic link
	subvolume uint64      // device number of the btrfs subvolume that this is the root of, else 0
	now, disk state
}

// state is one version of an inode.
type state struct {
	entries  map[string]*node
	data     []byte
	mode     fs.FileMode // permission bits
	uid, gid int
	account  uint32 // project id, or the qgroup that a subvolume is in
}

func (s state) is(other state) bool {
	return maps.Equal(s.entries, other.entries) && bytes.Equal(s.data, other.data) &&
		s.mode == other.mode && s.uid == other.uid && s.gid == other.gid && s.account == other.account
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
		number: d.lastDev, kind: "ext4",
		space: poolfs.Space{
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

// Device implements poolfs.Disk.
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
	return d.seen(n).on.number, nil
}

// Inspect implements poolfs.Disk.
func (d *Disk) Inspect(path string) (poolfs.Facts, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.crashed {
		return poolfs.Facts{}, ErrCrashed
	}
	under, err := d.lookup(path)
	if errors.Is(err, fs.ErrNotExist) {
		return poolfs.Facts{}, nil
	}
	if err != nil {
		return poolfs.Facts{}, err
	}
	n := d.seen(under)
	facts := poolfs.Facts{Path: true, MountPoint: n.on.root == n}
	csi, err := d.csi(n, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return poolfs.Facts{}, err
	default:
		n = d.seen(csi)
		facts.CSI, facts.CSIMountPoint = true, n.on.root == n
	}
	facts.Dev = n.on.number
	facts.FSID = fmt.Sprintf("%016x", n.on.number)
	facts.FSType = n.on.kind
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

// Create implements poolfs.Disk.
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
		if err == nil {
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

// Open implements poolfs.Disk.
func (d *Disk) Open(path string) (poolfs.FS, error) {
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

// OpenDir opens a directory itself, as poolfs.OpenDir does.
func (d *Disk) OpenDir(path string) (poolfs.FS, error) {
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
