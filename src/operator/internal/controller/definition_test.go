package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/predecessor"
)

// definition answers always alike.
type definition struct {
	refusal string
	err     error
	asked   int
}

func (d *definition) Apply(context.Context, client.Reader) (string, error) {
	d.asked++
	return d.refusal, d.err
}

// statusWriter takes a status; any other call panics.
type statusWriter struct {
	client.Client
	wrote *v1beta1.HostPathProvisionerStatus
}

func (s *statusWriter) Status() client.SubResourceWriter { return statusPatch{writer: s} }

type statusPatch struct {
	client.SubResourceWriter
	writer *statusWriter
}

func (s statusPatch) Patch(
	_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	if resource, ok := object.(*v1beta1.HostPathProvisioner); ok {
		s.writer.wrote = &resource.Status
	}
	return nil
}

// A definition that is a newer operator's: the resource is told, once for each generation, and nothing else is written.
func TestDowngradeIsRefused(t *testing.T) {
	t.Parallel()
	writer := &statusWriter{}
	r := New(Options{
		Client: writer, Ready: &gauge{}, Recorder: events.NewFakeRecorder(10),
		Definition: &definition{refusal: "0.2.0 applied it"},
	})
	resource := &hpp{ObjectMeta: metav1.ObjectMeta{Name: names.CustomResource, UID: "1", Generation: 3}}
	resource.Status.ObservedVersion = "v0.25.2"
	pass := func(want string) {
		t.Helper()
		writer.wrote = nil
		if defined, err := r.define(t.Context(), resource); err != nil || defined {
			t.Errorf("defined %v, error %v", defined, err)
		}
		var got string
		if writer.wrote != nil {
			degraded := meta.FindStatusCondition(writer.wrote.Conditions, v1beta1.Degraded)
			got = degraded.Reason + ": " + degraded.Message
		}
		if got != want {
			t.Errorf("wrote %q, want %q", got, want)
		}
	}
	const said = "DowngradeRefused: 0.2.0 applied it"
	before := resource.DeepCopy()
	pass(said)
	pass(said) // the write met another, and is tried again
	resource.Status = *writer.wrote
	if resource.Status.ObservedVersion != "v0.25.2" {
		t.Errorf("of the status as it was there is left %+v", resource.Status)
	}
	pass("")
	resource = before // the newer operator, which runs, has its own to say
	pass("")
	resource.Generation++
	pass(said)
}

// What fails is said, and tried again; that somebody else was faster is not worth a word.
func TestDefinitionFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("forbidden"), "ApplyFailed: forbidden"},
		{apierrors.NewConflict(schema.GroupResource{}, "", errors.New("faster")), ""},
	} {
		writer := &statusWriter{}
		r := New(Options{
			Client: writer, Ready: &gauge{}, Recorder: events.NewFakeRecorder(10),
			Definition: &definition{err: test.err},
		})
		if defined, err := r.define(t.Context(), &hpp{}); defined || !errors.Is(err, test.err) {
			t.Errorf("%v: defined %v, error %v", test.err, defined, err)
		}
		var got string
		if writer.wrote != nil {
			degraded := meta.FindStatusCondition(writer.wrote.Conditions, v1beta1.Degraded)
			got = degraded.Reason + ": " + degraded.Message
		}
		if got != test.want {
			t.Errorf("%v: wrote %q, want %q", test.err, got, test.want)
		}
	}
}

// Without a resource the definition is brought to this version all the same, but not beside kubevirt's operator.
func TestDefinitionWithoutResource(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "hostpath-provisioner-operator"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(theirs).
		WithIndex(&appsv1.Deployment{}, "metadata.name",
			func(o client.Object) []string { return []string{o.GetName()} }).
		Build()
	d := &definition{}
	r := New(Options{
		Client: c, Ready: &gauge{}, Definition: d, TakeoverInterval: takeoverInterval,
		Predecessor: predecessor.New(predecessor.Options{Live: c, Nodes: c, Writer: c, Namespace: "hpp"}),
	})
	pass := func() (reconcile.Result, error) { return r.Reconcile(t.Context(), reconcile.Request{}) }
	if result, err := pass(); err != nil || result.RequeueAfter == 0 || d.asked > 0 {
		t.Errorf("beside kubevirt's operator: %+v, error %v, %d times applied", result, err, d.asked)
	}
	if err := c.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if result, err := pass(); err != nil || result.RequeueAfter != 0 || d.asked != 1 {
		t.Errorf("%+v, error %v, %d times applied", result, err, d.asked)
	}
	d.err = errors.New("away")
	if _, err := pass(); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("what failed is not tried again: %v", err)
	}
}

func TestOwnDefinition(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"hostpathprovisioners.hostpathprovisioner.kubevirt.io": true, "issuers.cert-manager.io": false,
	} {
		if got := ownDefinition(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
