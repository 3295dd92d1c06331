package vm

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// boot starts a VM and removes its folder at the end.
func boot(t *testing.T, c Config) *Machine {
	t.Helper()
	m, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// folder is one for images, removed at the end.
func folder(t *testing.T, name string) string {
	t.Helper()
	dir, err := scratch(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fetch(ctx context.Context, t *testing.T) Kernel {
	t.Helper()
	k, err := Fetch(ctx, func(message string) { t.Log(message) })
	must(t, err)
	return k
}

// TestProjectQuota runs tests of the root module on XFS and ext4 of a kernel that has their project quota.
func TestProjectQuota(t *testing.T) {
	kernel := fetch(t.Context(), t)
	for _, p := range []struct{ pkg, tests string }{
		{"./src/internal/kernel/projectquota", "^Test(VM|Layout|Invalid|ProbeElsewhere)"},
		{"./src/driver/internal/poolfs", "^TestQuotas$"},
		{"./src/driver/internal/volume", "^Test(EnforcedOnRealDisks$|VM)"},
	} {
		t.Run(filepath.Base(p.pkg), func(t *testing.T) {
			dir := folder(t, "quota")
			test := filepath.Join(dir, "test")
			must(t, BuildTest(t.Context(), test, "..", p.pkg))
			disks := map[string]string{}
			for name, mkfs := range map[string][]string{
				"xfs":        {"mkfs.xfs"},
				"ext4":       {"mkfs.ext4", "-O", "quota,project"},
				"ext4-plain": {"mkfs.ext4"},
			} {
				disks[name] = filepath.Join(dir, name)
				must(t, Image(t.Context(), disks[name], 512<<20, mkfs[0], mkfs[1:]...))
			}
			m := boot(t, Config{
				Kernel: kernel, Modules: []string{"xfs", "ext4", "quota_v2"}, Disks: disks,
				Files:   map[string]string{"test": test},
				Command: []string{"/test", "-test.v", "-test.run", p.tests},
				Dir:     dir,
			})
			for line, ok := m.Next(); ok; line, ok = m.Next() {
				t.Log(line)
			}
			must(t, m.Wait())
		})
	}
}
