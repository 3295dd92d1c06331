package disktest_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
)

// TestFaulty lets a story fail from each of its steps on, and looks at what is left on the real disk.
func TestFaulty(t *testing.T) {
	story := func(h disk.Host) error {
		if err := h.Create("/pool"); err != nil {
			return err
		}
		f, err := h.Open("/pool")
		if err != nil {
			return err
		}
		defer f.Close()
		for _, err := range []error{
			f.Mkdir("a", 0o700), f.Own("a", 1, 2, 0o750), f.WriteFile("a/f", nil, 0o600), f.Replace("a/f", "a/g"),
			f.Sync("a"), f.Rename("a", "b"), f.Unlock("b"),
			f.RemoveTree(t.Context(), "b", func(context.Context) error { return nil }), f.Sync("."),
		} {
			if err != nil {
				return err
			}
		}
		_, err = f.ReadDir(".")
		return err
	}
	whole := disktest.NewFaulty(disk.NewHost(t.TempDir()), 0, nil)
	must(t, story(whole))
	for step := 1; step <= whole.Steps(); step++ {
		root := t.TempDir()
		faulty := disktest.NewFaulty(disk.NewHost(root), step, nil)
		if err := story(faulty); !errors.Is(err, syscall.EIO) {
			t.Fatalf("step %d: %v, want %v", step, err, syscall.EIO)
		}
		if _, err := faulty.Inspect("/pool"); !errors.Is(err, syscall.EIO) {
			t.Errorf("a call after step %d: %v, want %v", step, err, syscall.EIO)
		}
		f, err := disk.NewHost(root).Open("/pool")
		if err != nil && step > 1 {
			t.Errorf("step %d: what was made before it is gone: %v", step, err)
		}
		if err == nil {
			must(t, f.Close())
		}
	}
	if whole.Steps() < 14 {
		t.Errorf("%d steps are too few for what was done", whole.Steps())
	}
	other := disktest.NewFaulty(disk.NewHost(t.TempDir()), 1, syscall.ENOSPC)
	if err := other.Create("/pool"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want %v", err, syscall.ENOSPC)
	}
	other.FailOnce(3)
	for call, want := range []error{nil, syscall.ENOSPC, nil} {
		if err := other.Create("/pool"); !errors.Is(err, want) {
			t.Errorf("call %d: error %v, want %v", call, err, want)
		}
	}
}

// TestImmutable checks that Unlock sets a directory free.
func TestImmutable(t *testing.T) {
	d := disktest.New()
	d.AddDir("/state/v/w")
	d.SetImmutable("/state/v")
	f, err := d.OpenDir("/state")
	must(t, err)
	for _, err := range []error{f.Rename("v", "x"), f.Remove("v/w"), f.Mkdir("v/y", 0o700)} {
		if !errors.Is(err, syscall.EPERM) {
			t.Errorf("error %v, want %v", err, syscall.EPERM)
		}
	}
	must(t, f.Unlock("v"), f.Rename("v", "x"))
	d.SetImmutable("/state/x")
	must(t, f.RemoveTree(t.Context(), "x", nil))
}
