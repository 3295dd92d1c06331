//go:build vm

package projectquota

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// These run in the VM of tests/vm, which has the disks /dev/disk/{xfs,ext4,ext4-plain}.

const mib = 1 << 20

// mounted mounts a disk of the VM.
func mounted(t *testing.T, disk, filesystem, options string) *os.File {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // other users must come through
	mounttest.Mount(t, "/dev/disk/"+disk, dir, filesystem, options)
	return open(t, dir)
}

// on runs a test on each filesystem.
func on(t *testing.T, test func(t *testing.T, top *os.File)) {
	t.Helper()
	for _, filesystem := range []string{"xfs", "ext4"} {
		t.Run(filesystem, func(t *testing.T) { test(t, mounted(t, filesystem, filesystem, "prjquota")) })
	}
}

// volume makes a limited directory, as the driver does; its project is freed at the end.
func volume(t *testing.T, top *os.File, id uint32, l Limit) string {
	t.Helper()
	dir := fmt.Sprintf("%s/volume-%d", top.Name(), id)
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.Chmod(dir, 0o777))
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	must(t, SetLimit(top, id, l))
	must(t, SetProjectID(f, id, true))
	if got, inherit, err := ProjectID(f); err != nil || got != id || !inherit {
		t.Fatalf("project %d, inherit %v, %v", got, inherit, err)
	}
	t.Cleanup(func() {
		must(t, os.RemoveAll(dir))
		must(t, SetLimit(top, id, Limit{}))
	})
	return dir
}

func fill(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	_, _ = rand.Read(block)
	for ; n > 0; n -= len(block) {
		if _, err := f.Write(block[:min(n, len(block))]); err != nil {
			return err
		}
	}
	return f.Sync()
}

func full(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want EDQUOT or ENOSPC", err)
	}
}

// on a thread of its own, which ends with what change did to it.
func thread(change, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := change()
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// as does something as another user.
func as(uid int, do func() error) error {
	return thread(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			return errno
		}
		return nil
	}, do)
}

// without does something as root without one capability, as in an ordinary container.
func without(capability uint, do func() error) error {
	return thread(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		data[capability/32].Effective &^= 1 << (capability % 32)
		return unix.Capset(&header, &data[0])
	}, do)
}

func usage(t *testing.T, top *os.File, id uint32) Usage {
	t.Helper()
	q, err := Get(top, id)
	must(t, err)
	return q.Usage
}

// remove removes files of a project and waits until they count no more: XFS frees them in the background.
func remove(t *testing.T, top *os.File, id uint32, files ...string) {
	t.Helper()
	before := usage(t, top, id).Inodes
	for _, file := range files {
		must(t, os.Remove(file))
	}
	freed(t, top, id, Usage{Bytes: math.MaxUint64, Inodes: before - uint64(len(files))})
}

// freed waits until a project holds no more than that.
func freed(t *testing.T, top *os.File, id uint32, most Usage) {
	t.Helper()
	const looks = 6000
	var is Usage
	for range looks {
		if is = usage(t, top, id); is.Bytes <= most.Bytes && is.Inodes <= most.Inodes {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("project %d holds %+v after %d looks, which was to become %+v at most", id, is, looks, most)
}

func TestVMProbe(t *testing.T) {
	for _, test := range []struct {
		name, disk, filesystem, options string
		accounting, enforcing           bool
	}{
		{"xfs on", "xfs", "xfs", "prjquota", true, true},
		{"xfs counting", "xfs", "xfs", "pqnoenforce", true, false},
		{"xfs off", "xfs", "xfs", "", false, false},
		{"ext4 on", "ext4", "ext4", "prjquota", true, true},
		{"ext4 counting", "ext4", "ext4", "", true, false},
		{"ext4 without the feature", "ext4-plain", "ext4", "", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			top := mounted(t, test.disk, test.filesystem, test.options)
			s, err := Probe(top)
			must(t, err)
			if s.Accounting != test.accounting || s.Enforcing != test.enforcing || (s.Reason == "") != test.enforcing {
				t.Errorf("%+v", s)
			}
			err = Enforce(top)
			if !test.accounting {
				wants(t, err, errors.ErrUnsupported)
				return
			}
			must(t, err)
			s, err = Probe(top)
			if err != nil || !s.Enforcing {
				t.Errorf("after Enforce: %+v, %v", s, err)
			}
			dir := volume(t, top, 7, Limit{Bytes: mib})
			full(t, without(unix.CAP_SYS_RESOURCE, func() error { return fill(dir+"/file", 2*mib) }))
		})
	}
}

func TestVMBytes(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		const limit = 8 * mib
		dir := volume(t, top, 7, Limit{Bytes: limit})
		for name, writer := range map[string]func(func() error) error{
			"a user":                        func(do func() error) error { return as(1000, do) },
			"root without CAP_SYS_RESOURCE": func(do func() error) error { return without(unix.CAP_SYS_RESOURCE, do) },
		} {
			must(t, writer(func() error { return fill(dir+"/fits", 6*mib) }))
			full(t, writer(func() error { return fill(dir+"/past", 4*mib) }))
			if got := usage(t, top, 7); got.Bytes > limit || got.Bytes < 6*mib {
				t.Errorf("%s: %+v, limit %d", name, got, limit)
			}
			remove(t, top, 7, dir+"/fits", dir+"/past")
		}
		must(t, as(1000, func() error { return fill(dir+"/fits", 6*mib) }))
		must(t, SetLimit(top, 7, Limit{Bytes: 2 * limit}))
		must(t, as(1000, func() error { return fill(dir+"/more", 6*mib) }))
		must(t, SetLimit(top, 7, Limit{Bytes: limit})) // below what is used
		full(t, as(1000, func() error { return fill(dir+"/evenmore", mib) }))
		q, err := Get(top, 7)
		if err != nil || q.Limit.Bytes != limit || q.Usage.Bytes < 12*mib || q.ID != 7 {
			t.Errorf("%+v, %v", q, err)
		}
		must(t, SetLimit(top, 7, Limit{}))
		must(t, as(1000, func() error { return fill(dir+"/evenmore", 12*mib) }))
	})
}

// TestVMResource records who may pass the limit: on ext4 those with CAP_SYS_RESOURCE, which
// docs/explanation/enforcement.md tells.
func TestVMResource(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		dir := volume(t, top, 7, Limit{Bytes: mib})
		err := fill(dir+"/file", 4*mib)
		s, probed := Probe(top)
		must(t, probed)
		if !s.xfs {
			if err != nil {
				t.Errorf("%v: ext4 holds root with CAP_SYS_RESOURCE now; say so in docs/explanation/enforcement.md",
					err)
			}
			return
		}
		full(t, err)
	})
}

func TestVMInodes(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		dir := volume(t, top, 7, Limit{Inodes: 10})
		err := error(nil)
		made := 0
		for ; err == nil && made < 20; made++ {
			err = as(1000, func() error { return os.WriteFile(fmt.Sprintf("%s/%d", dir, made), nil, 0o600) })
		}
		full(t, err)
		if got := usage(t, top, 7); got.Inodes != 10 { // the directory is one
			t.Errorf("%+v, want 10 inodes", got)
		}
		remove(t, top, 7, dir+"/0")
		must(t, as(1000, func() error { return os.Mkdir(dir+"/again", 0o700) }))
	})
}

// TestVMLinks checks what a program does with its files, and that nothing of another project comes in.
func TestVMLinks(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		dir, other := volume(t, top, 7, Limit{Bytes: 8 * mib}), volume(t, top, 8, Limit{Bytes: 8 * mib})
		must(t, os.MkdirAll(dir+"/a/b", 0o755))
		must(t, fill(dir+"/a/file", mib))
		must(t, os.Rename(dir+"/a/file", dir+"/a/b/file"))
		must(t, os.Link(dir+"/a/b/file", dir+"/link"))
		must(t, os.Rename(dir+"/a/b", dir+"/b"))
		must(t, os.Symlink("link", dir+"/symlink"))
		for _, path := range []string{"/a", "/b", "/link"} {
			if id, _, err := ProjectID(open(t, dir+path)); err != nil || id != 7 {
				t.Errorf("%s is of project %d, %v", path, id, err)
			}
		}
		must(t, fill(top.Name()+"/outside", mib))
		t.Cleanup(func() { must(t, os.Remove(top.Name()+"/outside")) })
		wants(t, os.Rename(top.Name()+"/outside", dir+"/inside"), syscall.EXDEV)
		wants(t, os.Link(top.Name()+"/outside", dir+"/inside"), syscall.EXDEV)
		wants(t, os.Rename(dir+"/link", other+"/link"), syscall.EXDEV)
		before := usage(t, top, 7)
		must(t, os.Rename(dir, top.Name()+"/trash")) // out of it is free
		if after := usage(t, top, 7); after != before {
			t.Errorf("%+v before and %+v after a rename of the directory", before, after)
		}
		must(t, os.Rename(top.Name()+"/trash", dir))
	})
}

func TestVMReuse(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		for range 3 {
			t.Run("", func(t *testing.T) {
				freed(t, top, 9, Usage{}) // XFS frees removed files in the background
				if q, err := Get(top, 9); err != nil || q != (Quota{ID: 9}) {
					t.Errorf("before: %+v, %v", q, err)
				}
				dir := volume(t, top, 9, Limit{Bytes: 4 * mib, Inodes: 100})
				must(t, as(1000, func() error { return fill(dir+"/file", 3*mib) }))
				q, err := Get(top, 9)
				if err != nil || q.Usage.Inodes != 2 || q.Usage.Bytes < 3*mib ||
					q.Limit != (Limit{Bytes: 4 * mib, Inodes: 100}) {
					t.Errorf("%+v, %v", q, err)
				}
			})
		}
	})
}

func TestVMNext(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		for _, id := range []uint32{70000, 70001, 1 << 31} {
			volume(t, top, id, Limit{Bytes: mib})
		}
		must(t, SetLimit(top, 69999, Limit{Bytes: mib})) // a limit that nothing uses
		t.Cleanup(func() { must(t, SetLimit(top, 69999, Limit{})) })
		for from, want := range map[uint32]uint32{
			69000: 69999, 69999: 69999, 70000: 70000, 70001: 70001,
			70002: 1 << 31,
		} {
			if q, err := Next(top, from); err != nil || q.ID != want || q.Limit.Bytes != mib {
				t.Errorf("from %d: %+v, %v; want %d", from, q, err, want)
			}
		}
		for _, from := range []uint32{1<<31 + 1, MaxID} {
			_, err := Next(top, from)
			wants(t, err, fs.ErrNotExist)
		}
	})
}

// TestVMOwnerLeavesProject is the escape that docs/explanation/enforcement.md names: in the initial user namespace the
// owner of a file may change its project.
func TestVMOwnerLeavesProject(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		dir := volume(t, top, 7, Limit{Bytes: 4 * mib})
		must(t, os.Chown(dir, 1000, 1000))
		must(t, as(1000, func() error {
			f, err := os.Open(dir)
			if err != nil {
				return err
			}
			defer f.Close()
			return SetProjectID(f, 0, false)
		}))
		if err := as(1000, func() error { return fill(dir+"/past", 8*mib) }); err != nil {
			t.Errorf("%v: the kernel holds the limit now; say so in docs/explanation/enforcement.md", err)
		}
	})
}

// TestVMUserNamespaceHolds shows why the documentation recommends hostUsers: false.
func TestVMUserNamespaceHolds(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		dir := volume(t, top, 7, Limit{Bytes: 4 * mib})
		must(t, os.Chown(dir, 1000, 1000))
		cmd := helper("leave", dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("the owner left the project in a user namespace: %s", out)
		}
		if id, inherit, err := ProjectID(open(t, dir)); err != nil || id != 7 || !inherit {
			t.Errorf("project %d, inherit %v, %v; %s", id, inherit, err, out)
		}
	})
}

// TestVMStatfs checks what df shows in a volume.
func TestVMStatfs(t *testing.T) {
	on(t, func(t *testing.T, top *os.File) {
		dir := volume(t, top, 7, Limit{Bytes: 8 * mib, Inodes: 1000})
		must(t, fill(dir+"/file", mib))
		var st unix.Statfs_t
		must(t, unix.Statfs(dir, &st))
		size, free := st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
		if size != 8*mib || free > 7*mib || free < 6*mib || st.Files != 1000 {
			t.Errorf("size %d, free %d, inodes %d; want the limit", size, free, st.Files)
		}
	})
}
