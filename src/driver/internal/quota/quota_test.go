package quota

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const mib = 1 << 20

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wants(tb testing.TB, err, want error, parts ...string) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("error %v, want %v", err, want)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			tb.Errorf("error %v says nothing of %q", err, part)
		}
	}
}

// real is a filesystem with quota that can be mounted again and again; each test has a pool of its own on it.
type real struct {
	backend string
	mount   func(tb testing.TB) (root string)
}

// pool is an open pool, and root where its filesystem is mounted.
type pool struct {
	disk.FS
	root, dir string
}

func open(tb testing.TB, root string) pool {
	tb.Helper()
	host, path := disk.NewHost("/"), filepath.Join(root, "pool")
	must(tb, host.Create(path))
	d, err := host.Open(path)
	must(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	for _, dir := range []string{disk.MetaDir, disk.VolumesDir, disk.StagingDir, disk.TrashDir} {
		if err := d.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			must(tb, err)
		}
	}
	return pool{d, root, filepath.Join(path, "csi")}
}

// detect is a backend that enforces.
func detect(tb testing.TB, q *Quotas, d disk.FS) Backend {
	tb.Helper()
	b, err := q.Detect(d, poolspec.QuotaRequired, true)
	must(tb, err)
	if !b.Enforces() || b.Reason != "" {
		tb.Fatalf("%+v", b)
	}
	return b
}

// onEach runs a test on an open pool of every real filesystem with quota.
func onEach(t *testing.T, test func(t *testing.T, p pool, b Backend)) {
	t.Helper()
	for name, r := range reals() {
		t.Run(name, func(t *testing.T) {
			p := open(t, r.mount(t))
			b := detect(t, New(t.TempDir()), p)
			if b.Name != r.backend {
				t.Fatalf("backend %s", b.Name)
			}
			test(t, p, b)
		})
	}
}

func claimed(ID) error { return nil }

// remove removes a volume's tree, and waits for XFS to count it no more.
func remove(t *testing.T, p pool, l Limits, name string, id ID) {
	t.Helper()
	must(t, p.RemoveTree(t.Context(), name, func(ctx context.Context) error { return ctx.Err() }))
	err := l.Set(name, id, Limit{})
	for errors.Is(err, syscall.EBUSY) {
		err = l.Set(name, id, Limit{})
	}
	must(t, err)
}

func TestLimits(t *testing.T) {
	onEach(t, func(t *testing.T, p pool, b Backend) {
		l, limit := b.On(p), Limit{Bytes: 8 * mib}
		const name = disk.StagingDir + "/v"
		var claims []ID
		id, err := l.Make(name, 0o750|fs.ModeSetgid, limit, func(id ID) error {
			claims = append(claims, id)
			if _, err := p.Stat(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there before the claim: %v", err)
			}
			return nil
		})
		if err != nil || len(claims) != 1 || claims[0] != id || id < 1<<30 {
			t.Fatalf("%d, %v, claims %v", id, err, claims)
		}
		must(t, p.Rename(name, "v"))
		if info, err := p.Stat("v"); err != nil || info.Mode != fs.ModeDir|fs.ModeSetgid|0o750 {
			t.Errorf("mode %v, %v", info.Mode, err)
		}
		checkState(t, l, id, State{ID: id, Limit: limit, Ordered: b.Ordered})
		checkState(t, l, id+1, State{ID: id, Limit: limit})
		must(t, fill(p.dir+"/v/file", 2*mib))
		must(t, syncfs(p))
		for _, ids := range [][]ID{{id, id + 1}, {id, id + 1, id + 2, id + 3, id + 4, id + 5, id + 6, id + 7, id + 8}} {
			used, err := l.Usage(ids)
			if err != nil || len(used) != len(ids) || used[id].Bytes < 2*mib || used[id].Bytes > 3*mib ||
				used[id+1] != (Use{}) {
				t.Errorf("usage %v, %v", used, err)
			}
		}
		checkSet(t, p, l, id)
		remove(t, p, l, "v", id)
		must(t, l.Set("v", id, Limit{}))
		_, err = l.Check("v", id)
		wants(t, err, fs.ErrNotExist)
	})
}

func syncfs(p pool) error {
	return withDirectory(p, ".", func(f *os.File) error { return unix.Syncfs(int(f.Fd())) })
}

func checkState(t *testing.T, l Limits, id ID, want State) {
	t.Helper()
	if got, err := l.Check("v", id); err != nil || got != want {
		t.Errorf("state for %d: %+v, %v; want %+v", id, got, err, want)
	}
}

// checkSet changes the limit of csi/v.
func checkSet(t *testing.T, p pool, l Limits, id ID) {
	t.Helper()
	bigger := Limit{Bytes: 16 * mib}
	must(t, l.Set("v", id, bigger))
	if got, err := l.Check("v", id); err != nil || got.Limit != bigger {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, p.Mkdir("other", 0o700))
	wants(t, l.Set("other", id, bigger), ErrNotCounted)
	wants(t, l.Set("v", id+1, bigger), ErrNotCounted)
	wants(t, l.Set("v", 42, bigger), ErrNotCounted) // an admin's
	wants(t, l.Set("v", 42, Limit{}), ErrNotCounted)
	wants(t, l.Set("v", 1<<60|id, bigger), ErrNotCounted)
	wants(t, l.Set("v", 1<<60|id, Limit{}), ErrNotCounted)
	must(t, l.Set("v", 0, Limit{}))
	wants(t, l.Set("v", id, Limit{}), syscall.EBUSY)
	wants(t, l.Set("other", id, Limit{}), syscall.EBUSY)
	if got, err := l.Check("v", id); err != nil || got.Limit != bigger {
		t.Errorf("after a removal that failed: %+v, %v", got, err)
	}
}

func TestMakeLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, p pool, b Backend) {
		l := b.On(p)
		must(t, p.Mkdir("taken", 0o700))
		var last ID
		_, err := l.Make("taken", 0o700, Limit{Bytes: mib}, func(id ID) error { last = id; return nil })
		wants(t, err, fs.ErrExist)
		if entries, err := p.ReadDir("."); err != nil || len(entries) != 2 { // the other is .hpp
			t.Errorf("%v, %v", entries, err)
		}
		must(t, l.Set("taken", last, Limit{})) // no EBUSY
		gone := errors.New("gone")
		_, err = l.Make("v", 0o700, Limit{Bytes: mib}, func(ID) error { return gone })
		wants(t, err, gone)
		if _, err := p.Stat("v"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

func TestMakeGivesEachAnIDOfItsOwn(t *testing.T) {
	onEach(t, func(t *testing.T, p pool, b Backend) {
		const volumes = 30
		ids := make([]ID, volumes)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				var err error
				ids[i], err = b.On(p).Make(fmt.Sprint("v", i), 0o700, Limit{Bytes: mib}, claimed)
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		seen := map[ID]bool{}
		for i, id := range ids {
			if seen[id] {
				t.Errorf("ID %d was given twice", id)
			}
			seen[id] = true
			remove(t, p, b.On(p), fmt.Sprint("v", i), id)
		}
	})
}

func fill(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, mib)
	for i := range block {
		block[i] = byte(i * i >> 7)
	}
	for ; n > 0; n -= mib {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}

// memory is a disk that has no quota.
type memory struct{ disk.FS }

func (memory) Open(string) (disk.Handle, error) { return disk.Handle{}, nil }
func (memory) Mkdir(name string, _ fs.FileMode) error {
	return &fs.PathError{Op: name, Err: fs.ErrExist}
}

func TestPlain(t *testing.T) {
	for _, want := range []poolspec.Quota{poolspec.QuotaNone, poolspec.QuotaAuto, poolspec.QuotaRequired} {
		b, err := New(t.TempDir()).Detect(memory{}, want, true)
		if err != nil || b.Name != Plain || b.Enforces() || b.Reason == "" || b.Ordered {
			t.Fatalf("%s: %+v, %v", want, b, err)
		}
		order, l := "", b.On(memory{})
		id, err := l.Make("v", 0o700, Limit{Bytes: 1}, func(id ID) error {
			order += fmt.Sprint("claim ",
				id)
			return nil
		})
		if !errors.Is(err, fs.ErrExist) || id != 0 || order != "claim 0" {
			t.Errorf("%d, %v, %s", id, err, order)
		}
		state, err1 := l.Check("v", 7)
		used, err2 := l.Usage([]ID{7})
		err = errors.Join(err1, err2, l.Set("v", 7, Limit{Bytes: 1}))
		if err != nil || state != (State{}) || len(used) != 0 {
			t.Errorf("%+v, %v, %v", state, used, err)
		}
		wants(t, b.Enforce(t.Context(), memory{}, Tree{Name: "v", ID: 7, Cursor: &disk.Cursor{}}, nil), ErrUnsupported)
		_, err = b.NewID(memory{}, claimed)
		wants(t, err, ErrUnsupported)
	}
}

func TestNamedIDs(t *testing.T) {
	for name, test := range map[string]struct {
		projid, projects string
		bad              string // in the error
	}{
		"none": {},
		"both": {
			projid:   "# ours\n\nbuild:1073741824\n logs : 7 \n",
			projects: "1073741825:/srv/a:b\n",
		},
		"projid without an ID":  {projid: "build\n", bad: "projid"},
		"projid with a word":    {projid: "a:7\nbuild:seven\n", bad: "projid"},
		"projects with a path":  {projects: "/srv/a:7\n", bad: "projects"},
		"an ID that is no ID":   {projects: "4294967296:/srv\n", bad: "projects"},
		"a line without an end": {projid: "a:1073741824"},
	} {
		t.Run(name, func(t *testing.T) {
			etc := t.TempDir()
			for file, text := range map[string]string{"projid": test.projid, "projects": test.projects} {
				if text != "" {
					must(t, os.WriteFile(filepath.Join(etc, file), []byte(text), 0o600))
				}
			}
			ids, err := (&filesystem{etc: etc}).named()
			if test.bad != "" {
				if err == nil || !strings.Contains(err.Error(), test.bad) {
					t.Errorf("error %v, want one with %q", err, test.bad)
				}
				return
			}
			must(t, err)
			if name == "both" && len(ids) != 3 {
				t.Errorf("%v, want three", ids)
			}
		})
	}
	etc := t.TempDir()
	must(t, os.Mkdir(filepath.Join(etc, "projects"), 0o700))
	if _, err := (&filesystem{etc: etc}).named(); err == nil {
		t.Error("a file that cannot be read is passed over")
	}
}

// asWithout does something as root without one capability.
func asWithout(capability uint, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[capability/32].Effective &^= 1 << (capability % 32)
		result <- errors.Join(err, unix.Capset(&header, &data[0]), do())
	}()
	return <-result
}
