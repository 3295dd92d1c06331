// Package definitions keeps the CustomResourceDefinition of HostPathProvisioner. The operator is its only owner: it
// makes one where there is none, and as leader brings it to its own version, never to an older one.
package definitions

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/charts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/apply"
)

// Name is the definition's.
const Name = "hostpathprovisioners." + names.Group

// file is where the chart has the definition.
const file = "files/crd.yaml"

// Keeper keeps the definition. It is for one caller at a time.
type Keeper struct {
	direct client.Client
	log    *slog.Logger
	// wanted has the annotation with the operator's version.
	wanted *apply.Object
	own    *version.Version
	// applied: this process has applied it.
	applied bool
	// refusal is the last one, for the log to have each once.
	refusal string
}

// New makes a keeper of the definition that this program carries. The client must read past every cache and know the
// type; operator is the program's version.
func New(direct client.Client, operator string, log *slog.Logger) (*Keeper, error) {
	own, err := version.ParseSemantic(operator)
	if err != nil {
		return nil, fmt.Errorf("the version of this operator: %w", err)
	}
	chart, err := charts.HostpathProvisioner()
	if err != nil {
		return nil, fmt.Errorf("read the embedded chart: %w", err)
	}
	data, err := fs.ReadFile(chart, file)
	if err != nil {
		return nil, fmt.Errorf("read the embedded chart: %w", err)
	}
	wanted := &apply.Object{}
	if err := yaml.Unmarshal(data, &wanted.Object); err != nil {
		return nil, fmt.Errorf("read the embedded chart: %s: %w", file, err)
	}
	// A file with an empty status would claim to own it.
	unstructured.RemoveNestedField(wanted.Object, "status")
	wanted.SetAnnotations(labels.Merge(wanted.GetAnnotations(), labels.Set{names.AppliedBy: operator}))
	return &Keeper{direct: direct, log: log, wanted: wanted, own: own}, nil
}

// Metadata is the type as which definitions are cached: they are large, and nobody reads the rest of them.
func Metadata() *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return metadata
}

// Ensure makes the definition if there is none at all, and waits until it is served. One that is there it does not
// change, whosever it is: only the leader may, and only when kubevirt's operator is gone.
func (k *Keeper) Ensure(ctx context.Context) error {
	_, err := k.readLive(ctx)
	if apierrors.IsNotFound(err) {
		err = k.direct.Create(ctx, k.wanted.DeepCopy(), client.FieldOwner(apply.FieldManager))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make sure that there is a CustomResourceDefinition %s: %w", Name, err)
	}
	return k.established(ctx)
}

// Apply brings the definition to this operator's version: once, and again when the annotation with the version is no
// longer its own. A refusal says why it must not; then nothing may be served. The reader is asked for Metadata.
func (k *Keeper) Apply(ctx context.Context, cached client.Reader) (refusal string, err error) {
	if k.applied {
		seen := Metadata()
		err := cached.Get(ctx, client.ObjectKey{Name: Name}, seen)
		if err == nil && seen.Annotations[names.AppliedBy] == k.appliedBy() {
			return "", nil
		}
	}
	live, err := k.readLive(ctx)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read CustomResourceDefinition %s: %w", Name, err)
	}
	if k.applied && live.Annotations[names.AppliedBy] == k.appliedBy() {
		return "", nil // the cache was behind
	}
	if refusal := refuse(live.Annotations, k.own); refusal != "" {
		if refusal != k.refusal {
			// Without a resource it would be said nowhere else.
			k.log.WarnContext(ctx, "the definition is not this operator's", logging.KeyReason, refusal)
		}
		k.refusal = refusal
		return refusal, nil
	}
	if err := k.renew(ctx, live); err != nil {
		return "", err
	}
	k.applied, k.refusal = true, ""
	return "", nil
}

// renew applies the definition over the one that was seen and over no other: meanwhile an operator of a newer version
// may have applied its own.
func (k *Keeper) renew(ctx context.Context, seen *apiextensionsv1.CustomResourceDefinition) error {
	if err := k.migrate(ctx, seen); err != nil {
		return fmt.Errorf("CustomResourceDefinition %s: %w", Name, err)
	}
	wanted := k.wanted.DeepCopy()
	wanted.SetResourceVersion(seen.ResourceVersion)
	if err := apply.ServerSide(ctx, k.direct, wanted); err != nil {
		return fmt.Errorf("apply CustomResourceDefinition %s: %w", Name, err)
	}
	k.log.InfoContext(ctx, "applied the definition", logging.KeyDefinition, Name, logging.KeyVersion, k.appliedBy())
	return k.established(ctx)
}

func (k *Keeper) readLive(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	live := &apiextensionsv1.CustomResourceDefinition{}
	return live, k.direct.Get(ctx, client.ObjectKey{Name: Name}, live)
}

// appliedBy is the annotation of what this operator applied.
func (k *Keeper) appliedBy() string { return k.wanted.GetAnnotations()[names.AppliedBy] }
