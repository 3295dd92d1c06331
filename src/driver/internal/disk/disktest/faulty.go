package disktest

import (
	"context"
	"io/fs"
	"sync"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// Faulty is another Host on which every call fails from a given step on, as on a machine that has crashed there: what
// the calls before it did can be looked at, and recovered, with the other Host. Every call but Close is a step, and so
// is every step of a RemoveTree.
type Faulty struct {
	host  disk.Host
	mu    sync.Mutex
	steps int
	from  int
	once  bool // only that one fails
	err   error
	// meanwhile is what happens before the step-th call.
	meanwhile func()
	step      int
}

var _ disk.Host = (*Faulty)(nil)

// NewFaulty fails from the step-th call on (1 is the first, 0 means never) with err, or with EIO where that is nil.
func NewFaulty(host disk.Host, step int, err error) *Faulty {
	if err == nil {
		err = syscall.EIO
	}
	return &Faulty{host: host, from: step, err: err}
}

// FailOnce has only the step-th call fail, as on a disk that is in trouble for a moment.
func (f *Faulty) FailOnce(step int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from, f.once = step, true
}

// Before lets something else happen before the step-th call, as if the machine had paused there.
func (f *Faulty) Before(step int, do func()) { f.step, f.meanwhile = step, do }

// Steps counts the calls so far, the failed ones too.
func (f *Faulty) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.steps
}

// Step counts a call that is made in another way than through the Host, and is its error.
func (f *Faulty) Step(op, name string) error {
	f.mu.Lock()
	f.steps++
	paused := f.steps == f.step
	f.mu.Unlock()
	if paused {
		f.meanwhile()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.from == 0 || f.steps < f.from || f.once && f.steps > f.from {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: f.err}
}

// value makes a call that is a step and has a result.
func value[T any](f *Faulty, op, name string, call func(string) (T, error)) (T, error) {
	if err := f.Step(op, name); err != nil {
		var none T
		return none, err
	}
	return call(name)
}

// do makes a call that is a step.
func (f *Faulty) do(op, name string, call func() error) error {
	if err := f.Step(op, name); err != nil {
		return err
	}
	return call()
}

// Device implements disk.Host.
func (f *Faulty) Device(path string) (uint64, error) { return value(f, "device", path, f.host.Device) }

// Inspect implements disk.Host.
func (f *Faulty) Inspect(path string) (disk.Facts, error) {
	return value(f, "inspect", path, f.host.Inspect)
}

// Create implements disk.Host.
func (f *Faulty) Create(path string) error {
	return f.do("create", path, func() error { return f.host.Create(path) })
}

// Open implements disk.Host.
func (f *Faulty) Open(path string) (disk.FS, error) { return f.opened(path, f.host.Open) }

// OpenDir implements disk.Paths.
func (f *Faulty) OpenDir(path string) (disk.FS, error) { return f.opened(path, f.host.OpenDir) }

func (f *Faulty) opened(path string, open func(string) (disk.FS, error)) (disk.FS, error) {
	opened, err := value(f, "open", path, open)
	if err != nil {
		return nil, err
	}
	return &faultyFS{FS: opened, host: f}, nil
}

// faultyFS is an FS of a Faulty.
type faultyFS struct {
	disk.FS
	host *Faulty
}

func (f *faultyFS) ReadFile(name string) ([]byte, error) {
	return value(f.host, "read", name, f.FS.ReadFile)
}

func (f *faultyFS) ReadDir(name string) ([]disk.Entry, error) {
	return value(f.host, "readdir", name, f.FS.ReadDir)
}

func (f *faultyFS) Stat(name string) (disk.Info, error) {
	return value(f.host, "stat", name, f.FS.Stat)
}

func (f *faultyFS) Open(name string) (disk.Handle, error) {
	return value(f.host, "open", name, f.FS.Open)
}

func (f *faultyFS) Space() (disk.Space, error) {
	return value(f.host, "statfs", ".", func(string) (disk.Space, error) { return f.FS.Space() })
}

func (f *faultyFS) Mkdir(name string, mode fs.FileMode) error {
	return f.host.do("mkdir", name, func() error { return f.FS.Mkdir(name, mode) })
}

func (f *faultyFS) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return f.host.do("write", name, func() error { return f.FS.WriteFile(name, data, mode) })
}

func (f *faultyFS) Own(name string, uid, gid int, mode fs.FileMode) error {
	return f.host.do("chown", name, func() error { return f.FS.Own(name, uid, gid, mode) })
}

func (f *faultyFS) Unlock(name string) error {
	return f.host.do("chattr", name, func() error { return f.FS.Unlock(name) })
}

func (f *faultyFS) Rename(from, to string) error {
	return f.host.do("rename", from, func() error { return f.FS.Rename(from, to) })
}

func (f *faultyFS) Replace(from, to string) error {
	return f.host.do("rename", from, func() error { return f.FS.Replace(from, to) })
}

func (f *faultyFS) Link(from, to string) error {
	return f.host.do("link", from, func() error { return f.FS.Link(from, to) })
}

func (f *faultyFS) Remove(name string) error {
	return f.host.do("remove", name, func() error { return f.FS.Remove(name) })
}

func (f *faultyFS) RemoveTree(ctx context.Context, name string, step func(context.Context) error) error {
	if err := f.host.Step("removetree", name); err != nil {
		return err
	}
	return f.FS.RemoveTree(ctx, name, func(ctx context.Context) error {
		if err := f.host.Step("remove", name); err != nil || step == nil {
			return err
		}
		return step(ctx)
	})
}

func (f *faultyFS) Sync(name string) error {
	return f.host.do("sync", name, func() error { return f.FS.Sync(name) })
}
