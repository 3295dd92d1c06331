package kube

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// Indices of what is kept.
const (
	byHandle = "handle" // PersistentVolumes by volumeHandle
	byNode   = "node"   // pods
)

// What is kept of objects. Those of another driver, and claims that have a volume, are names alone.
type (
	volume struct {
		metav1.ObjectMeta
		is *nodeapi.PersistentVolume
	}

	csiNode struct {
		metav1.ObjectMeta
		ours bool // the kubelet knows the driver there
	}

	class struct {
		metav1.ObjectMeta
		ours bool
		pool string // the parameter storagePool
	}

	claim struct {
		metav1.ObjectMeta
		waits *waiting
	}

	waiting struct {
		class string
		bytes int64
		since time.Time
	}

	pod struct {
		metav1.ObjectMeta
		node       string
		conditions []corev1.PodCondition // of pools
	}
)

// strip drops of an object what the controller does not ask for, which is nearly all.
func (c *Cluster) strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.PersistentVolume:
		v := &volume{ObjectMeta: stripMeta(&o.ObjectMeta)}
		if persistentvolume.IsOf(o, c.DriverName) {
			v.is = new(persistentvolume.Describe(o, c.DriverName, c.TopologyKey))
		}
		return v, nil
	case *storagev1.CSINode:
		ours := func(d storagev1.CSINodeDriver) bool { return d.Name == c.DriverName }
		return &csiNode{stripMeta(&o.ObjectMeta), slices.ContainsFunc(o.Spec.Drivers, ours)}, nil
	case *storagev1.StorageClass:
		pool := o.Parameters[names.StoragePoolParameter]
		return &class{stripMeta(&o.ObjectMeta), o.Provisioner == c.DriverName, pool}, nil
	case *corev1.PersistentVolumeClaim:
		return stripClaim(o), nil
	case *corev1.Pod:
		return stripPod(o), nil
	case *metav1.PartialObjectMetadata:
		node := &metav1.PartialObjectMetadata{ObjectMeta: stripMeta(&o.ObjectMeta)}
		node.Labels = maps.Clone(o.Labels)
		maps.DeleteFunc(node.Labels, func(key, _ string) bool { return !slices.Contains(c.NodeLabels, key) })
		return node, nil
	default:
		return object, nil // was here before
	}
}

func stripMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func stripClaim(o *corev1.PersistentVolumeClaim) *claim {
	is := &claim{ObjectMeta: stripMeta(&o.ObjectMeta)}
	if o.Status.Phase == corev1.ClaimPending && o.Spec.VolumeName == "" && o.DeletionTimestamp == nil &&
		o.Spec.StorageClassName != nil {
		request := o.Spec.Resources.Requests[corev1.ResourceStorage]
		is.waits = &waiting{*o.Spec.StorageClassName, request.Value(), o.CreationTimestamp.Time}
	}
	return is
}

func handles(object any) ([]string, error) {
	if v, ok := object.(*volume); ok && v.is != nil && v.is.Handle != "" {
		return []string{v.is.Handle}, nil
	}
	return nil, nil
}

func podNodes(object any) ([]string, error) {
	if p, ok := object.(*pod); ok && p.DeletionTimestamp == nil {
		return []string{p.node}, nil
	}
	return nil, nil
}
