//go:build vm

package quota

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
)

// user is somebody in a pod who is not root.
const user = 1000

// asUser does something as that user, in a directory that could not be reached by its path: csi/ is closed.
func asUser(dir string, do func(in *os.Root) error) error {
	in, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
			result <- errno
			return
		}
		result <- do(in)
	}()
	return <-result
}

// makeFor makes a volume that the user may write to.
func makeFor(t *testing.T, p pool, l Limits, name string, limit Limit) ID {
	t.Helper()
	id, err := l.Make(name, 0o700, limit, claimed)
	must(t, err)
	must(t, p.Own(name, user, user, 0o700))
	return id
}

// take makes files as their owner and gives each to another project, as every pod may outside a user namespace.
func take(t *testing.T, p pool, volume string, ids ...ID) {
	t.Helper()
	must(t, asUser(p.dir+"/"+volume, func(in *os.Root) error {
		for _, id := range ids {
			f, err := in.Create(fmt.Sprint("for-", id))
			if err == nil {
				err = errors.Join(projectquota.SetProjectID(f, uint32(id), false), f.Close())
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func inodes(t *testing.T, l Limits, id ID) int64 {
	t.Helper()
	used, err := l.Usage([]ID{id})
	must(t, err)
	return used[id].Inodes
}

// TestVMOwnersFiles: the owner of a file can have it count to another volume, and to an ID that nobody has yet. No
// volume that is made later gets an ID that something counts to.
func TestVMOwnersFiles(t *testing.T) {
	onProject(t, func(t *testing.T, p pool) {
		b := detect(t, New(t.TempDir()), p)
		l := b.On(p)
		own, other := makeFor(t, p, l, "own", Limit{Bytes: mib}), makeFor(t, p, l, "other", Limit{Bytes: mib})
		taken := []ID{other, other + 1, other + 2, other + 4}
		take(t, p, "own", taken...)
		if n := inodes(t, l, other); n != 2 {
			t.Errorf("%d inodes count to the other volume, want 2", n)
		}
		must(t, p.Remove("other"))
		wants(t, l.Set("other", other, Limit{}), syscall.EBUSY)

		made := map[string]ID{}
		for range 2 {
			for range 3 {
				name := fmt.Sprint("v", len(made))
				id, err := l.Make(name, 0o700, Limit{Bytes: mib}, claimed)
				must(t, err)
				if n := inodes(t, l, id); slices.Contains(taken, id) || id == own || n != 1 {
					t.Errorf("%s got %d, which %d inodes count to", name, id, n)
				}
				made[name] = id
			}
			l = detect(t, New(t.TempDir()), p).On(p) // after a restart
		}
		for name, id := range made {
			remove(t, p, l, name, id)
		}
		remove(t, p, l, "own", own)
		remove(t, p, l, "gone", other)
	})
}

// TestVMNotOneBlockMore: an ordinary user never gets one block past the limit. (On ext4 those with CAP_SYS_RESOURCE
// do.) XFS sets blocks aside for its own maps before it gives one to a file, and so refuses a little earlier.
func TestVMNotOneBlockMore(t *testing.T) {
	const block, limit, early = 4096, mib, 128 << 10
	onProject(t, func(t *testing.T, p pool) {
		l := detect(t, New(t.TempDir()), p).On(p)
		id := makeFor(t, p, l, "v", Limit{Bytes: limit})
		written := int64(0)
		more := func(blocks int64) error { // each durable, so that its room is not just promised
			return asUser(p.dir+"/v", func(in *os.Root) error {
				f, err := in.OpenFile("file", os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o600)
				if err != nil {
					return err
				}
				defer func() { _ = f.Close() }()
				for ; err == nil && blocks > 0; blocks-- {
					if _, err = f.WriteAt(make([]byte, block), written); err == nil {
						written += block
					}
				}
				return err
			})
		}
		used := func() int64 {
			t.Helper()
			must(t, syncfs(p))
			used, err := l.Usage([]ID{id})
			must(t, err)
			return used[id].Bytes
		}
		full := func(err error) {
			t.Helper()
			if !errors.Is(err, syscall.EDQUOT) && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("one block more: %v", err)
			}
		}
		full(more(2 * limit / block))
		if n := used(); n > limit || n < limit-early {
			t.Errorf("%d bytes are used of %d", n, limit)
		}
		exact := used()
		must(t, l.Set("v", id, Limit{Bytes: exact}))
		full(more(1))
		if n := used(); n != exact {
			t.Errorf("%d bytes are used of %d", n, exact)
		}
		must(t, l.Set("v", id, Limit{Bytes: exact + early}))
		must(t, more(1))
		if n := used(); n != exact+block {
			t.Errorf("%d bytes are used after one block more than %d", n, exact)
		}
		remove(t, p, l, "v", id)
	})
}
