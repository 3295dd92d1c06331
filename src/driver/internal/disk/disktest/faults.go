package disktest

import (
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// faults counts the calls that change or sync something, and has what shall happen at which.
type faults struct {
	calls   int
	trace   []string
	fail    map[int]error
	crash   int // 0: never
	crashed bool
}

// FailAt lets the n-th changing or syncing call from now (1 is the next) fail with err, without effect.
func (d *Disk) FailAt(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.fail == nil {
		d.faults.fail = map[int]error{}
	}
	d.faults.fail[d.faults.calls+n] = err
}

// CrashAt lets the n-th changing or syncing call from now, and every call of any kind after it, fail with ErrCrashed.
// What the machine finds when it is up again is Crash, CrashRandom or CrashKeepingAll.
func (d *Disk) CrashAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.crash = d.faults.calls + n
}

// Crashed reports whether the crash asked for with CrashAt has come.
func (d *Disk) Crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults.crashed
}

// Calls counts the changing or syncing calls so far. A WriteFile counts as three (create, write, fsync), a
// RemoveTree as many as it removes.
func (d *Disk) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults.calls
}

// Trace lists those calls, counted, with how they ended, for a test's message.
func (d *Disk) Trace() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.faults.trace)
}

// step counts one changing or syncing call on a filesystem. Its error means that the call has no effect. d.mu is held.
func (d *Disk) step(op, path string, on *device) error {
	f := &d.faults
	if f.crashed {
		return ErrCrashed
	}
	f.calls++
	err := f.fail[f.calls]
	switch {
	case f.crash > 0 && f.calls >= f.crash:
		f.crashed = true
		err = ErrCrashed
	case err != nil:
		err = &fs.PathError{Op: op, Path: path, Err: err}
	case on.readOnly && op != "sync":
		err = &fs.PathError{Op: op, Path: path, Err: syscall.EROFS}
	case on.full && (op == "mkdir" || op == "create" || op == "write"):
		err = &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
	}
	line := fmt.Sprintf("%d %s %s", f.calls, op, path)
	if err != nil {
		line += ": " + err.Error()
	}
	f.trace = append(f.trace, line)
	return err
}
