package shared

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/provisioner/internal/volume"
)

// directoryMode is that of a pvDir which is not there yet.
const directoryMode = 0o755

// open opens a directory on the storage. It does so for each volume: a descriptor would keep the storage busy, and
// know nothing of what is mounted later.
func (p *Provisioner) open(path string) (*os.Root, error) {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory of the volumes: %w", err)
	}
	if err := p.check(dir, path); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

func (p *Provisioner) check(dir *os.Root, path string) error {
	if p.Guard == nil {
		return nil
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was open for reading
	return p.Guard.Check(f, path)
}

// make is open, and makes what is missing below the place where the storage is mounted.
func (p *Provisioner) make(path string) (*os.Root, error) {
	at := path
	for isMissing(at) {
		at = filepath.Dir(at)
	}
	dir, err := p.open(at)
	if err != nil && at != path {
		return nil, fmt.Errorf("%s is not there, and %w", path, err)
	}
	for err == nil && at != path {
		name, _, _ := strings.Cut(strings.TrimPrefix(path, strings.TrimSuffix(at, "/")+"/"), "/")
		err = errors.Join(makeIn(dir, name), dir.Close())
		if err == nil {
			at = filepath.Join(at, name)
			dir, err = p.open(at)
		}
	}
	return dir, err
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// makeIn makes a directory durably, or takes the one that is there.
func makeIn(dir *os.Root, name string) error {
	err := dir.Mkdir(name, directoryMode)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = volume.Sync(dir)
	}
	if err != nil {
		return fmt.Errorf("make the directory of the volumes: %w", err)
	}
	return nil
}

// recognize refuses a directory that has none of the volumes which the cluster has in it: then it is not the storage
// that they are on. (Nothing on the storage says which it is: the predecessor wrote nothing there, and so do we not.)
// One of these names in it is enough.
func (p *Provisioner) recognize(dir *os.Root, pvDir string, more ...string) error {
	all, err := p.Volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	expected := more
	for _, pv := range all {
		if p.kept(pv) && filepath.Dir(pv.Spec.HostPath.Path) == pvDir {
			expected = append(expected, filepath.Base(pv.Spec.HostPath.Path))
		}
	}
	for _, name := range expected {
		if _, err := dir.Lstat(name); err == nil {
			return nil
		}
	}
	lost := expected[len(more):]
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%s has none of the %d volumes that the cluster has there (such as %s), so it is not their "+
		"storage, and nothing is made or removed: mount the right one, or delete their PersistentVolumes", pvDir, len(lost),
		lost[0])
}

// kept reports whether a PersistentVolume is this provisioner's and its directory has to be there.
func (p *Provisioner) kept(pv *corev1.PersistentVolume) bool {
	if pv.Spec.HostPath == nil || pv.Annotations[names.ProvisionedBy] != p.Name {
		return false
	}
	going := pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
	return !going || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
}
