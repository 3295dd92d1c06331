package networkfs

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// ShouldDelete reports whether a PersistentVolume is this instance's: made under its name, by itself or by torchbox's
// provisioner with the same identity.
func (p *Provisioner) ShouldDelete(_ context.Context, pv *corev1.PersistentVolume) bool {
	return pv.Annotations[names.ProvisionedBy] == p.Name && pv.Annotations[names.NetworkFSIdentity] == p.ID
}

// Delete removes the directory of a PersistentVolume. It may be repeated, whatever an earlier attempt has done; a
// directory that is gone is no error. An error leaves the PersistentVolume, and Delete is called again.
func (p *Provisioner) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	if !p.ShouldDelete(ctx, pv) {
		return fmt.Errorf("PersistentVolume %s is not one of provisioner %s with identity %s", pv.Name, p.Name, p.ID)
	}
	pvDir, err := p.directoryOf(pv)
	if err != nil {
		return err
	}
	if _, err := hostpathpv.Current(ctx, p.Client, pv); err != nil {
		return err
	}
	if err := hostpathpv.Alone(pv, p.Volumes); err != nil {
		return err
	}
	dir, err := p.openDirectory(ctx, pvDir, false)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := p.recognize(dir, pvDir, pv.Name, hostpathpv.Condemned+pv.Name); err != nil {
		return err
	}
	if err := hostpathpv.RemoveDirectory(ctx, p.Log, dir, pv.Name, pv.Name); err != nil {
		return fmt.Errorf("remove the volume's directory: %w", err)
	}
	return nil
}

// directoryOf gives the directory that the volume's lies in, if this provisioner could have made it there: the one that
// it wrote on the PersistentVolume, or for one of torchbox's that of a class.
func (p *Provisioner) directoryOf(pv *corev1.PersistentVolume) (string, error) {
	if pv.Spec.HostPath == nil {
		return "", fmt.Errorf("PersistentVolume %s has no hostPath; nothing is removed", pv.Name)
	}
	path := pv.Spec.HostPath.Path
	dir := filepath.Dir(path)
	if filepath.Clean(path) != path || filepath.Base(path) != pv.Name || !filepath.IsAbs(path) || dir == "/" {
		return "", fmt.Errorf("path %q is not a directory with the name of PersistentVolume %s; nothing is removed: "+
			"remove the directory by hand and delete the PersistentVolume", path, pv.Name)
	}
	if pv.Annotations[names.NetworkFSDirectory] == dir {
		return dir, nil
	}
	classes, err := p.Classes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	for _, class := range classes {
		if class.Provisioner != p.Name {
			continue
		}
		if parameters, err := parse(class); err == nil && parameters.pvDir == dir {
			return dir, nil
		}
	}
	return "", fmt.Errorf("path %q is in %s, which is the %s of no StorageClass of provisioner %s; nothing is "+
		"removed: make a class with it, or remove the directory by hand and delete the PersistentVolume", path, dir,
		pvDirKey, p.Name)
}
