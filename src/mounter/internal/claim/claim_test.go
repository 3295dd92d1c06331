package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// node is a host's directory of a pool and the same one in two pods, the mounter's and another, that share it as
// mountPropagation Bidirectional and HostToContainer do.
type node struct {
	root             string
	host, pod, other string // the pool's path
}

func newNode(tb testing.TB) node {
	tb.Helper()
	n := node{root: tb.TempDir()}
	mounttest.Tmpfs(tb, n.root, "")
	must(tb, unix.Mount("", n.root, "", unix.MS_PRIVATE, ""))
	n.host, n.pod, n.other = n.dir(tb, "host/pool"), n.dir(tb, "pod"), n.dir(tb, "other")
	must(tb, unix.Mount(filepath.Dir(n.host), filepath.Dir(n.host), "", unix.MS_BIND, ""))
	must(tb, unix.Mount("", filepath.Dir(n.host), "", unix.MS_SHARED, ""))
	must(tb, unix.Mount(n.host, n.pod, "", unix.MS_BIND, ""))
	must(tb, unix.Mount(n.host, n.other, "", unix.MS_BIND, ""))
	must(tb, unix.Mount("", n.other, "", unix.MS_SLAVE, ""))
	return n
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (n node) dir(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(n.root, name)
	must(tb, os.MkdirAll(path, 0o755))
	return path
}

// filesystem is a claim that is a directory of the node's own disk, mounted for the pod as a container runtime does it.
func (n node) filesystem(tb testing.TB, name string) Source {
	tb.Helper()
	volume, source := n.dir(tb, "volumes/"+name), n.dir(tb, "source-"+name)
	must(tb, os.WriteFile(filepath.Join(volume, "name"), []byte(name), 0o600))
	must(tb, unix.Mount(volume, source, "", unix.MS_BIND, ""))
	must(tb, unix.Mount("", source, "", unix.MS_PRIVATE, ""))
	return Source{Directory: source}
}

func (n node) claim(from Source) *Claim { return New(n.pod, from, slog.New(slog.DiscardHandler)) }

// ensures mounts the claim, if that is wanted now, and looks at it from the host and from the other pod.
func (n node) ensures(tb testing.TB, c *Claim, done bool) {
	tb.Helper()
	did, err := c.Ensure(tb.Context())
	if err != nil || did != done {
		tb.Fatalf("mounted %v, want %v: %v", did, done, err)
	}
	want := mounted(tb, filepath.Join(n.pod, "csi"))
	for _, seen := range []string{n.host, n.other} {
		if is := mounted(tb, filepath.Join(seen, "csi")); !sameMount(is, want) {
			tb.Errorf("%s has %+v, the pod %+v", seen, is, want)
		}
	}
}

// refuses wants an error that says something, and nothing of the claim mounted.
func refuses(tb testing.TB, c *Claim, want error, says ...string) {
	tb.Helper()
	before := mounted(tb, c.csi)
	done, err := c.Ensure(tb.Context())
	if done || err == nil || (want != nil && !errors.Is(err, want)) {
		tb.Fatalf("mounted %v, error %v; want %v", done, err, want)
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			tb.Errorf("the error does not say %q: %v", part, err)
		}
	}
	if after := mounted(tb, c.csi); after != before {
		tb.Errorf("the place was %+v and is %+v", before, after)
	}
}

func mounted(tb testing.TB, path string) bindmount.Mount {
	tb.Helper()
	is, err := bindmount.New(filepath.Dir(path)).Inspect(path)
	must(tb, err)
	return is
}

// count is how many mounts there are at a path.
func count(tb testing.TB, path string) int {
	tb.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(tb, err)
	return strings.Count(string(table), " "+path+" ")
}

func TestFilesystemClaim(t *testing.T) {
	n := newNode(t)
	from := n.filesystem(t, "ours")
	c := n.claim(from)
	n.ensures(t, c, true)
	info, err := os.Stat(filepath.Join(n.root, "volumes/ours"))
	must(t, err)
	if data, err := os.ReadFile(filepath.Join(n.host, "csi/name")); string(data) != "ours" ||
		info.Mode().Perm() != 0o755 {
		t.Errorf("on the host: %q, %v; the volume has mode %v", data, err, info.Mode())
	}
	n.ensures(t, c, false)
	n.ensures(t, n.claim(from), false) // after a restart
	if got := count(t, filepath.Join(n.host, "csi")); got != 1 {
		t.Errorf("%d mounts on the host", got)
	}
	must(t, unix.Unmount(filepath.Join(n.host, "csi"), 0)) // an admin
	if is := mounted(t, filepath.Join(n.pod, "csi")); is.Mounted {
		t.Fatalf("still in the pod: %+v", is)
	}
	n.ensures(t, c, true)
	below := filepath.Join(n.root, "below")
	must(t, os.Mkdir(below, 0o700))
	must(t, unix.Mount(filepath.Dir(n.host), below, "", unix.MS_BIND, ""))
	if info, err := os.Stat(filepath.Join(below, "pool/csi")); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("the mount point: %v, %v", info, err)
	}
}

// TestClaimOfManyNodes: each mounts it, and none takes it away while one of them has a volume on it.
func TestClaimOfManyNodes(t *testing.T) {
	a, b := newNode(t), newNode(t)
	from := a.filesystem(t, "shared")
	must(t, os.Remove(filepath.Join(from.Directory, "name")))
	onA, onB := a.claim(from), b.claim(from)
	a.ensures(t, onA, true)
	b.ensures(t, onB, true)
	volume := filepath.Join(a.host, "csi/pvc-1")
	must(t, os.Mkdir(volume, 0o700))
	if _, err := os.Stat(filepath.Join(b.host, "csi/pvc-1")); err != nil {
		t.Errorf("the other node does not see it: %v", err)
	}
	for _, c := range []*Claim{onA, onB} {
		if released, err := c.Release(); err != nil || released {
			t.Errorf("released %v below a volume, %v", released, err)
		}
	}
	must(t, os.Remove(volume))
	if released, err := onB.Release(); err != nil || !released {
		t.Errorf("released %v, %v", released, err)
	}
	a.ensures(t, onA, false)
	b.ensures(t, b.claim(from), true)
}

// TestMountedByAnother is content with what kubevirt's mounter did, on the host.
func TestMountedByAnother(t *testing.T) {
	n := newNode(t)
	from := n.filesystem(t, "ours")
	csi := n.dir(t, "host/pool/csi")
	must(t, unix.Mount(from.Directory, csi, "", unix.MS_BIND, ""))
	n.ensures(t, n.claim(from), false)
}

func TestForeignMount(t *testing.T) {
	n := newNode(t)
	csi := n.dir(t, "host/pool/csi")
	must(t, unix.Mount("other-disk", csi, "tmpfs", 0, ""))
	c := n.claim(n.filesystem(t, "ours"))
	refuses(t, c, ErrForeign, "tmpfs other-disk", "unmount csi/")
	if released, err := c.Release(); released || err != nil {
		t.Errorf("released %v, %v", released, err)
	}
	must(t, unix.Unmount(csi, 0))
	n.ensures(t, c, true)
	// Another directory of the same filesystem is another claim.
	refuses(t, n.claim(n.filesystem(t, "another")), ErrForeign, "/volumes/ours")
	must(t, unix.Mount("other-disk", csi, "tmpfs", 0, "")) // over ours
	refuses(t, c, ErrForeign, "tmpfs other-disk")
	if released, err := c.Release(); released || err != nil {
		t.Errorf("released %v, %v", released, err)
	}
}

func TestShadowedFiles(t *testing.T) {
	n := newNode(t)
	n.dir(t, "host/pool/csi/pvc-1")
	c := n.claim(n.filesystem(t, "ours"))
	refuses(t, c, ErrShadowed, "pvc-1", "without pvcTemplate")
	for i := range 8 {
		n.dir(t, fmt.Sprintf("host/pool/csi/pvc-%d", i))
	}
	refuses(t, c, ErrShadowed, ", …")
	must(t, os.RemoveAll(filepath.Join(n.host, "csi")))
	n.dir(t, "host/pool/csi")
	n.ensures(t, c, true)
}

func TestNoClaim(t *testing.T) {
	n := newNode(t)
	refuses(t, n.claim(Source{Directory: n.dir(t, "source")}), nil, "nothing is mounted at")
	refuses(t, n.claim(Source{Directory: filepath.Join(n.root, "missing")}), os.ErrNotExist, "open the claim")
	removed := n.filesystem(t, "removed")
	c := n.claim(removed)
	n.ensures(t, c, true)
	must(t, os.RemoveAll(filepath.Join(n.root, "volumes/removed")))
	if _, err := c.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("the claim's directory was removed: %v", err)
	}
	link := newNode(t)
	must(t, os.Symlink(link.root, filepath.Join(link.host, "csi")))
	if _, err := link.claim(link.filesystem(t, "ours")).Ensure(t.Context()); !errors.Is(err, unix.ELOOP) {
		t.Errorf("csi is a link: %v", err)
	}
}

func TestRelease(t *testing.T) {
	tests := map[string]struct {
		names    []string
		released bool
	}{
		"new":           {nil, true},
		"used before":   {[]string{".hpp/volumes/", ".hpp/staging/", ".hpp/trash/.spare/", "lost+found/"}, true},
		"volume":        {[]string{"pvc-1/"}, false},
		"only a record": {[]string{".hpp/volumes/pvc-1.json"}, false},
		"half made":     {[]string{".hpp/volumes/.pvc-1.json.tmp", ".hpp/staging/pvc-1/"}, false},
		"in the trash":  {[]string{".hpp/trash/.spare/", ".hpp/trash/pvc-1.1/data/"}, false},
		"used by nodes": {[]string{
			".hpp/volumes/", ".hpp/staging/a/", ".hpp/trash/a/.spare/", ".hpp/staging/b/", ".hpp/trash/b/.spare/",
		}, true},
		"half made by a node":    {[]string{".hpp/staging/a/.pvc-1.json.tmp", ".hpp/staging/a/pvc-1/"}, false},
		"in the trash of a node": {[]string{".hpp/trash/a/.spare/", ".hpp/trash/a/pvc-1.1/data/"}, false},
		"kubevirt's":             {[]string{"snapshots/"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			from := n.filesystem(t, "ours")
			must(t, os.Remove(filepath.Join(from.Directory, "name")))
			for _, name := range test.names {
				path := filepath.Join(from.Directory, name)
				if strings.HasSuffix(name, "/") {
					must(t, os.MkdirAll(path, 0o700))
				} else {
					must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)))
				}
			}
			c := n.claim(from)
			n.ensures(t, c, true)
			released, err := c.Release()
			if err != nil || released != test.released {
				t.Errorf("released %v, want %v: %v", released, test.released, err)
			}
			for _, seen := range []string{n.host, n.pod, n.other} {
				if is := mounted(t, filepath.Join(seen, "csi")); is.Mounted == test.released {
					t.Errorf("%s: %+v", seen, is)
				}
			}
			n.ensures(t, n.claim(from), test.released)
		})
	}
}

// TestReleaseWhileItIsUsed: what a process works on is not taken away.
func TestReleaseWhileItIsUsed(t *testing.T) {
	n := newNode(t)
	from := n.filesystem(t, "ours")
	must(t, os.Remove(filepath.Join(from.Directory, "name")))
	c := n.claim(from)
	n.ensures(t, c, true)
	used, err := os.Open(filepath.Join(n.other, "csi"))
	must(t, err)
	if _, err := c.Release(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("released: %v", err)
	}
	n.ensures(t, c, false)
	must(t, used.Close())
	if released, err := c.Release(); err != nil || !released {
		t.Errorf("released %v, %v", released, err)
	}
}

// TestReleaseLeavesWhatIsBelow: only the last mount was looked at.
func TestReleaseLeavesWhatIsBelow(t *testing.T) {
	n := newNode(t)
	from := n.filesystem(t, "ours")
	must(t, os.Remove(filepath.Join(from.Directory, "name")))
	csi := n.dir(t, "host/pool/csi")
	below := n.filesystem(t, "below")
	must(t, unix.Mount(below.Directory, csi, "", unix.MS_BIND, ""))
	must(t, unix.Mount(from.Directory, csi, "", unix.MS_BIND, ""))
	c := n.claim(from)
	n.ensures(t, c, false)
	if released, err := c.Release(); err != nil || !released {
		t.Errorf("released %v, %v", released, err)
	}
	if name, err := os.ReadFile(filepath.Join(csi, "name")); string(name) != "below" {
		t.Errorf("below is %q, %v", name, err)
	}
}

// run runs a program of the machine.
