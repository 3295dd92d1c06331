// Package networkfs makes directories on storage that all nodes have mounted at one path into PersistentVolumes with a
// hostPath source, and removes them again, as torchbox's hostpath-provisioner does. It is the part of the mode shared
// that sig-storage-lib-external-provisioner calls.
package networkfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// Config is what a Provisioner is made of; all fields are required but Guard.
type Config struct {
	Client  kubernetes.Interface
	Classes storagelisters.StorageClassLister
	Volumes corelisters.PersistentVolumeLister
	// Name is the provisioner's in StorageClasses. ID tells apart whose PersistentVolumes are whose.
	Name, ID string
	// Path is where the storage, or a directory of it, is mounted: absolute and clean. All volumes lie there or below.
	Path string
	// Guard looks at each directory before anything is made or removed in it; nil takes any.
	Guard *hostpathpv.Guard
	Log   *slog.Logger
}

// Provisioner makes and removes volumes. Its methods may be called concurrently, also by several processes: the
// filesystem decides who makes or removes a directory, the API whose PersistentVolume counts.
type Provisioner struct {
	Config
	setxattr func(fd int, name string, value []byte, flags int) error
}

var (
	_ controller.Provisioner   = (*Provisioner)(nil)
	_ controller.Qualifier     = (*Provisioner)(nil)
	_ controller.DeletionGuard = (*Provisioner)(nil)
)

// New returns a provisioner.
func New(c Config) (*Provisioner, error) {
	if c.Client == nil || c.Classes == nil || c.Volumes == nil || c.Name == "" || c.ID == "" || c.Log == nil {
		return nil, errors.New("provisioner for a network filesystem: a field of its Config is missing")
	}
	if !filepath.IsAbs(c.Path) || filepath.Clean(c.Path) != c.Path {
		return nil, fmt.Errorf("path of the storage: %q: want a clean absolute path", c.Path)
	}
	return &Provisioner{Config: c, setxattr: unix.Fsetxattr}, nil
}

// ShouldProvision leaves alone what a volume populator serves. (The library asks only about claims of classes that name
// this provisioner.)
func (p *Provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	return !hostpathpv.Populated(claim)
}

// Provision makes the directory of a claim, or takes the one that an earlier attempt has made, and gives the
// PersistentVolume for it.
func (p *Provisioner) Provision(
	ctx context.Context, o controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	pv, err := p.provision(ctx, o)
	return pv, controller.ProvisioningFinished, err
}

func (p *Provisioner) provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, error) {
	class, err := parse(o.StorageClass)
	if err != nil {
		return nil, err
	}
	if err := hostpathpv.Possible(o.PVC, o.StorageClass); err != nil {
		return nil, err
	}
	if err := hostpathpv.Absent(ctx, p.Client, o.PVName); err != nil {
		return nil, err
	}
	dir, err := p.openDirectory(ctx, class.pvDir, true)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := p.recognize(dir, class.pvDir, o.PVName); err != nil {
		return nil, err
	}
	if err := hostpathpv.MakeDirectory(dir, o.PVName); err != nil {
		return nil, fmt.Errorf("make the directory of the volume: %w", err)
	}
	if class.cephFSQuota {
		size := o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
		if err := p.setQuota(dir, o.PVName, size.Value()); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(class.pvDir, o.PVName)
	p.Log.InfoContext(ctx, "the directory of a volume is ready",
		logging.KeyPV, o.PVName, logging.KeyPath, path, logging.KeyClaim, o.PVC.Namespace+"/"+o.PVC.Name)
	pv := hostpathpv.PersistentVolume(o, path, map[string]string{
		names.ProvisionedBy: p.Name, names.NetworkFSIdentity: p.ID, names.NetworkFSDirectory: class.pvDir,
	})
	// A node without the storage refuses a pod, instead of giving it an empty directory of its own disk.
	is := corev1.HostPathDirectory
	pv.Spec.HostPath.Type = &is
	return pv, nil
}

// setQuota makes CephFS keep a directory to a size in bytes (https://docs.ceph.com/en/latest/cephfs/quota/). On failure
// the directory goes again: nobody has it yet.
func (p *Provisioner) setQuota(dir *hostpathpv.Directory, name string, size int64) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was open for reading
	err = p.setxattr(int(f.Fd()), "ceph.quota.max_bytes", strconv.AppendInt(nil, size, 10), 0)
	if err != nil {
		return errors.Join(fmt.Errorf("set the quota of the volume on CephFS (ceph.quota.max_bytes; the class says "+
			"%s: true, and the client needs the capability p): %w", cephFSQuotaKey, err), dir.Remove(name))
	}
	return nil
}

// Current fails when this process has to start anew to see the storage that is mounted on the node.
func (p *Provisioner) Current() error {
	if p.Guard == nil {
		return nil
	}
	classes, err := p.Classes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, class := range classes {
		if class.Provisioner != p.Name {
			continue
		}
		if parameters, err := parse(class); err == nil {
			if err := p.Guard.Current(parameters.pvDir); err != nil {
				return err
			}
		}
	}
	return nil
}
