// Package hostpath makes directories on this node into PersistentVolumes with a hostPath source, and removes them
// again. It is the part of the legacy provisioner that sig-storage-lib-external-provisioner calls.
package hostpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/util"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/placement"
)

// Config is what a Provisioner is made of; Client, Classes, Volumes, Node, Directory and Log are required.
type Config struct {
	Client  kubernetes.Interface
	Classes storagelisters.StorageClassLister
	Volumes corelisters.PersistentVolumeLister
	// Node is the name of this node.
	Node string
	// Directory is where the volumes lie, the same path here and on the host: absolute and clean.
	Directory string
	// NamingPrefix puts the claim's name before the directory's.
	NamingPrefix bool
	// Guard looks at the directory before anything is made or removed in it; nil takes any.
	Guard *hostpathpv.Guard
	// WholeFilesystem makes a PersistentVolume say the size of the filesystem instead of what the claim asks for.
	WholeFilesystem bool
	Log             *slog.Logger
}

// Provisioner makes and removes the volumes of one node. Its methods may be called concurrently.
type Provisioner struct {
	Config
}

var (
	_ controller.Provisioner   = (*Provisioner)(nil)
	_ controller.Qualifier     = (*Provisioner)(nil)
	_ controller.DeletionGuard = (*Provisioner)(nil)
)

// New returns a provisioner.
func New(c Config) (*Provisioner, error) {
	if c.Client == nil || c.Classes == nil || c.Volumes == nil || c.Node == "" || c.Log == nil {
		return nil, errors.New("hostPath provisioner: a field of its Config is missing")
	}
	if !filepath.IsAbs(c.Directory) || filepath.Clean(c.Directory) != c.Directory || c.Directory == "/" {
		return nil, fmt.Errorf("directory of the volumes: %q: want a clean absolute path of its own", c.Directory)
	}
	return &Provisioner{Config: c}, nil
}

// ShouldProvision reports whether the claim's volume is to be made on this node. It says yes for a claim that names
// this node and whose class is not known here (yet): the caller then finds no class either, and asks again.
func (p *Provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	class, err := p.Classes.Get(util.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return p.Node == cmp.Or(claim.Annotations[names.ProvisionOnNode], claim.Annotations[placement.SelectedNode])
	}
	return placement.Decide(claim, class, p.Node).Here()
}

// Provision makes the directory of a claim, or takes the one that an earlier attempt has made, and
// gives the PersistentVolume for it.
func (p *Provisioner) Provision(
	ctx context.Context, o controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if err := possible(o.PVC, o.StorageClass); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := hostpathpv.Absent(ctx, p.Client, o.PVName); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	hostname, err := p.hostname(ctx)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	name := p.directoryName(o)
	capacity, err := p.prepare(ctx, name, o.PVC.Spec.Resources.Requests[corev1.ResourceStorage])
	if err != nil {
		return nil, whereNext(o.PVC), err
	}
	path := filepath.Join(p.Directory, name)
	p.Log.InfoContext(ctx, "the directory of a volume is ready",
		logging.KeyPV, o.PVName, logging.KeyPath, path, logging.KeyClaim, o.PVC.Namespace+"/"+o.PVC.Name)
	pv := hostpathpv.PersistentVolume(o, path, map[string]string{
		names.LegacyIdentity: names.LegacyProvisioner, names.ProvisionOnNode: p.Node,
		names.ProvisionedBy: names.LegacyProvisioner,
	})
	pv.Spec.Capacity[corev1.ResourceStorage] = capacity
	// Where the disk is not mounted, a pod waits for it, instead of getting an empty directory on the node's own.
	is := corev1.HostPathDirectory
	pv.Spec.HostPath.Type = &is
	pv.Spec.NodeAffinity = affinity(hostname)
	return pv, controller.ProvisioningFinished, nil
}

// whereNext is what follows when this node has no room: the scheduler may try another one,
// unless the claim's user chose this.
func whereNext(claim *corev1.PersistentVolumeClaim) controller.ProvisioningState {
	if claim.Annotations[names.ProvisionOnNode] != "" {
		return controller.ProvisioningFinished
	}
	return controller.ProvisioningReschedule
}

// hostname is the label by which the scheduler finds this node again. It usually is the node's name, but need not be.
func (p *Provisioner) hostname(ctx context.Context) (string, error) {
	node, err := p.Client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the labels of node %s: %w", p.Node, err)
	}
	hostname := node.Labels[corev1.LabelHostname]
	if hostname == "" {
		return "", fmt.Errorf("node %s has no label %s, and without one no pod could be bound to a volume on it; "+
			"label the node", p.Node, corev1.LabelHostname)
	}
	return hostname, nil
}

// affinity ties a PersistentVolume to the node with a hostname label.
func affinity(hostname string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname}},
		}}},
	}}
}
