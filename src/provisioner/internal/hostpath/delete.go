package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/removetree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// condemned begins the name that a directory has while it is removed, so that half of one is never taken for a
// volume. No volume's name begins with a dot.
const condemned = ".deleted-"

// ShouldDelete reports whether a PersistentVolume is this node's: made by this provisioner, or
// by kubevirt's, for this node.
func (p *Provisioner) ShouldDelete(_ context.Context, pv *corev1.PersistentVolume) bool {
	return pv.Annotations[names.LegacyIdentity] == names.LegacyProvisioner &&
		pv.Annotations[names.ProvisionedBy] == names.LegacyProvisioner &&
		pv.Annotations[names.ProvisionOnNode] == p.Node
}

// Delete removes the directory of a PersistentVolume. It may be repeated, whatever an earlier attempt has done; a
// directory that is gone is no error. An error leaves the PersistentVolume, and Delete is called again.
func (p *Provisioner) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	if !p.ShouldDelete(ctx, pv) {
		return fmt.Errorf("PersistentVolume %s is not one of this provisioner's for node %s", pv.Name, p.Node)
	}
	name, err := p.ownDirectory(pv)
	if err != nil {
		return err
	}
	dir, err := os.OpenRoot(p.Directory)
	if err != nil {
		return fmt.Errorf("open the directory of the volumes on node %s: %w", p.Node, err)
	}
	defer func() { _ = dir.Close() }() // nothing was written through it
	found, err := remove(ctx, dir, name, condemned+pv.Name)
	if err != nil {
		return fmt.Errorf("remove the volume's directory on node %s: %w", p.Node, err)
	}
	path := filepath.Join(p.Directory, name)
	if !found {
		p.Log.InfoContext(ctx, "the directory of a deleted volume was gone already",
			logging.KeyPV, pv.Name, logging.KeyPath, path)
		return nil
	}
	p.Log.InfoContext(ctx, "removed the directory of a deleted volume", logging.KeyPV, pv.Name, logging.KeyPath, path)
	return nil
}

// ownDirectory gives the name of the volume's directory, if its path is one that this provisioner could have made.
func (p *Provisioner) ownDirectory(pv *corev1.PersistentVolume) (string, error) {
	if pv.Spec.HostPath == nil {
		return "", fmt.Errorf("PersistentVolume %s has no hostPath; nothing is removed", pv.Name)
	}
	path := pv.Spec.HostPath.Path
	if filepath.Clean(path) != path || filepath.Dir(path) != p.Directory {
		return "", fmt.Errorf("path %q is not directly in %s on node %s, where this provisioner's volumes are; nothing is "+
			"removed: remove the directory by hand and delete the PersistentVolume", path, p.Directory, p.Node)
	}
	name := filepath.Base(path)
	if name != pv.Name && !strings.HasSuffix(name, "-"+pv.Name) {
		return "", fmt.Errorf("path %q does not end in the name of PersistentVolume %s; nothing is removed: "+
			"remove the directory by hand and delete the PersistentVolume", path, pv.Name)
	}
	return name, nil
}

// remove takes a directory away under its last name; found is false when it had gone already. What an
// earlier attempt has left under the last name goes first: a pod that still knew the path may have had an
// empty directory made there since.
func remove(ctx context.Context, dir *os.Root, name, last string) (found bool, err error) {
	top, err := dir.Open(".")
	if err != nil {
		return false, err
	}
	defer func() { _ = top.Close() }() // it was open for reading
	if _, err := dir.Lstat(last); err == nil {
		if err := removetree.Remove(ctx, top, last, nil); err != nil {
			return false, err
		}
	}
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, top.Sync()
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, fmt.Errorf("%s is not a directory; see what it is, and move it away", filepath.Join(dir.Name(), name))
	}
	if err := dir.Rename(name, last); err != nil {
		return false, err
	}
	if err := top.Sync(); err != nil {
		return false, err
	}
	if err := removetree.Remove(ctx, top, last, nil); err != nil {
		return false, err
	}
	return true, top.Sync()
}
