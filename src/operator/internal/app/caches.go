package app

import (
	"errors"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/definitions"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/extracache"
)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme), configv1.Install(scheme),
		apiextensionsv1.AddToScheme(scheme))
	if err != nil {
		return nil, fmt.Errorf("make the scheme: %w", err)
	}
	return scheme, nil
}

// cacheOptions limit the manager's cache to what the operator may read, and has a use for.
func (op *operator) cacheOptions() (cache.Options, error) {
	ofPools, err := labels.NewRequirement(names.PoolClaimLabel, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select the claims of pools: %w", err)
	}
	base := fields.OneTermEqualSelector("metadata.name", op.baseConfig)
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{op.namespace: {FieldSelector: base}}},
			&corev1.Pod{}: {
				Namespaces: map[string]cache.Config{op.namespace: {LabelSelector: ownSelector()}},
				Transform:  stripPod,
			},
			&corev1.PersistentVolumeClaim{}: {
				Namespaces: map[string]cache.Config{op.namespace: {LabelSelector: labels.NewSelector().Add(*ofPools)}},
				Transform:  stripClaim,
			},
			&corev1.Node{}:             {Transform: stripNode},
			&corev1.PersistentVolume{}: {Transform: op.stripVolume},
			definitions.Metadata():     {Transform: stripMetadata},
		},
	}, nil
}

func ownSelector() labels.Selector {
	return labels.SelectorFromSet(labels.Set{names.OwnedBy: names.CustomResource})
}

// renderedCache has what the operator applies, of whatever kind: in its own namespace, or in none.
func (op *operator) renderedCache() (cache.Cache, error) {
	return extracache.Add(op.mgr, cache.Options{
		DefaultNamespaces:    map[string]cache.Config{op.namespace: {}},
		DefaultLabelSelector: ownSelector(),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
}

// eventSubject is what an event of no object in particular is about.
func eventSubject() client.Object {
	return &v1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Name: names.CustomResource}}
}
