package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// makeAsked makes the directory of a claim that has no PersistentVolume yet. When it has one, pods may use the
// directory, or it was removed.
func (m *Manager) makeAsked(r *http.Request) error {
	pv := r.PostFormValue(wire.VolumeField)
	name, err := wire.Name(m.Base, r.PostFormValue(wire.PathField), pv)
	if err != nil {
		return refusal{http.StatusBadRequest, err}
	}
	unlock, err := m.locks.lock(r.Context(), pv)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = m.Client.CoreV1().PersistentVolumes().Get(r.Context(), pv, metav1.GetOptions{})
	switch {
	case err == nil:
		return refusal{http.StatusConflict, fmt.Errorf("there is a PersistentVolume %s already; nothing is made", pv)}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for the PersistentVolume: %w", err)
	}
	return m.makeDirectory(r.Context(), name)
}

func (m *Manager) makeDirectory(ctx context.Context, name string) error {
	dir, err := m.openBase()
	if err != nil {
		return err
	}
	defer dir.Close()
	hostpathpv.WarnOfOthers(ctx, m.Log, dir.File)
	return hostpathpv.MakeDirectory(dir, name)
}

// removeAsked removes the directory of a PersistentVolume that asks for it, whatever the request says.
func (m *Manager) removeAsked(r *http.Request) error {
	path, named := r.URL.Query().Get(wire.PathField), r.URL.Query().Get(wire.VolumeField)
	name, err := wire.Name(m.Base, path, named)
	if err != nil {
		return refusal{http.StatusBadRequest, err}
	}
	unlock, err := m.locks.lock(r.Context(), named)
	if err != nil {
		return err
	}
	defer unlock()
	// Live: an administrator may have changed the reclaim policy a moment ago, to save the data.
	pv, err := m.Client.CoreV1().PersistentVolumes().Get(r.Context(), named, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return refusal{http.StatusConflict, fmt.Errorf("there is no PersistentVolume %q; nothing is removed", named)}
	}
	if err != nil {
		return fmt.Errorf("read the PersistentVolume: %w", err)
	}
	if err := m.removable(pv, path); err != nil {
		return refusal{http.StatusConflict, fmt.Errorf("%w; nothing is removed", err)}
	}
	dir, err := m.openBase()
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := hostpathpv.RemoveDirectory(r.Context(), m.Log, dir, name, pv.Name); err != nil {
		return err
	}
	return m.removed(r.Context(), name)
}

// removed says, after the last directory, that this node has none: should it go away now, it makes those of volumes
// that come meanwhile when it is back.
func (m *Manager) removed(ctx context.Context, name string) error {
	all, err := m.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	kept, _ := m.directories(all)
	if slices.ContainsFunc(kept, func(other string) bool { return other != name }) {
		return nil
	}
	return m.recordUse(ctx, false)
}

// removable refuses what no PersistentVolume asks to have removed.
func (m *Manager) removable(pv *corev1.PersistentVolume, path string) error {
	switch {
	case !wire.Ours(pv, m.Provisioner):
		return fmt.Errorf("PersistentVolume %s is not one of provisioner %s", pv.Name, m.Provisioner)
	case pv.Spec.HostPath.Path != path:
		return fmt.Errorf("PersistentVolume %s is at %s, not at %s", pv.Name, pv.Spec.HostPath.Path, path)
	case !hostpathpv.Removable(pv):
		return fmt.Errorf("PersistentVolume %s does not ask that this directory be removed: it is %s, with policy %s",
			pv.Name, pv.Status.Phase, pv.Spec.PersistentVolumeReclaimPolicy)
	}
	return nil
}

// makeMissing makes what is missing here: the directories of volumes that were made while this node was away.
func (m *Manager) makeMissing(ctx context.Context) (done bool) {
	all, err := m.volumes.List(labels.Everything())
	if err != nil {
		return false // a list of what is in memory
	}
	done = true
	used, wanted := false, false
	for _, pv := range all {
		if !wire.Ours(pv, m.Provisioner) {
			continue
		}
		if !wire.Wanted(pv) {
			wanted = wanted || m.keeps(pv)
			continue
		}
		name, err := wire.Name(m.Base, pv.Spec.HostPath.Path, pv.Name)
		if err != nil {
			continue // of another base; its deletion says so
		}
		wanted = true
		if err := m.keepOne(ctx, pv, name); err == nil {
			used = true
		} else if ctx.Err() == nil {
			done = false
			m.reportMissing(ctx, pv, err)
		}
	}
	return m.reportUse(ctx, used, wanted) && done
}

// reportMissing says that this node has no directory of a volume.
func (m *Manager) reportMissing(ctx context.Context, pv *corev1.PersistentVolume, err error) {
	m.Log.WarnContext(ctx, "cannot make a directory; it is tried again", logging.KeyPV, pv.Name, logging.KeyError, err)
	m.Recorder.Eventf(pv, corev1.EventTypeWarning, "DirectoryMissing",
		"node %s cannot make the directory of the volume, and pods wait for it there: %v", m.Node, err)
}

// reportUse says after a round whether this node has directories. Where it lacks all that are wanted, it has
// them elsewhere.
func (m *Manager) reportUse(ctx context.Context, used, wanted bool) (done bool) {
	err := m.recordUse(ctx, used || wanted && m.used.Load())
	if err != nil && ctx.Err() == nil {
		m.Log.WarnContext(ctx, "cannot say whether this node has directories; it is tried again", logging.KeyError, err)
	}
	return err == nil
}

// keepOne looks for the directory of one volume, and makes it where it is missing.
func (m *Manager) keepOne(ctx context.Context, pv *corev1.PersistentVolume, name string) error {
	unlock, err := m.locks.lock(ctx, pv.Name)
	if err != nil {
		return err
	}
	defer unlock()
	dir, err := m.openBase()
	if err != nil {
		return err
	}
	defer dir.Close()
	if there, err := present(dir, name, hasType(pv)); there || err != nil {
		return err
	}
	// Live: what is watched may be older than a removal here.
	now, err := m.Client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && (now.UID != pv.UID || !wire.Wanted(now))) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the PersistentVolume: %w", err)
	}
	if err := hostpathpv.MakeDirectory(dir, name); err != nil {
		return err
	}
	m.Log.InfoContext(ctx, "made the directory of a volume that this node lacked", logging.KeyPV, pv.Name,
		logging.KeyPath, pv.Spec.HostPath.Path)
	return nil
}

// present reports whether there is nothing to do about a directory.
func present(dir *hostpathpv.Directory, name string, typed bool) (bool, error) {
	info, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%s is not a directory; see what it is, and move it away",
			filepath.Join(dir.Name(), name))
	}
	return typed || !untouched(dir, name, info), nil
}

// hasType reports whether the kubelet starts no pod before the directory is there. Volumes that kubeboost's provisioner
// made are not: for them container runtimes make directories too, which only root can write to.
func hasType(pv *corev1.PersistentVolume) bool {
	kind := pv.Spec.HostPath.Type
	return kind != nil && *kind == corev1.HostPathDirectory
}

// untouched reports whether a directory is as a container runtime makes it, and empty.
func untouched(dir *hostpathpv.Directory, name string, info fs.FileInfo) bool {
	const runtimes fs.FileMode = 0o755
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 || stat.Gid != 0 || info.Mode() != fs.ModeDir|runtimes {
		return false
	}
	f, err := dir.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was open for reading
	_, err = f.Readdirnames(1)
	return err != nil
}

// locks hold the volumes that something is done about.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits until nothing is done about the volume, or ctx ends.
func (l *locks) lock(ctx context.Context, volume string) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		if err := ctx.Err(); err != nil {
			return nil, err // nobody waits any more, and what was to be done may be wrong by now
		}
		l.mu.Lock()
		other, busy := l.held[volume]
		if !busy {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[volume] = mine
			l.mu.Unlock()
			return func() { l.release(volume) }, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *locks) release(volume string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[volume])
	delete(l.held, volume)
}
