// Package everynode makes volumes that are on every node: one directory on each, and one PersistentVolume without node
// affinity for all of them, so that each pod writes to the disk of its own node. It works as kubeboost's
// hostpath-multihost provisioner; managers on the nodes make and remove the directories.
package everynode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/rounds"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// Config is what a Provisioner is made of; all fields are required.
type Config struct {
	Client kubernetes.Interface
	// Volumes are the PersistentVolumes of the cluster; the caller starts the informer.
	Volumes cache.SharedIndexInformer
	// Provisioner is the name of the provisioner, as classes have it.
	Provisioner string
	// Base is where the volumes lie on every node: absolute and clean.
	Base string
	// Namespace is where provisioner and managers run.
	Namespace string
	// Managers is the name of the managers' DaemonSet, and of the ConfigMap with the nodes that have had one.
	Managers string
	// Port is where the managers listen.
	Port string
	// TokenFile has the token for the managers. It is read for each request, since the kubelet renews it.
	TokenFile string
	// GoneAfter is how long there is to be no Node object before a node is given up.
	GoneAfter time.Duration
	Recorder  record.EventRecorder
	Log       *slog.Logger
}

// Provisioner makes and removes the volumes of the cluster. Its methods may be called concurrently.
type Provisioner struct {
	Config
	changes  *rounds.Rounds
	absences absences
}

var (
	_ controller.Provisioner   = (*Provisioner)(nil)
	_ controller.Qualifier     = (*Provisioner)(nil)
	_ controller.DeletionGuard = (*Provisioner)(nil)
)

// New returns a provisioner.
func New(c Config) (*Provisioner, error) {
	words := []string{c.Provisioner, c.Namespace, c.Managers, c.Port, c.TokenFile}
	if c.Client == nil || c.Volumes == nil || slices.Contains(words, "") || c.GoneAfter <= 0 || c.Recorder == nil ||
		c.Log == nil {
		return nil, errors.New("provisioner for every node: a field of its Config is missing")
	}
	if !filepath.IsAbs(c.Base) || filepath.Clean(c.Base) != c.Base || c.Base == "/" {
		return nil, fmt.Errorf("directory of the volumes: %q: want a clean absolute path of its own", c.Base)
	}
	changes, err := rounds.On(c.Volumes)
	if err != nil {
		return nil, err
	}
	return &Provisioner{Config: c, changes: changes}, nil
}

// ShouldProvision leaves alone what a volume populator serves. (The library asks only about claims of classes that name
// this provisioner.)
func (p *Provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	return !hostpathpv.Populated(claim)
}

// Provision has the directory of a claim made on every node whose manager is ready, and gives the PersistentVolume for
// it. The other nodes make theirs as soon as their managers see the PersistentVolume; until then no pod starts there.
func (p *Provisioner) Provision(
	ctx context.Context, o controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	policy, err := supported(o.PVC, o.StorageClass, p.Provisioner)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := hostpathpv.Absent(ctx, p.Client, o.PVName); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	f, err := p.readFleet(ctx)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	ready, away := f.divide()
	if len(ready) == 0 {
		return nil, controller.ProvisioningFinished, fmt.Errorf("no node has a manager that is ready: see the pods of "+
			"DaemonSet %s/%s", p.Namespace, p.Managers)
	}
	path := wire.Path(p.Base, o.PVC, o.PVName)
	faults := forEachMember(ready,
		func(m member) error { return p.askManager(ctx, http.MethodPost, m, path, o.PVName) })
	if len(faults) > 0 {
		// Some have made it: were the claim deleted now, the library still asks until there is a PersistentVolume, and
		// with that the directories go.
		return nil, controller.ProvisioningInBackground, fmt.Errorf("make the directory: %w", summary(faults))
	}
	p.Log.InfoContext(ctx, "the directories of a volume are ready", logging.KeyPV, o.PVName, logging.KeyPath, path,
		logging.KeyClaim, o.PVC.Namespace+"/"+o.PVC.Name, logging.KeyCount, len(ready))
	if len(away) > 0 {
		p.Recorder.Eventf(o.PVC, corev1.EventTypeNormal, "NodesAway", "nodes without a manager that is ready make the "+
			"directory when they have one, and pods wait for it there: %s", listNodes(nodesOf(away)))
	}
	pv := hostpathpv.PersistentVolume(o, path, map[string]string{
		names.ProvisionedBy: p.Provisioner, names.EveryNodeIdentity(p.Provisioner): p.Provisioner,
		names.ReusePolicy(p.Provisioner): policy,
	})
	// Unlike with kubeboost's, the kubelet starts no pod before its node has the directory.
	is := corev1.HostPathDirectory
	pv.Spec.HostPath.Type = &is
	return pv, controller.ProvisioningFinished, nil
}

// maxNamed is how many nodes a message names; all would not fit a large cluster.
const maxNamed = 10

// listNodes names some nodes.
func listNodes(all []string) string {
	slices.Sort(all)
	if len(all) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), len(all)-maxNamed)
	}
	return strings.Join(all, ", ")
}

// summary is one error for those of several nodes.
func summary(faults map[string]error) error {
	var said []string
	for _, node := range slices.Sorted(maps.Keys(faults)) {
		if len(said) == maxNamed {
			said = append(said, fmt.Sprintf("and %d more nodes", len(faults)-maxNamed))
			break
		}
		said = append(said, fmt.Sprintf("node %s: %v", node, faults[node]))
	}
	return errors.New(strings.Join(said, "; "))
}
