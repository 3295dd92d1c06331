package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// Moves are what a move of a volume reads and writes in the API, with its journal in a ConfigMap of the driver's
// namespace.
type Moves struct {
	*Cluster
	Name string
}

// Load gives the journal, and its version.
func (m Moves) Load(ctx context.Context) (entries map[string]string, version string, err error) {
	return m.loadConfigMap(ctx, m.Name)
}

// Store writes an entry into the journal of a version, or with nil removes it. It fails where another replica was
// first.
func (m Moves) Store(ctx context.Context, version, key string, entry *string) error {
	return writeConfigMap(ctx, m.Cluster, m.Name, version, map[string]*string{key: entry})
}

// PV gives a PersistentVolume by its name, nil where there is none. One of another driver is an error.
func (m Moves) PV(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	pv, err := m.api.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("%w: get PersistentVolume %s: %w", nodeapi.ErrClusterUnknown, name, err)
	case !persistentvolume.IsOf(pv, m.DriverName):
		return nil, fmt.Errorf("%w: PersistentVolume %s is none of driver %s", nodeapi.ErrNamed, name, m.DriverName)
	}
	return pv, nil
}

// MakePV makes a PersistentVolume, unless there is one of its name.
func (m Moves) MakePV(ctx context.Context, pv *corev1.PersistentVolume) error {
	if !persistentvolume.IsOf(pv, m.DriverName) {
		return fmt.Errorf("%w: PersistentVolume %s would be none of driver %s", nodeapi.ErrNamed, pv.Name, m.DriverName)
	}
	_, err := m.api.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{FieldManager: manager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

func (m Moves) exchange() persistentvolume.Exchange {
	return persistentvolume.Exchange{Volumes: m.api.CoreV1().PersistentVolumes(), As: manager}
}

// RemovePV deletes a PersistentVolume, and nothing but that one, without waiting for its claim. Its reclaim policy has
// to be Retain.
func (m Moves) RemovePV(ctx context.Context, pv *corev1.PersistentVolume) error {
	return m.exchange().Remove(ctx, pv)
}

// SetPolicy changes the reclaim policy of a PersistentVolume.
func (m Moves) SetPolicy(
	ctx context.Context, pv *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy,
) error {
	_, err := m.exchange().SetPolicy(ctx, pv, policy)
	return err
}

// TouchClaim has Kubernetes look at a claim again: a new PersistentVolume does not.
func (m Moves) TouchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	is := nodeapi.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	claims := m.api.CoreV1().PersistentVolumeClaims(claim.Namespace)
	return m.exchange().Touch(ctx, claims, is, names.MovedTo(m.DriverName), node)
}
