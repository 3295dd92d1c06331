//go:build vm

package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// TestVMCopyInAnotherPool: two pools on one filesystem, and a volume that was copied from one into the other, record and all.
func TestVMCopyInAnotherPool(t *testing.T) {
	for _, disk := range []string{"xfs", "ext4"} {
		t.Run(disk, func(t *testing.T) {
			copiedOnDisk(t, onVMDisk(t, disk, "prjquota").root, func(_, to string) {
				if err := os.Mkdir(to, 0o777); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestVMPutBack: a directory that was copied back under its name counts as a whole once it is published.
func TestVMPutBack(t *testing.T) {
	for _, disk := range []string{"xfs", "ext4"} {
		t.Run(disk, func(t *testing.T) {
			d := onVMDisk(t, disk, "prjquota")
			s := spec("pvc-1")
			s.Bytes = 32 * mib
			v, err := d.start(t, poolspec.QuotaRequired).Create(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(d.root, "pool", "csi", v.ID)
			copyBack(t, dir)

			m := d.start(t, poolspec.QuotaRequired) // recovery alone counts nothing
			if s := checked(t, m.set); s.Refused > 0 {
				t.Errorf("%+v", s)
			}
			meanwhile := &during{Context: t.Context(), do: func() { // the pool is recovered, which must not wait
				d.enforcementOff(t)
				if s := checked(t, m.set); !s.Present || s.Refused > 0 || s.Enforcement != "cooperative" {
					t.Errorf("in the middle of it: %+v", s)
				}
			}}
			if err := m.Manager.Publish(meanwhile, volume.PublishRequest{ID: v.ID, Target: target}); err != nil {
				t.Fatal(err)
			}
			if !meanwhile.done || !m.events.tell("QuotaEnabled", "project") {
				t.Errorf("the pool was not recovered meanwhile: %v", m.events.told)
			}
			counted(t, d, dir, v)
			if told := strings.Join(m.cluster.told, "; "); strings.Contains(told, "VolumeOverLimit") {
				t.Errorf("the claim was told %q", told)
			}
			if err := m.Unpublish(t.Context(), v.ID, target); err != nil {
				t.Error(err)
			}

			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			copyBack(t, dir)
			if err := write(t, filepath.Join(dir, "large"), 40); err != nil {
				t.Fatal(err)
			}
			if err := m.Publish(t.Context(), volume.PublishRequest{ID: v.ID, Target: target}); err != nil {
				t.Fatal(err)
			}
			if told := strings.Join(m.cluster.told, "; "); !strings.Contains(told, "VolumeOverLimit") {
				t.Errorf("the claim was told %q", told)
			}
			if err := withoutResource(func() error { return write(t, filepath.Join(dir, "more"), 1) }); !full(err) {
				t.Errorf("one more MiB in a volume over its limit: %v", err)
			}
			if err := os.Remove(filepath.Join(dir, "large")); err != nil {
				t.Error(err)
			}
			if err := errors.Join(m.Unpublish(t.Context(), v.ID, target), m.Delete(t.Context(), v.ID)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestVMPutBackWithLinks: a copy made of hard links, as by cp -al or rsync --link-dest, does not take the files of the volume that they are in.
func TestVMPutBackWithLinks(t *testing.T) {
	for _, disk := range []string{"xfs", "ext4"} {
		t.Run(disk, func(t *testing.T) {
			d := onVMDisk(t, disk, "prjquota")
			m := d.start(t, poolspec.QuotaRequired)
			var made []volume.Volume
			for _, id := range []string{"pvc-1", "pvc-2"} {
				s := spec(id)
				s.Bytes = 32 * mib
				v, err := m.Create(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				made = append(made, v)
			}
			csi := filepath.Join(d.root, "pool", "csi")
			live, dir := filepath.Join(csi, "pvc-1", "file"), filepath.Join(csi, "pvc-2")
			err := errors.Join(write(t, live, 4), os.RemoveAll(dir), os.Mkdir(dir, 0o777), os.Link(live, filepath.Join(dir, "file")))
			if err != nil {
				t.Fatal(err)
			}
			err = m.Publish(t.Context(), volume.PublishRequest{ID: "pvc-2", Target: target})
			wants(t, err, volume.ErrNotCounted, "csi/pvc-2", "file", "hard links")
			if got := accounts(t, d.root)[made[0].ProjectID]; got.BytesUsed < 4*mib || got.InodesUsed != 2 {
				t.Errorf("the volume that the file is in: %+v", got)
			}
			if err := errors.Join(os.Remove(live), m.Publish(t.Context(), volume.PublishRequest{ID: "pvc-2", Target: target})); err != nil {
				t.Errorf("now it is this one's alone: %v", err)
			}
			if got := accounts(t, d.root)[made[1].ProjectID]; got.BytesUsed < 4*mib || got.InodesUsed != 2 {
				t.Errorf("then: %+v", got)
			}
		})
	}
}

// during does something once, when a walk asks whether to go on.
type during struct {
	context.Context
	do   func()
	done bool
}

func (d *during) Err() error {
	if !d.done {
		d.done = true
		d.do()
	}
	return d.Context.Err()
}

// copyBack puts a tree in the place of a volume's directory, as cp -a leaves it: 10 MiB in files that count nowhere, and what cannot count.
func copyBack(t *testing.T, dir string) {
	t.Helper()
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir+"/a/b/c", 0o755), os.Chmod(dir, 0o777),
		write(t, dir+"/top", 4), write(t, dir+"/a/b/c/deep", 6), os.Chmod(dir+"/a/b/c/deep", 0),
		os.Link(dir+"/top", dir+"/a/hard"), os.Symlink("top", dir+"/symbolic"), unix.Mkfifo(dir+"/a/fifo", 0o600),
		unix.Mknod(dir+"/device", unix.S_IFBLK|0o600, int(unix.Mkdev(250, 250))))
	if err != nil {
		t.Fatal(err)
	}
}

// counted looks at the projects of a copy that was published.
func counted(t *testing.T, d vmDisk, dir string, v volume.Volume) {
	t.Helper()
	for name, inherits := range map[string]bool{"": true, "/a": true, "/a/b/c": true, "/top": false, "/a/b/c/deep": false} {
		f, err := os.Open(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		id, inherit, err := projectquota.ProjectID(f)
		_ = f.Close()
		if err != nil || id != v.ProjectID || inherit != inherits {
			t.Errorf("%s%s is of project %d (%v), %v; want %d", v.ID, name, id, inherit, err, v.ProjectID)
		}
	}
	if got := accounts(t, d.root)[v.ProjectID]; got.BytesUsed < 10*mib || got.BytesUsed > 11*mib || got.InodesUsed != 6 {
		t.Errorf("%+v; want 10 MiB in four directories and two files", got)
	}
	if err := errors.Join(os.Rename(dir+"/top", dir+"/a/b/top"), os.Rename(dir+"/a/b/c", dir+"/c"), os.Link(dir+"/a/hard", dir+"/again")); err != nil {
		t.Errorf("renames and links inside: %v", err)
	}
	stuck(t, dir)
}

// stuck shows what docs/explanation/enforcement.md says of links and special files, which no call ties.
func stuck(t *testing.T, dir string) {
	t.Helper()
	for name, to := range map[string]string{"/symbolic": "/a/symbolic", "/a/fifo": "/fifo", "/device": "/a/device"} {
		if err := os.Rename(dir+name, dir+to); !errors.Is(err, unix.EXDEV) {
			t.Errorf("move %s: %v; the kernel allows that now: say so in docs/explanation/enforcement.md", name, err)
		}
	}
}
