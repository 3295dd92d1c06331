package cache_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

func open(t *testing.T) cache.Dir {
	t.Helper()
	t.Setenv(cache.Variable, t.TempDir())
	dir, err := cache.Open()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOnceFillsAnEntryOnce(t *testing.T) {
	dir := open(t)
	var fills atomic.Int32
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			_, err := dir.Once("bin/x", func(folder string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(folder, "f"), nil, 0o600)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	if _, err := os.Stat(dir.Path("bin/x/f")); err != nil || fills.Load() != 1 {
		t.Errorf("filled %d times, want once; %v", fills.Load(), err)
	}
}

func TestOnceKeepsNothingOfAFailedFill(t *testing.T) {
	dir := open(t)
	broken := errors.New("broken")
	_, err := dir.Once("x", func(folder string) error {
		if err := os.WriteFile(filepath.Join(folder, "half"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) || dir.Has("x") {
		t.Fatalf("error %v, entry there: %t; want the fill's error and no entry", err, dir.Has("x"))
	}
	folder, err := dir.Once("x", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("the next fill started with %v (%v), want an empty folder", left, err)
	}
}

func TestOpenMakesTheFolder(t *testing.T) {
	want := filepath.Join(t.TempDir(), "a", "b")
	t.Setenv(cache.Variable, want)
	if dir, err := cache.Open(); err != nil || string(dir) != want {
		t.Fatalf("%s, %v; want %s", dir, err, want)
	}
	if _, err := os.Stat(want); err != nil {
		t.Error(err)
	}
}
