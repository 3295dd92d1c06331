package disktest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
)

// state opens a directory of its own on a new disk.
func state(t *testing.T, d *disktest.Disk) disk.FS {
	t.Helper()
	d.AddDir("/state")
	f, err := d.OpenDir("/state")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tree lists what is below /state, in order: files with their data, directories with their mode.
func tree(t *testing.T, d *disktest.Disk) string {
	t.Helper()
	f, err := d.OpenDir("/state")
	must(t, err)
	defer f.Close()
	return strings.Join(names(t, f, "."), " ")
}

func names(t *testing.T, f disk.FS, dir string) []string {
	t.Helper()
	entries, err := f.ReadDir(dir)
	must(t, err)
	slices.SortFunc(entries, func(a, b disk.Entry) int { return strings.Compare(a.Name, b.Name) })
	var all []string
	for _, e := range entries {
		name := strings.TrimPrefix(dir+"/"+e.Name, "./")
		if e.Dir {
			all = append(append(all, name), names(t, f, name)...)
			continue
		}
		data, err := f.ReadFile(name)
		must(t, err)
		all = append(all, name+"="+string(data))
	}
	return all
}

// TestStrict looks at what a crash leaves after each kind of change, with and without the syncs that it needs.
func TestStrict(t *testing.T) {
	tests := []struct {
		name string
		do   func(f disk.FS) []error
		want string
	}{
		{"mkdir", func(f disk.FS) []error { return []error{f.Mkdir("d", 0o700)} }, ""},
		{"mkdir, sync", func(f disk.FS) []error { return []error{f.Mkdir("d", 0o700), f.Sync(".")} }, "d"},
		{"child synced, parent not", func(f disk.FS) []error {
			return []error{f.Mkdir("d", 0o700), f.Mkdir("d/e", 0o700), f.Sync("d")}
		}, ""},
		{"parent synced, child not", func(f disk.FS) []error {
			return []error{f.Mkdir("d", 0o700), f.Mkdir("d/e", 0o700), f.Sync(".")}
		}, "d"},
		{"file without its name", func(f disk.FS) []error { return []error{f.WriteFile("f", []byte("x"), 0o600)} }, ""},
		{"file", func(f disk.FS) []error { return []error{f.WriteFile("f", []byte("x"), 0o600), f.Sync(".")} }, "f=x"},
		{"remove", func(f disk.FS) []error {
			return []error{f.WriteFile("f", []byte("x"), 0o600), f.Sync("."), f.Remove("f")}
		}, "f=x"},
		{"remove, sync", func(f disk.FS) []error {
			return []error{f.WriteFile("f", []byte("x"), 0o600), f.Sync("."), f.Remove("f"), f.Sync(".")}
		}, ""},
		{"replace", func(f disk.FS) []error {
			return []error{
				f.WriteFile("f", []byte("old"), 0o600), f.WriteFile("t", []byte("new"), 0o600), f.Sync("."),
				f.Replace("t", "f"),
			}
		}, "f=old t=new"},
		{"rename", moved, "a a/x a/x/f=data b"},
		{"rename, target synced", func(f disk.FS) []error {
			return append(moved(f), f.Sync("b"))
		}, "a a/x a/x/f=data b b/x b/x/f=data"},
		{"rename, source synced", func(f disk.FS) []error { return append(moved(f), f.Sync("a")) }, "a b"},
		{"rename, both synced", func(f disk.FS) []error {
			return append(moved(f), f.Sync("b"), f.Sync("a"))
		}, "a b b/x b/x/f=data"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := disktest.New()
			f := state(t, d)
			must(t, test.do(f)...)
			volatile := tree(t, d)
			if got := tree(t, d.Crash()); got != test.want {
				t.Errorf("after a crash %q, want %q", got, test.want)
			}
			if got := tree(t, d.CrashKeepingAll()); got != volatile {
				t.Errorf("after a crash that keeps all %q, want %q", got, volatile)
			}
			if got := tree(t, d); got != volatile {
				t.Errorf("the disk before the crash has changed to %q from %q", got, volatile)
			}
		})
	}
}

// moved makes a/x durable and renames it to b/x.
func moved(f disk.FS) []error {
	return []error{
		f.Mkdir("a", 0o700), f.Mkdir("b", 0o700), f.Mkdir("a/x", 0o700), f.WriteFile("a/x/f", []byte("data"), 0o600),
		f.Sync("a/x"), f.Sync("a"), f.Sync("."), f.Rename("a/x", "b/x"),
	}
}

// TestBothNames checks that the two names which a crash can leave lead to one directory.
func TestBothNames(t *testing.T) {
	d := disktest.New()
	must(t, append(moved(state(t, d)), state(t, d).Sync("b"))...)
	up := d.Crash()
	f := state(t, up)
	a, errA := f.Stat("a/x")
	b, errB := f.Stat("b/x")
	must(t, errA, errB)
	if a != b {
		t.Errorf("%+v and %+v", a, b)
	}
	must(t, f.RemoveTree(t.Context(), "a/x", nil))
	if got := tree(t, up); got != "a b b/x" {
		t.Errorf("%q: the data is in both", got)
	}
}

// TestOwnerAndMode checks that they need a sync of the directory itself.
func TestOwnerAndMode(t *testing.T) {
	for _, synced := range []bool{false, true} {
		d := disktest.New()
		f := state(t, d)
		must(t, f.Mkdir("d", 0o700), f.Sync("."), f.Own("d", 1, 2, 0o777))
		want := disk.Info{Mode: fs.ModeDir | 0o700}
		if synced {
			must(t, f.Sync("d"))
			want = disk.Info{Mode: fs.ModeDir | 0o777, UID: 1, GID: 2}
		}
		got, err := state(t, d.Crash()).Stat("d")
		must(t, err)
		got.Dev, got.Ino = 0, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("synced %v: %s", synced, diff)
		}
	}
}

// TestRandom checks that chance brings every outcome that a real filesystem can have, and no other.
func TestRandom(t *testing.T) {
	const old, renamed = "a a/x a/x/f=data b", "a b b/x b/x/f=data"
	const both, lost = "a a/x a/x/f=data b b/x b/x/f=data", "a b"
	tests := []struct {
		name string
		then func(f disk.FS) []error
		want []string
	}{
		{"rename", moved, []string{old, renamed, both}},
		{
			"rename, target synced", func(f disk.FS) []error { return append(moved(f), f.Sync("b")) },
			[]string{renamed, both},
		},
		{
			"rename, source synced", func(f disk.FS) []error { return append(moved(f), f.Sync("a")) },
			[]string{renamed, lost},
		},
		{
			"rename there and back", func(f disk.FS) []error { return append(moved(f), f.Rename("b/x", "a/x")) },
			[]string{old},
		},
		{
			"write", func(f disk.FS) []error { return []error{f.WriteFile("f", []byte("x"), 0o600)} },
			[]string{"", "f=x"},
		},
		{"two names", func(f disk.FS) []error {
			return []error{f.Mkdir("a", 0), f.Mkdir("b", 0)}
		}, []string{"", "a", "b", "a b"}},
		{"replace", func(f disk.FS) []error {
			return []error{
				f.WriteFile("f", []byte("1"), 0), f.WriteFile("t", []byte("2"), 0), f.Sync("."),
				f.Replace("t", "f"),
			}
		}, []string{"f=1 t=2", "f=2", "f=2 t=2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := disktest.New()
			must(t, test.then(state(t, d))...)
			got := map[string]bool{}
			for seed := range uint64(200) {
				got[tree(t, d.CrashRandom(rand.New(rand.NewPCG(seed, 0))))] = true
			}
			want := map[string]bool{}
			for _, outcome := range test.want {
				want[outcome] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSeedRepeats checks that a failure found by chance can be looked at again.
func TestSeedRepeats(t *testing.T) {
	d := disktest.New()
	f := state(t, d)
	for i := range 30 {
		must(t, f.WriteFile(fmt.Sprint(i), nil, 0o600))
	}
	once := tree(t, d.CrashRandom(rand.New(rand.NewPCG(1, 2))))
	if again := tree(t, d.CrashRandom(rand.New(rand.NewPCG(1, 2)))); once != again || once == tree(t, d) {
		t.Errorf("%q, then %q", once, again)
	}
}

// TestTornFile crashes inside WriteFile, where anything from nothing to all of the data may be there.
func TestTornFile(t *testing.T) {
	got := map[string]bool{}
	for n := range 3 {
		d := disktest.New()
		f := state(t, d)
		d.CrashAt(n + 1)
		if err := f.WriteFile("f", []byte("xyz"), 0o600); !errors.Is(err, disktest.ErrCrashed) {
			t.Fatalf("crash at call %d: %v", n+1, err)
		}
		if _, err := f.Stat("."); !errors.Is(err, disktest.ErrCrashed) || !d.Crashed() {
			t.Errorf("after the crash: %v", err)
		}
		for seed := range uint64(200) {
			got[tree(t, d.CrashRandom(rand.New(rand.NewPCG(seed, 0))))] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"": true, "f=": true, "f=x": true, "f=xy": true, "f=xyz": true},
		got); diff != "" {
		t.Error(diff)
	}
}

// TestFaults lets each call of a story fail: with no effect, and none left of a WriteFile.
func TestFaults(t *testing.T) {
	story := func(f disk.FS) error {
		for _, step := range []func() error{
			func() error { return f.Mkdir("d", 0o700) },
			func() error { return f.Own("d", 1, 1, 0o755) },
			func() error { return f.WriteFile("d/f", []byte("x"), 0o600) },
			func() error { return f.Rename("d/f", "g") },
			func() error { return f.WriteFile("h", nil, 0o600) },
			func() error { return f.Replace("h", "g") },
			func() error { return f.Sync(".") },
			func() error { return f.Remove("g") },
			func() error { return f.RemoveTree(t.Context(), "d", nil) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	want := []string{"", "d", "d", "d", "d", "d", "d d/f=x", "d g=x", "d g=x", "d g=x", "d g=x h=", "d g=", "d g=", "d"}
	whole := disktest.New()
	must(t, story(state(t, whole)))
	if whole.Calls() != len(want) || len(whole.Trace()) != len(want) {
		t.Fatalf("%d calls, want %d: %v", whole.Calls(), len(want), whole.Trace())
	}
	for i, left := range want {
		d := disktest.New()
		d.FailAt(i+1, syscall.EIO)
		err := story(state(t, d))
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("call %d: error %v, want EIO", i+1, err)
		}
		if got := tree(t, d); got != left {
			t.Errorf("call %d (%s): %q is left, want %q", i+1, d.Trace()[i], got, left)
		}
	}
}

// TestConcurrency is for the race detector.
func TestConcurrency(t *testing.T) {
	d := disktest.New()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			path := fmt.Sprintf("/pool-%d", i%2)
			if err := d.Create(path); err != nil {
				t.Error(err)
				return
			}
			f, err := d.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			name := fmt.Sprint(i)
			err = errors.Join(f.Mkdir(name, 0o700), f.WriteFile(name+"/f", nil, 0o600), f.Sync(name),
				f.RemoveTree(t.Context(), name, nil))
			if err != nil {
				t.Error(err)
			}
			_, _, _ = d.Crash(), d.Trace(), d.Opened()
		})
	}
	all.Wait()
}
