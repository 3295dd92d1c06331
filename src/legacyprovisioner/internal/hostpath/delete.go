package hostpath

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// volumes begins the name of each PersistentVolume that is made for a claim; the claim's UID follows.
const volumes = "pvc-"

// ShouldDelete reports whether a PersistentVolume is this node's: made by this provisioner, or
// by kubevirt's, for this node.
func (p *Provisioner) ShouldDelete(_ context.Context, pv *corev1.PersistentVolume) bool {
	return p.isOwn(pv)
}

func (p *Provisioner) isOwn(pv *corev1.PersistentVolume) bool {
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
	if _, err := hostpathpv.Current(ctx, p.Client, pv); err != nil {
		return err
	}
	if err := hostpathpv.Alone(pv, p.Volumes); err != nil {
		return err
	}
	dir, err := p.openDirectory(name, hostpathpv.Condemned+pv.Name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := hostpathpv.RemoveDirectory(ctx, p.Log, dir, name, pv.Name); err != nil {
		return fmt.Errorf("remove the volume's directory on node %s: %w", p.Node, err)
	}
	return nil
}

// ownDirectory gives the name of the volume's directory, if its path is one that this provisioner could have made.
func (p *Provisioner) ownDirectory(pv *corev1.PersistentVolume) (string, error) {
	if pv.Spec.HostPath == nil {
		return "", fmt.Errorf("PersistentVolume %s has no hostPath; nothing is removed", pv.Name)
	}
	path := pv.Spec.HostPath.Path
	if filepath.Clean(path) != path || filepath.Dir(path) != p.Directory {
		return "", fmt.Errorf("path %q is not directly in %s on node %s, where this provisioner's volumes are; "+
			"nothing is removed: remove the directory by hand and delete the PersistentVolume", path, p.Directory,
			p.Node)
	}
	// No directory is that of two volumes: a claim may be named anything, but a UID has no "pvc-" in it.
	name := filepath.Base(path)
	at := strings.LastIndex(name, volumes)
	if at < 0 || at > 0 && name[at-1] != '-' || name[0] == '.' || name[at:] != pv.Name {
		return "", fmt.Errorf("path %q does not end in the name of PersistentVolume %s; nothing is removed: "+
			"remove the directory by hand and delete the PersistentVolume", path, pv.Name)
	}
	return name, nil
}
