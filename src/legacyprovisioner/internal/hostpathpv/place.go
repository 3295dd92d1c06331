package hostpathpv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Directory is an open directory that volumes lie in. It is opened for each volume: a descriptor would keep a disk
// busy, and know nothing of what is mounted later.
type Directory struct {
	*os.Root
	// File is the same directory, and has its name for messages.
	File *os.File
}

// Open opens the directory at a path, which an administrator has chosen, as the links on the way are his.
func Open(path string) (*Directory, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return rootOf(f)
}

// OpenIn opens a directory that is open already, maybe with O_PATH only, for what is to be done in it.
func OpenIn(dir *os.File) (*Directory, error) {
	f, err := openat.Open(dir, ".", unix.O_DIRECTORY, openat.Beneath)
	if err != nil {
		return nil, err
	}
	return rootOf(f)
}

func rootOf(f *os.File) (*Directory, error) {
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Directory{Root: root, File: f}, nil
}

// Name is the path of the directory.
func (d *Directory) Name() string { return d.File.Name() }

// Close closes it. Nothing was written through it, so its error says nothing.
func (d *Directory) Close() {
	_ = d.Root.Close()
	_ = d.File.Close()
}

// Apart refuses a path that is the directory of a volume, or lies in one: pods are root in their volumes and may put a
// link in its place at any moment, which kubelet and container runtime follow on the node.
func Apart(path string, all []*corev1.PersistentVolume) error {
	const refused = "and what is in a volume its pods can exchange for a link to anything on the node; nothing is " +
		"made or removed there: choose a directory that is in no volume"
	if named := poolspec.VolumeIn(path); named != "" {
		return fmt.Errorf("%s is or lies in a directory that is named like a volume's (%s), %s", path, named, refused)
	}
	for _, pv := range all {
		if containsPath(pv, path) {
			return fmt.Errorf("%s is or lies in the directory of PersistentVolume %s, %s", path, pv.Name, refused)
		}
	}
	return nil
}

// containsPath reports whether a path is or lies in the directory of a PersistentVolume. (Whoever has one of the node's
// root has the node.)
func containsPath(pv *corev1.PersistentVolume, path string) bool {
	if csi := pv.Spec.CSI; csi != nil { // as the driver's pools have it
		return strings.Contains(path+"/", "/csi/"+csi.VolumeHandle+"/")
	}
	directory := directoryOf(pv)
	return filepath.IsAbs(directory) && directory != "/" && mounts.Below(path, directory)
}

// directoryOf is the directory that a PersistentVolume names on its nodes, "" for none.
func directoryOf(pv *corev1.PersistentVolume) string {
	switch source := pv.Spec.PersistentVolumeSource; {
	case source.HostPath != nil:
		return filepath.Clean(source.HostPath.Path)
	case source.Local != nil:
		return filepath.Clean(source.Local.Path)
	default:
		return ""
	}
}

// Alone fails where another PersistentVolume has its directory at or in that of one which is to be removed.
func Alone(pv *corev1.PersistentVolume, volumes corelisters.PersistentVolumeLister) error {
	all, err := volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, other := range all {
		if at := directoryOf(other); other.Name != pv.Name && mounts.Below(at, directoryOf(pv)) {
			return fmt.Errorf("PersistentVolume %s has the directory %s, which would be removed with %s; nothing is "+
				"removed: delete PersistentVolume %s if nobody needs its data, or set the "+
				"persistentVolumeReclaimPolicy of %s to Retain", other.Name, at, directoryOf(pv), other.Name, pv.Name)
		}
	}
	return nil
}

// WarnOfOthers logs that users other than root and this process's may exchange what is in a directory.
func WarnOfOthers(ctx context.Context, log *slog.Logger, dir *os.File) {
	const others = 0o022
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil {
		return // whoever uses the directory next says why
	}
	if st.Mode&others != 0 && st.Mode&unix.S_ISVTX == 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		log.WarnContext(ctx, "other users may exchange what is in a directory above volumes, and volumes with it",
			logging.KeyPath, dir.Name(), logging.KeyReason, fmt.Sprintf("mode %04o, owner %d", st.Mode&0o7777, st.Uid))
	}
}
