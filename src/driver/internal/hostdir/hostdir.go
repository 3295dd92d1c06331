// Package hostdir looks at directories of the node that are in no pool, and may become volumes.
package hostdir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
)

// ErrRefused is for a directory that cannot become a volume, or not now.
var ErrRefused = errors.New("that directory cannot become a volume")

// Node is the node whose directories they are.
type Node struct {
	// Root is where its / is mounted.
	Root string
	// Kept are directories of which nothing is taken, beside those that every node has: the kubelet's, the driver's.
	Kept []string
}

// system are directories that keep a node running.
func system() []string {
	return []string{
		"/proc", "/sys", "/dev", "/run", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/root",
		"/var/log", "/var/run", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker",
		"/var/lib/etcd",
		"/var/lib/rancher/k3s/agent", "/var/lib/rancher/k3s/data", "/var/lib/rancher/k3s/server",
		"/var/lib/rancher/rke2", "/var/lib/k0s", "/var/lib/cni",
	}
}

// Check refuses a path of which nothing may be taken into a pool, whatever is there: a mistyped one must not take /etc.
// pools are the paths of all pools by name.
func (n Node) Check(pool, p string, pools map[string]string) error {
	const want = "want a clean absolute path of two directories or more, without links, such as " +
		"/opt/local-path-provisioner/pvc-1"
	deep := strings.Count(p, "/") >= 2 && !strings.ContainsRune(p, 0)
	if !deep || !path.IsAbs(p) || path.Clean(p) != p {
		return fmt.Errorf("%w: path: %q: %s", ErrRefused, p, want)
	}
	if err := n.checkKept(p); err != nil {
		return err
	}
	return n.checkPools(pool, p, pools)
}

// checkPools refuses what is in a pool, and what pools are in.
func (n Node) checkPools(pool, p string, pools map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		for _, is := range []string{pools[name], n.resolved(pools[name])} {
			csi := path.Join(is, "csi")
			switch {
			case mounts.Below(is, p):
				return fmt.Errorf("%w: path: pool %s is in %s", ErrRefused, name, p)
			case mounts.Below(p, csi):
				return fmt.Errorf("%w: path: %s is in pool %s already", ErrRefused, p, name)
			case name != pool && mounts.Below(p, is) && !mounts.Below(pools[pool], is):
				return fmt.Errorf("%w: path: %s is below the path of pool %s; take it into that", ErrRefused, p, name)
			}
		}
	}
	return nil
}

// checkKept refuses what keeps the node running.
func (n Node) checkKept(p string) error {
	for _, kept := range slices.Concat(system(), n.Kept) {
		for _, is := range []string{kept, n.resolved(kept)} {
			if mounts.Below(p, is) || mounts.Below(is, p) {
				return fmt.Errorf("%w: path: %s is in %s, or that is in it, which the node needs", ErrRefused, p, kept)
			}
		}
	}
	return nil
}

// resolved is where links lead to on the node; the path itself where that cannot be seen.
func (n Node) resolved(p string) string {
	fd, err := unix.Open(n.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return p
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written through it
	found, err := unix.Openat2(fd, strings.TrimPrefix(p, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return p
	}
	defer func() { _ = unix.Close(found) }()
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", found))
	below, err2 := filepath.Rel(n.Root, at)
	if err != nil || err2 != nil || strings.HasPrefix(below, "..") {
		return p
	}
	return path.Join("/", below)
}

// Measure walks a tree for a while, at a pace that leaves the disk to others.
func Measure(ctx context.Context, d disk.FS, limit time.Duration) (s Size, err error) {
	const filesPerSecond, atOnce = 50_000, 1_000
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pace, links := rate.NewLimiter(filesPerSecond, atOnce), map[uint64]bool{}
	var cursor disk.Cursor
	err = disk.Walk(ctx, d, ".", &cursor, func(f *os.File, _ bool) error {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return err
		}
		if s.Files++; st.Nlink < 2 || st.Mode&unix.S_IFMT == unix.S_IFDIR || !links[st.Ino] {
			s.Bytes += st.Blocks * 512
		}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			links[st.Ino] = true
		}
		return pace.Wait(ctx)
	})
	if err != nil && (ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported)) {
		s.Partial, err = true, nil
	}
	return s, err
}

// Size is what a tree has; Partial where there is more.
type Size struct {
	Files, Bytes int64
	Partial      bool
}
