package kube

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// byHandle is the index of the PersistentVolumes by volumeHandle.
const byHandle = "handle"

// What the informers get, and what they keep of it.
type (
	objectList[T any] struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []T `json:"items"`
	}

	csiNode struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Drivers []reference `json:"drivers"` // by name
		} `json:"spec"`
	}

	// kept is a PersistentVolume, a CSINode, a StorageClass or a claim in the memory of an informer.
	kept struct {
		metav1.ObjectMeta
		ours   bool                     // of this driver, or with it
		volume nodeapi.PersistentVolume // of a class, what volumes get
		waits  *waiting                 // a claim without a volume
	}
)

// DeepCopyObject implements runtime.Object. Objects of informers are shared and never changed: a copy may share what it
// refers to.
func (pv *persistentVolume) DeepCopyObject() runtime.Object { return new(*pv) }

func (n *csiNode) DeepCopyObject() runtime.Object { return new(*n) }

func (l *objectList[T]) DeepCopyObject() runtime.Object { return new(*l) }

// addWatched makes the answers to a list or watch readable.
func addWatched(scheme *runtime.Scheme) {
	storage := schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}
	for kind, object := range map[schema.GroupVersionKind]runtime.Object{
		{Version: "v1", Kind: "PersistentVolume"}:     &persistentVolume{},
		{Version: "v1", Kind: "PersistentVolumeList"}: &objectList[persistentVolume]{},
		storage.WithKind("CSINode"):                   &csiNode{},
		storage.WithKind("CSINodeList"):               &objectList[csiNode]{},
		storage.WithKind("StorageClass"):              &storageClass{},
		storage.WithKind("StorageClassList"):          &objectList[storageClass]{},

		{Version: "v1", Kind: "PersistentVolumeClaim"}:     &volumeClaim{},
		{Version: "v1", Kind: "PersistentVolumeClaimList"}: &objectList[volumeClaim]{},
	} {
		scheme.AddKnownTypeWithName(kind, object)
	}
}

// inform adds an informer of a kind of objects.
func (c *Controller) inform(
	objects *cache.ListWatch, kind runtime.Object, handler cache.ResourceEventHandler,
) (known cache.Indexer) {
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: objects, ObjectType: kind, Handler: handler, Transform: c.keep,
		Indexers: cache.Indexers{byHandle: handles},
	})
	c.informers = append(c.informers, informer)
	known, _ = store.(cache.Indexer) // it is one wherever there are Indexers
	return known
}

// keep drops what the controller does not ask for, which is nearly all: there may be 10,000 volumes.
func (c *Controller) keep(object any) (any, error) {
	switch o := object.(type) {
	case *persistentVolume:
		k := &kept{ObjectMeta: stripMeta(&o.ObjectMeta), ours: o.of(c.DriverName)}
		if k.ours {
			k.volume = o.describe(c.DriverName, c.TopologyKey)
		}
		return k, nil
	case *csiNode:
		ours := slices.ContainsFunc(o.Spec.Drivers, func(d reference) bool { return d.Name == c.DriverName })
		return &kept{ObjectMeta: stripMeta(&o.ObjectMeta), ours: ours}, nil
	case *storageClass:
		k := &kept{ObjectMeta: stripMeta(&o.ObjectMeta), ours: o.Provisioner == c.DriverName}
		k.volume.Pool = o.Parameters[names.StoragePoolParameter]
		return k, nil
	case *volumeClaim:
		return keepClaim(o), nil
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
	return metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func handles(object any) ([]string, error) {
	if k, ok := object.(*kept); ok && k.ours && k.volume.Handle != "" {
		return []string{k.volume.Handle}, nil
	}
	return nil, nil
}

// group asks for the objects of an API group other than core.
type group struct {
	rest.Interface
	path string
}

func (g group) Get() *rest.Request { return g.Interface.Get().AbsPath(g.path) }

// watchNodes lists and watches the metadata of the nodes that a field selector chooses.
func (a *API) watchNodes(only string) *cache.ListWatch {
	nodes := a.meta.Resource(coreResource("nodes"))
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return nodes.Watch(ctx, o)
		},
	}
}
