//go:build vm

package quota

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// reals are the disks /dev/disk/{xfs,ext4} of a VM of tests/vm, whose kernel has project quota.
func reals() map[string]real {
	return map[string]real{"xfs": {Project, mounted("xfs", "prjquota")}, "ext4": {Project, mounted("ext4", "prjquota")}}
}

func mounted(kind, options string) func(tb testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		root := tb.TempDir()
		mounttest.Mount(tb, "/dev/disk/"+kind, root, kind, options)
		tb.Cleanup(func() { must(tb, os.RemoveAll(root+"/pool")) }) // nothing is in it for the next test
		return root
	}
}

// onProject runs a test on a pool of each kind, whose backend is not yet detected.
func onProject(t *testing.T, test func(t *testing.T, p pool)) {
	t.Helper()
	for name, r := range reals() {
		t.Run(name, func(t *testing.T) { test(t, open(t, r.mount(t))) })
	}
}

// tag makes a file that counts to a project, as an admin or another program would.
func tag(t *testing.T, p pool, name string, id ID) {
	t.Helper()
	must(t, os.WriteFile(p.root+"/"+name, nil, 0o600))
	t.Cleanup(func() { must(t, os.Remove(p.root+"/"+name)) })
	f, err := os.Open(p.root + "/" + name)
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, projectquota.SetProjectID(f, uint32(id), false))
}

func projectIs(t *testing.T, p pool, name string) uint32 {
	t.Helper()
	var id uint32
	must(t, withDirectory(p, name, func(f *os.File) (err error) {
		id, _, err = projectquota.ProjectID(f)
		return err
	}))
	return id
}

func setProjectOf(t *testing.T, p pool, name string, id uint32) {
	t.Helper()
	must(t, withDirectory(p, name, func(f *os.File) error { return projectquota.SetProjectID(f, id, id != 0) }))
}

func limitProject(t *testing.T, p pool, id uint32, l Limit) {
	t.Helper()
	must(t, projectLimits{d: p}.limit(ID(id), l))
}

// TestVMNoIDOfSomebodyElse: neither one with usage or a limit nor one that a file names, and one that turns out to be
// somebody else's is left as it was.
func TestVMNoIDOfSomebodyElse(t *testing.T) {
	onProject(t, func(t *testing.T, p pool) {
		etc := t.TempDir()
		q := New(etc)
		l := detect(t, q, p).On(p)
		first, err := l.Make("first", 0o700, Limit{Bytes: mib}, claimed)
		must(t, err)
		tag(t, p, "used", first+1)
		limitProject(t, p, uint32(first+2), Limit{Inodes: 7})
		must(t, os.WriteFile(etc+"/projid", fmt.Appendf(nil, "build:%d\n", first+3), 0o600))
		must(t, os.WriteFile(etc+"/projects", fmt.Appendf(nil, "%d:/srv\n", first+4), 0o600))
		var claims []ID
		id, err := l.Make("v", 0o700, Limit{Bytes: mib}, func(id ID) error {
			if claims = append(claims, id); len(claims) == 1 {
				tag(t, p, "meanwhile", id)
			}
			return nil
		})
		if err != nil || id != first+6 || !slices.Equal(claims, []ID{first + 5, first + 6}) {
			t.Errorf("%d, %v, claims from %d on: %v", id, err, first, claims)
		}
		var left projectquota.Quota
		must(t, withDirectory(p, ".", func(top *os.File) (err error) {
			left, err = projectquota.Get(top, uint32(first+5))
			return err
		}))
		if left.Limit != (projectquota.Limit{}) {
			t.Errorf("%+v: somebody else is limited", left)
		}
		again := New(etc) // after a restart
		reserved, err := detect(t, again, p).NewID(p, claimed)
		if err != nil || reserved != id+1 {
			t.Errorf("after a restart %d, %v; want %d", reserved, err, id+1)
		}
		must(t, os.WriteFile(etc+"/projid", []byte("build\n"), 0o600))
		_, err = l.Make("never", 0o700, Limit{Bytes: mib}, claimed)
		if err == nil || !strings.Contains(err.Error(), etc+"/projid") {
			t.Errorf("a file that nobody understands: %v", err)
		}
		remove(t, p, l, "first", first)
		remove(t, p, l, "v", id)
		limitProject(t, p, uint32(first+2), Limit{})
	})
}

// TestVMIDsGoRound: the last ID is followed by the first.
func TestVMIDsGoRound(t *testing.T) {
	onProject(t, func(t *testing.T, p pool) {
		limitProject(t, p, endProject-2, Limit{Bytes: mib})
		limitProject(t, p, endProject+5, Limit{Bytes: mib}) // of an earlier release
		b := detect(t, New(t.TempDir()), p)
		for _, want := range []ID{endProject - 1, firstID, firstID + 1} {
			if id, err := b.NewID(p, claimed); err != nil || id != want {
				t.Errorf("%d, %v; want %d", id, err, want)
			}
		}
		limitProject(t, p, endProject-2, Limit{})
		limitProject(t, p, endProject+5, Limit{})
	})
}

func TestVMDetect(t *testing.T) {
	for kind, options := range map[string]string{"xfs": "pqnoenforce", "ext4": ""} {
		t.Run(kind, func(t *testing.T) {
			p := open(t, mounted(kind, options)(t))
			q := New(t.TempDir())
			b, err := q.Detect(p, poolspec.QuotaAuto, false)
			if err != nil || b.Name != Plain || !strings.Contains(b.Reason, "not enforced") {
				t.Errorf("auto: %+v, %v", b, err)
			}
			b = detect(t, q, p)
			if len(b.Changes) != 1 || b.Enforcement != Cooperative {
				t.Errorf("%+v", b)
			}
			if b = detect(t, q, p); b.Changes != nil {
				t.Errorf("again: %+v", b)
			}
			must(t, asWithout(unix.CAP_SYS_ADMIN, func() error {
				b, err := New(t.TempDir()).Detect(p, poolspec.QuotaRequired, true)
				if err != nil || b.Name != Plain || !strings.Contains(b.Reason, "may not set limits") {
					t.Errorf("without the right to set limits: %+v, %v", b, err)
				}
				return nil
			}))
		})
	}
}

// TestVMAdminsProject: one that has a limit is left only where quota is required.
func TestVMAdminsProject(t *testing.T) {
	for name, test := range map[string]struct {
		want  poolspec.Quota
		limit Limit
		says  string // of a pool that stays plain
	}{
		"auto, no limit":         {want: poolspec.QuotaAuto},
		"auto, bytes":            {want: poolspec.QuotaAuto, limit: Limit{Bytes: mib}, says: "size 1Mi, 0 inodes"},
		"auto, inodes":           {want: poolspec.QuotaAuto, limit: Limit{Inodes: 1000}, says: "size 0, 1000 inodes"},
		"required, with a limit": {want: poolspec.QuotaRequired, limit: Limit{Inodes: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			onProject(t, func(t *testing.T, p pool) {
				limitProject(t, p, 42, test.limit)
				defer limitProject(t, p, 42, Limit{})
				for _, dir := range []string{".", disk.MetaDir, disk.StagingDir} { // as xfs_quota project -s does
					setProjectOf(t, p, dir, 42)
				}
				for range 2 {
					b, err := New(t.TempDir()).Detect(p, test.want, false)
					must(t, err)
					if test.says != "" {
						for _, part := range []string{
							"project 42", test.says, "outside that project",
							"quota: required",
						} {
							if b.Name != Plain || b.Changes != nil || !strings.Contains(b.Reason, part) {
								t.Errorf("%+v, want plain, and why with %q", b, part)
							}
						}
						if is := [2]uint32{projectIs(t, p, "."), projectIs(t, p, disk.StagingDir)}; is != [2]uint32{
							42,
							42,
						} {
							t.Errorf("csi/ and staging count to %v", is)
						}
						must(t, p.Mkdir(disk.StagingDir+"/v", 0o700)) // movable to csi/
						must(t, p.Rename(disk.StagingDir+"/v", "v"))
						must(t, p.Remove("v"))
						continue
					}
					if b.Name != Project || projectIs(t, p, ".") != 0 {
						t.Errorf("%+v, csi/ counts to %d", b, projectIs(t, p, "."))
					}
				}
			})
		})
	}
}

// TestVMEachProjectThatWasLeftIsNamed: each has a limit that no longer holds csi/.
func TestVMEachProjectThatWasLeftIsNamed(t *testing.T) {
	onProject(t, func(t *testing.T, p pool) {
		setProjectOf(t, p, ".", 42)
		setProjectOf(t, p, disk.TrashDir, 43)
		b, err := New(t.TempDir()).Detect(p, poolspec.QuotaAuto, false)
		must(t, err)
		said := strings.Join(b.Changes, "; ")
		if len(b.Changes) != 2 || !strings.Contains(said, "csi/. was taken out of project 42") ||
			!strings.Contains(said, "csi/.hpp/trash was taken out of project 43") {
			t.Errorf("%q", b.Changes)
		}
	})
}

func TestVMEnforce(t *testing.T) {
	onProject(t, func(t *testing.T, p pool) {
		b := detect(t, New(t.TempDir()), p)
		l := b.On(p)
		for _, dir := range []string{"v", "v/a", "v/a/b"} {
			must(t, p.Mkdir(dir, 0o700))
		}
		for _, file := range []string{"v/file", "v/a/b/file"} {
			must(t, p.WriteFile(file, []byte("1"), 0o400))
		}
		id, err := b.NewID(p, claimed)
		must(t, err)
		cursor, calls := &disk.Cursor{}, 0
		err = b.Enforce(t.Context(), p, Tree{"v", id, cursor}, func(context.Context) error {
			if calls++; calls == 3 {
				return syscall.EINTR
			}
			return nil
		})
		wants(t, err, syscall.EINTR)
		checkState(t, l, id, State{}) // its root does not count before the rest does
		for range 2 {
			must(t, b.Enforce(t.Context(), p, Tree{"v", id, cursor}, func(context.Context) error { return nil }))
			cursor = &disk.Cursor{}
		}
		must(t, l.Set("v", id, Limit{Bytes: mib}))
		checkState(t, l, id, State{ID: id, Limit: Limit{Bytes: mib}})
		if used, err := l.Usage([]ID{id}); err != nil || used[id].Inodes != 5 {
			t.Errorf("%+v, %v; want 5 inodes", used, err)
		}
		must(t, p.Rename("v/file", "v/a/moved"))
		checkElsewhere(t, p, b, id)
		remove(t, p, l, "v", id)
	})
}

// checkElsewhere enforces a tree that was copied with hard links to another volume, v.
func checkElsewhere(t *testing.T, p pool, b Backend, id ID) {
	t.Helper()
	must(t, p.Mkdir("copy", 0o700))
	must(t, os.Link(filepath.Join(p.dir, "v/a/moved"), filepath.Join(p.dir, "copy/linked")))
	tree := Tree{"copy", id + 100, &disk.Cursor{}}
	pass := func(context.Context) error { return nil }
	err := b.Enforce(t.Context(), p, tree, pass)
	if err == nil || !strings.Contains(err.Error(), "linked") || !strings.Contains(err.Error(), "hard links") {
		t.Errorf("error %v", err)
	}
	must(t, p.Remove("copy/linked"))
	must(t, b.Enforce(t.Context(), p, tree, pass))
	remove(t, p, b.On(p), "copy", tree.ID)
	_, err = p.Stat("v/a/moved")
	if errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
