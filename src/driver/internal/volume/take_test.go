package volume_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const oldPath = "/old/pvc-1"

func taking(path string) volume.TakeSpec {
	return volume.TakeSpec{
		ID: "pvc-1", Pool: "local", Path: path, Bytes: 64 * mebibyte, Enforce: nodeapi.EnforceNow,
		Claim: nodeapi.Claim{Namespace: "shop", Name: "data"},
	}
}

// withOld gives a disk with a directory of another provisioner.
func withOld(t *testing.T) *disktest.Disk {
	t.Helper()
	d := newDisk()
	d.AddDir(oldPath)
	old, err := d.OpenDir(oldPath)
	must(t, err)
	must(t, old.WriteFile("precious", []byte("kept"), 0o644), old.Sync("."), old.Close())
	return d
}

// placeOf is the one place that has the data of the old directory.
func (n *node) placeOf(t *testing.T, about string) (place string) {
	t.Helper()
	for _, p := range []string{oldPath, poolPath + "/csi/pvc-1"} {
		d, err := n.disk.OpenDir(p)
		if err != nil {
			continue
		}
		if data, err := d.ReadFile("precious"); err == nil && string(data) == "kept" {
			if place != "" {
				t.Errorf("%s: the data is at %s and at %s", about, place, p)
			}
			place = p
		}
		must(t, d.Close())
	}
	if place == "" {
		t.Errorf("%s: the data is nowhere", about)
	}
	return place
}

// halved reports whether a crash has cut a rename in half, so that both names are one directory: filesystems with a
// journal do not leave that, and nobody can say which of the names to remove.
func (n *node) halved(t *testing.T) bool {
	t.Helper()
	top, err := n.disk.OpenDir("/")
	must(t, err)
	a, errA := top.Stat(strings.TrimPrefix(oldPath, "/"))
	b, errB := top.Stat(strings.TrimPrefix(poolPath+"/csi/pvc-1", "/"))
	must(t, top.Close())
	return errA == nil && errB == nil && a.Same(b)
}

func takeOld(ctx context.Context, n *node) error {
	_, err := n.TakeDirectory(ctx, taking(oldPath))
	return err
}

func returnTaken(ctx context.Context, n *node) error {
	_, err := n.ReturnDirectory(ctx, "pvc-1")
	return err
}

// TestTakeAndReturnCrash crashes both at every step. Whatever is left, the data is in one of the two places, the same
// request ends what was begun, and so does the other one.
func TestTakeAndReturnCrash(t *testing.T) {
	for name, op := range map[string]struct {
		run, back func(context.Context, *node) error
		from, to  string
	}{
		"take":   {takeOld, returnTaken, oldPath, poolPath + "/csi/pvc-1"},
		"return": {returnTaken, takeOld, poolPath + "/csi/pvc-1", oldPath},
	} {
		t.Run(name, func(t *testing.T) {
			for step := 1; ; step++ {
				n := warm(t, withOld(t))
				if name == "return" {
					must(t, takeOld(t.Context(), n))
				}
				n.disk.CrashAt(step)
				err := op.run(t.Context(), n)
				done := !n.disk.Crashed()
				if done && err != nil {
					t.Fatalf("it failed without a crash: %v", err)
				}
				for _, a := range aftermaths() {
					about := fmt.Sprintf("crash at step %d (%s), %s", step, last(n.disk), a.name)
					ways := map[*func(context.Context, *node) error]string{&op.run: op.to, &op.back: op.from}
					for again, want := range ways {
						after := warm(t, a.of(n.disk))
						if after.halved(t) {
							continue
						}
						if at := after.placeOf(t, about); done && at != op.to {
							t.Errorf("%s: it is at %s", about, at)
						}
						if err := (*again)(t.Context(), after); err != nil {
							t.Errorf("%s: then: %v", about, err)
						}
						if at := after.placeOf(t, about+", then"); at != want {
							t.Errorf("%s: then it is at %s, want %s", about, at, want)
						}
						after.consistent(t, about)
					}
				}
				if done {
					atLeast(t, step-1, 6)
					return
				}
			}
		})
	}
}

// TestTakeFails lets each step fail once: the same request works then.
func TestTakeFails(t *testing.T) {
	for step := 1; ; step++ {
		n := warm(t, withOld(t))
		n.disk.FailAt(step, unix.EIO)
		first := takeOld(t.Context(), n)
		n.disk.FailAt(0, nil)
		if first != nil {
			n.placeOf(t, "failed")
			must(t, takeOld(t.Context(), n))
		}
		if at := n.placeOf(t, "taken"); at != poolPath+"/csi/pvc-1" {
			t.Errorf("step %d: it is at %s", step, at)
		}
		n.consistent(t, fmt.Sprintf("step %d failed: %v", step, first))
		if first == nil {
			atLeast(t, step-1, 6)
			return
		}
	}
}

// oldAt makes a directory of another provisioner on a real disk.
func oldAt(t *testing.T, dir string) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "sub", "precious"), make([]byte, mebibyte), 0o600), os.Chmod(dir, 0o700))
	return dir
}

// TestTakeOnARealDisk takes a directory, publishes it, and returns it as it was.
func TestTakeOnARealDisk(t *testing.T) {
	root := t.TempDir()
	old := oldAt(t, filepath.Join(root, "old", "pvc-1"))
	n := startAt(t, root)
	must(t, openPool(t.Context(), n))
	found, err := n.LookDirectory(t.Context(), "local", old)
	if err != nil || !found.Exists || !found.SameMount || found.Files != 2 || found.Bytes < mebibyte ||
		found.UsedAt != "" || len(found.Problems) > 0 || found.Enforceable {
		t.Errorf("%+v, %v", found, err)
	}
	s := taking(old)
	s.Group = new(int64(4711))
	taken, err := n.TakeDirectory(t.Context(), s)
	if err != nil || taken.Bytes != s.Bytes || taken.Enforcing || taken.Reason == "" || taken.Path != old {
		t.Errorf("%+v, %v", taken, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(n.path("pvc-1"), &st); err != nil || st.Gid != 4711 || st.Mode&0o7777 != 0o2770 {
		t.Errorf("the root has group %d and mode %o, %v", st.Gid, st.Mode, err)
	}
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	_, err = n.ReturnDirectory(t.Context(), "pvc-1")
	wants(t, err, volume.ErrPublished, target)
	must(t, n.Unpublish(t.Context(), "pvc-1", target))
	back, err := n.ReturnDirectory(t.Context(), "pvc-1")
	if err != nil || !back.Done || back.Path != old {
		t.Errorf("%+v, %v", back, err)
	}
	if err := unix.Stat(old, &st); err != nil || st.Gid == 4711 || st.Mode&0o7777 != 0o700 {
		t.Errorf("it came back with group %d and mode %o, %v", st.Gid, st.Mode, err)
	}
	if back, err = n.ReturnDirectory(t.Context(), "pvc-1"); err != nil || !back.Done || back.Path != "" {
		t.Errorf("returned already: %+v, %v", back, err)
	}
	n.consistent(t, "returned")
	s.Bytes = mebibyte / 2 // nothing holds it to a size that is below its use
	if taken, err = n.TakeDirectory(t.Context(), s); err != nil || taken.Bytes != s.Bytes || taken.Enforcing {
		t.Errorf("%+v, %v", taken, err)
	}
	n.consistent(t, "taken below its use")
}

// TestTakeIsRefused: what is refused stays where it is.
func TestTakeIsRefused(t *testing.T) {
	root := t.TempDir()
	old := oldAt(t, filepath.Join(root, "old", "pvc-1"))
	away := oldAt(t, filepath.Join(mounttest.Disk(t, "ext4", 16<<20), "old", "pvc-1"))
	must(t, os.Symlink(old, filepath.Join(root, "link")), os.Mkdir(filepath.Join(root, "seen"), 0o755))
	n := startAt(t, root)
	must(t, openPool(t.Context(), n))
	mustCreate(t, n, "pvc-2")
	for path, want := range map[string]string{
		"/etc/kubernetes": "/etc", "/var/lib": "/var/lib/", "/opt": "two directories",
		"relative/path": "clean absolute",
		root:            "pool local is in", filepath.Join(root, "pool"): "pool local is in",
		n.path("pvc-2"):   "already",
		old + "/../pvc-1": "clean absolute", filepath.Join(root, "link"): "without links", away: "not on the mount",
		filepath.Join(root, "nothing"): "there is no directory", "/var/lib/kubelet/pods/1/volumes": "kubelet",
	} {
		found, err := n.LookDirectory(t.Context(), "local", path)
		if err != nil || !strings.Contains(strings.Join(found.Problems, "; "), want) {
			t.Errorf("%s: %q, %v; want %q", path, found.Problems, err, want)
		}
		s := taking(path)
		if _, err := n.TakeDirectory(t.Context(), s); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
	must(t, unix.Mount(filepath.Join(old, "sub"), filepath.Join(root, "seen"), "", unix.MS_BIND, ""))
	defer func() { _ = unix.Unmount(filepath.Join(root, "seen"), unix.MNT_DETACH) }()
	found, err := n.LookDirectory(t.Context(), "local", old)
	if err != nil || !strings.HasPrefix(found.UsedAt, filepath.Join(root, "seen")) {
		t.Errorf("%+v, %v", found, err)
	}
	_, err = n.TakeDirectory(t.Context(), taking(old))
	wants(t, err, volume.ErrPublished, filepath.Join(root, "seen"))
	must(t, unix.Unmount(filepath.Join(root, "seen"), 0))
	must(t, os.Mkdir(n.path("pvc-1"), 0o700))
	_, err = n.TakeDirectory(t.Context(), taking(old))
	wants(t, err, volume.ErrExists)
	if _, err := os.Stat(filepath.Join(old, "sub", "precious")); err != nil {
		t.Error(err)
	}
	must(t, os.Remove(n.path("pvc-1")))
	_, err = n.ReturnDirectory(t.Context(), "pvc-2")
	wants(t, err, volume.ErrUnsupported)
}

// TestTakeFromBelowAMount: what somebody sees from above is not taken from below them. A directory that something is
// mounted at is not taken either.
func TestTakeFromBelowAMount(t *testing.T) {
	root := t.TempDir()
	old := oldAt(t, filepath.Join(root, "old", "pvc-1"))
	must(t, os.Mkdir(filepath.Join(root, "seen"), 0o755))
	n := startAt(t, root)
	must(t, openPool(t.Context(), n))
	// A container with a hostPath volume of the parent.
	container := exec.CommandContext(t.Context(), "sh", "-c", `mount --bind "$1" "$2" && echo mounted && exec cat`,
		"sh", filepath.Dir(old), filepath.Join(root, "seen"))
	container.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, errIn := container.StdinPipe()
	out, errOut := container.StdoutPipe()
	must(t, errIn, errOut, container.Start())
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "mounted\n" {
		t.Fatalf("%q, %v", said, err)
	}
	found, err := n.LookDirectory(t.Context(), "local", old)
	if err != nil || !strings.Contains(strings.Join(found.Problems, "; "), "mounted at "+filepath.Join(root, "seen")) {
		t.Errorf("%+v, %v", found, err)
	}
	_, err = n.TakeDirectory(t.Context(), taking(old))
	wants(t, err, volume.ErrPublished, filepath.Join(root, "seen"))
	must(t, in.Close(), container.Wait(), unix.Mount(old, old, "", unix.MS_BIND, ""))
	found, err = n.LookDirectory(t.Context(), "local", old)
	if err != nil || found.MountInside != old || len(found.Problems) == 0 {
		t.Errorf("%+v, %v", found, err)
	}
	_, err = n.TakeDirectory(t.Context(), taking(old))
	if err == nil {
		t.Error("a mount point was taken")
	}
	must(t, unix.Unmount(old, 0))
	_, err = n.TakeDirectory(t.Context(), taking(old))
	must(t, err)
}

// TestTakeEnforced: on XFS and ext4 no pod gets a volume before all of it counts, and what is returned counts to
// nothing. On btrfs it is taken without enforcement, and says so.
func TestTakeEnforced(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, d enforcedDisk, root string) {
		old := oldAt(t, filepath.Join(root, "old", "pvc-1"))
		n := startAt(t, root, required)
		must(t, openPool(t.Context(), n))
		if small := taking(old); d.enforcement != quota.Strict {
			small.Bytes = mebibyte / 2
			_, err := n.TakeDirectory(t.Context(), small)
			wants(t, err, volume.ErrBelowUse, "512Ki")
		}
		taken, err := n.TakeDirectory(t.Context(), taking(old))
		if d.enforcement == quota.Strict {
			if err != nil || taken.Enforcing || !strings.Contains(taken.Reason, "subvolume") {
				t.Errorf("%+v, %v", taken, err)
			}
			must(t, returnTaken(t.Context(), n))
			return
		}
		if err != nil || !taken.Enforcing {
			t.Fatalf("%+v, %v", taken, err)
		}
		wants(t, n.Publish(t.Context(), publish("pvc-1", target)), volume.ErrEnforcing)
		n = startAt(t, root, required) // after a restart it goes on
		must(t, openPool(t.Context(), n))
		wants(t, n.Publish(t.Context(), publish("pvc-1", target)), volume.ErrEnforcing)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); n.EnforceTaken(ctx) }()
		defer func() { stop(); <-ended }()
		for range attempts {
			if taken, err = n.TakeDirectory(t.Context(), taking(old)); err == nil && !taken.Enforcing {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil || taken.Enforcing || taken.Enforcement != string(d.enforcement) {
			t.Fatalf("%+v, %v", taken, err)
		}
		n.consistent(t, "taken")
		must(t, n.Publish(t.Context(), publish("pvc-1", target)), n.Unpublish(t.Context(), "pvc-1", target))
		if err := withoutResource(func() error { return write(n.path("pvc-1", "b"), 70) }); !full(err) {
			t.Errorf("64 MiB take 71: %v", err)
		}
		var back nodeapi.ReturnedDirectory
		for range attempts {
			back, err = n.ReturnDirectory(t.Context(), "pvc-1")
			if err != nil && !errors.Is(err, volume.ErrBusy) || back.Done {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil || !back.Done {
			t.Fatalf("%+v, %v", back, err)
		}
		n.unlimited(t)
		must(t, os.Rename(filepath.Join(old, "sub", "precious"), filepath.Join(old, "precious")),
			write(filepath.Join(old, "c"), 70))
	})
}
