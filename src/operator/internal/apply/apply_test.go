package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/apply"
)

// api is the edge: a cluster in a map, which writes down what it is asked to change.
type api struct {
	objects map[string]*unstructured.Unstructured
	calls   []string
	// refuse is what an apply or a trial of an object ends with.
	applyErr, trialErr map[string]error
}

func key(kind, name string) string { return kind + "/" + name }

func newAPI(objects ...*unstructured.Unstructured) *api {
	a := &api{
		objects:  map[string]*unstructured.Unstructured{},
		applyErr: map[string]error{},
		trialErr: map[string]error{},
	}
	for _, o := range objects {
		a.objects[key(o.GetKind(), o.GetName())] = o
	}
	return a
}

func (a *api) Apply(_ context.Context, configuration runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	var o client.ApplyOptions
	o.ApplyOptions(options)
	if o.FieldManager != apply.FieldManager || o.Force == nil || !*o.Force {
		panic(fmt.Sprintf("applied with %+v", o))
	}
	data, err := json.Marshal(configuration)
	if err != nil {
		panic(err)
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, applied); err != nil {
		panic(err)
	}
	at := key(applied.GetKind(), applied.GetName())
	a.calls = append(a.calls, "apply "+at)
	if err := a.applyErr[at]; err != nil {
		return err
	}
	applied.SetUID(types.UID("uid of " + at))
	a.objects[at] = applied
	// The answer goes into what was passed, as the real client does.
	type setter interface {
		SetUnstructuredContent(content map[string]any)
	}
	configuration.(setter).SetUnstructuredContent(applied.DeepCopy().Object)
	return nil
}

func (a *api) Create(_ context.Context, object client.Object, options ...client.CreateOption) error {
	var o client.CreateOptions
	o.ApplyOptions(options)
	if len(o.DryRun) == 0 {
		panic("created for real")
	}
	at := key(object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
	a.calls = append(a.calls, "try "+at)
	if err := a.trialErr[at]; err != nil {
		return err
	}
	return apierrors.NewAlreadyExists(schema.GroupResource{}, object.GetName())
}

func (a *api) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	a.calls = append(a.calls,
		fmt.Sprintf("patch %s %s", key(object.GetObjectKind().GroupVersionKind().Kind, object.GetName()), data))
	return nil
}

func (a *api) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	if o.Preconditions == nil || *o.Preconditions.UID != object.GetUID() {
		panic("deleted whatever has the name")
	}
	call := "delete " + key(object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
	if o.PropagationPolicy != nil {
		call += " " + string(*o.PropagationPolicy)
	}
	a.calls = append(a.calls, call)
	return nil
}

func (a *api) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found, ok := a.objects[key(into.GetObjectKind().GroupVersionKind().Kind, name.Name)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, name.Name)
	}
	found.DeepCopyInto(into.(*unstructured.Unstructured))
	return nil
}

func (a *api) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	into := list.(*unstructured.UnstructuredList)
	for _, o := range a.objects {
		if o.GetKind()+"List" == into.GetKind() {
			into.Items = append(into.Items, *o.DeepCopy())
		}
	}
	return nil
}

// labelled is what a cache holds that knows the operator's objects only.
type labelled struct{ *api }

func (l labelled) Get(
	ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	if err := l.api.Get(ctx, name, into, options...); err != nil {
		return err
	}
	if into.GetLabels()[names.OwnedBy] == "" {
		return apierrors.NewNotFound(schema.GroupResource{}, name.Name)
	}
	return nil
}

func owner(uid string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "v1",
		Kind:       "HostPathProvisioner",
		Name:       names.CustomResource,
		UID:        types.UID(uid),
	}
}

func kindOf(kind string) schema.GroupVersionKind {
	return map[string]schema.GroupVersionKind{
		"ConfigMap":    {Version: "v1", Kind: "ConfigMap"},
		"DaemonSet":    {Group: "apps", Version: "v1", Kind: "DaemonSet"},
		"CSIDriver":    {Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
		"StorageClass": {Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"},
	}[kind]
}

func thing(kind, name string, labels map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kindOf(kind))
	o.SetName(name)
	o.SetLabels(labels)
	o.SetUID(types.UID("uid of " + key(kind, name)))
	return o
}

func ownLabels() map[string]string { return map[string]string{names.OwnedBy: names.CustomResource} }

func wanted(kind, name string) *unstructured.Unstructured {
	o := thing(kind, name, ownLabels())
	o.SetUID("")
	return o
}

// overlay is a class for a pool whose nodes share a claim.
func overlay(class *unstructured.Unstructured, pool, driver string) *unstructured.Unstructured {
	class.Object["provisioner"] = driver
	class.Object["parameters"] = map[string]any{"storagePool": pool, "overlayCSI": "true"}
	return class
}

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{}, "x", nil)
}

func TestApply(t *testing.T) {
	t.Parallel()
	going := func(labels map[string]string) *unstructured.Unstructured {
		o := thing("DaemonSet", "x", labels)
		o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		return o
	}
	for name, c := range map[string]struct {
		there     *unstructured.Unstructured
		kind      string
		applyErr  error
		trialErr  error
		calls     []string
		replacing bool
		wantErr   string
	}{
		"absent": {kind: "DaemonSet", calls: []string{"apply DaemonSet/x"}},
		"ours": {
			kind: "DaemonSet", there: thing("DaemonSet", "x", ownLabels()), calls: []string{"apply DaemonSet/x"},
		},
		"the predecessor's": {
			kind: "DaemonSet", there: thing("DaemonSet", "x", map[string]string{"k8s-app": "hostpath-provisioner"}),
			calls: []string{"apply DaemonSet/x"},
		},
		"the predecessor's, by its other label": {
			kind: "ConfigMap", there: thing("ConfigMap", "x",
				map[string]string{"app.kubernetes.io/managed-by": "hostpath-provisioner-operator"}),
			calls: []string{"apply ConfigMap/x"},
		},
		"a Helm release's CSIDriver": {
			kind: "CSIDriver", there: thing("CSIDriver", "x",
				map[string]string{"app.kubernetes.io/managed-by": "Helm"}),
			wantErr: "CSIDriver x: it exists and is not the operator's (it is managed by Helm): delete it, or give " +
				"one of the two another name",
		},
		"ours, robbed of its labels": {
			kind: "ConfigMap", there: func() *unstructured.Unstructured {
				o := thing("ConfigMap", "x", nil)
				o.SetOwnerReferences([]metav1.OwnerReference{owner("1")})
				return o
			}(), calls: []string{"apply ConfigMap/x"},
		},
		"any other CSIDriver": {
			kind: "CSIDriver", there: thing("CSIDriver", "x", nil),
			calls: []string{"apply CSIDriver/x"},
		},
		"somebody else's": {
			kind: "ConfigMap", there: thing("ConfigMap", "x",
				map[string]string{"app.kubernetes.io/managed-by": "Helm"}),
			wantErr: "ConfigMap x: it exists and is not the operator's (it is managed by Helm): delete it, or give " +
				"one of the two another name",
		},
		"somebody's who does not say": {
			kind: "StorageClass", there: thing("StorageClass", "x", nil),
			wantErr: "StorageClass x: it exists and is not the operator's (it is managed by nobody that it names): " +
				"delete it, or give one of the two another name",
		},
		"kubevirt's class": {
			kind: "StorageClass", there: overlay(thing("StorageClass", "x", nil), "a", "driver"),
			calls: []string{"apply StorageClass/x"},
		},
		"kubevirt's class is never made anew": {
			kind: "StorageClass", there: overlay(thing("StorageClass", "x", nil), "a", "driver"), applyErr: invalid(),
			calls: []string{"apply StorageClass/x"}, wantErr: "claims may count on it as it is",
		},
		"a labelled class of the predecessor": {
			kind:     "StorageClass",
			there:    thing("StorageClass", "x", map[string]string{"k8s-app": "hostpath-provisioner"}),
			applyErr: invalid(), replacing: true,
			calls: []string{
				"apply StorageClass/x", "try StorageClass/x",
				`patch StorageClass/x {"metadata":{"labels":{"` + names.OwnedBy + `":"hostpath-provisioner"}}}`,
				"delete StorageClass/x",
			},
		},
		"a class like kubevirt's, of Helm": {
			kind: "StorageClass",
			there: overlay(thing("StorageClass", "x", map[string]string{"app.kubernetes.io/managed-by": "Helm"}), "a",
				"driver"),
			wantErr: "it exists and is not the operator's (it is managed by Helm)",
		},
		"kubevirt's class of another pool": {
			kind: "StorageClass", there: overlay(thing("StorageClass", "x", nil), "b", "driver"),
			wantErr: "it exists and is not the operator's",
		},
		"a class of another driver": {
			kind: "StorageClass", there: overlay(thing("StorageClass", "x", nil), "a", "other"),
			wantErr: "it exists and is not the operator's",
		},
		"going": {kind: "DaemonSet", there: going(ownLabels()), replacing: true},
		"immutable": {
			kind: "DaemonSet", there: thing("DaemonSet", "x", ownLabels()), applyErr: invalid(), replacing: true,
			calls: []string{"apply DaemonSet/x", "try DaemonSet/x", "delete DaemonSet/x Foreground"},
		},
		"immutable, of the predecessor": {
			kind: "DaemonSet", there: thing("DaemonSet", "x", map[string]string{"k8s-app": "hostpath-provisioner"}),
			applyErr: invalid(), replacing: true,
			calls: []string{
				"apply DaemonSet/x", "try DaemonSet/x",
				`patch DaemonSet/x {"metadata":{"labels":{"` + names.OwnedBy + `":"hostpath-provisioner"}}}`,
				"delete DaemonSet/x Foreground",
			},
		},
		"immutable, without pods": {
			kind: "StorageClass", there: thing("StorageClass", "x", ownLabels()), applyErr: invalid(), replacing: true,
			calls: []string{"apply StorageClass/x", "try StorageClass/x", "delete StorageClass/x"},
		},
		"wrong altogether: what runs stays": {
			kind: "DaemonSet", there: thing("DaemonSet", "x", ownLabels()), applyErr: invalid(), trialErr: invalid(),
			calls: []string{"apply DaemonSet/x", "try DaemonSet/x"}, wantErr: "DaemonSet x:  \"x\" is invalid",
		},
		"never made anew": {
			kind: "ConfigMap", there: thing("ConfigMap", "x", ownLabels()), applyErr: invalid(),
			calls: []string{"apply ConfigMap/x"}, wantErr: "ConfigMap x:  \"x\" is invalid",
		},
		"forbidden": {
			kind: "ConfigMap", applyErr: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x",
				errors.New("no")),
			calls: []string{"apply ConfigMap/x"}, wantErr: "give the operator the rights of this version's chart: " +
				"upgrade its Helm release",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI()
			if c.there != nil {
				a = newAPI(c.there)
			}
			a.applyErr[key(c.kind, "x")], a.trialErr[key(c.kind, "x")] = c.applyErr, c.trialErr
			want := wanted(c.kind, "x")
			if strings.Contains(name, "class") {
				want = overlay(want, "a", "driver")
			}
			outcome, err := apply.New(a, labelled{a}, a).
				Apply(t.Context(), owner("1"), []*unstructured.Unstructured{want})
			if diff := cmp.Diff(c.calls, a.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if (len(outcome.Replacing) == 1) != c.replacing {
				t.Errorf("replacing %v", outcome.Replacing)
			}
			if (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("error %v, want %q", err, c.wantErr)
			}
		})
	}
}

// One object that cannot be applied keeps none of the others from being.
func TestAllAreAttempted(t *testing.T) {
	t.Parallel()
	a := newAPI()
	a.applyErr[key("ConfigMap", "a")], a.applyErr[key("ConfigMap", "c")] = errors.New("first"), errors.New("second")
	_, err := apply.New(a, labelled{a}, a).Apply(t.Context(), owner("1"),
		[]*unstructured.Unstructured{wanted("ConfigMap", "a"), wanted("ConfigMap", "b"), wanted("ConfigMap", "c")})
	if err == nil || err.Error() != "ConfigMap a: first\nConfigMap c: second" {
		t.Errorf("error %v", err)
	}
	if a.objects[key("ConfigMap", "b")] == nil {
		t.Error("the one between them is not there")
	}
}

// At rest nothing is written; a change of either side is.
func TestSettled(t *testing.T) {
	t.Parallel()
	a := newAPI()
	applier := apply.New(a, labelled{a}, a)
	object := wanted("ConfigMap", "x")
	pass := func(uid string) int {
		a.calls = nil
		if _, err := applier.Apply(t.Context(), owner(uid), []*unstructured.Unstructured{object}); err != nil {
			t.Fatal(err)
		}
		return len(a.calls)
	}
	if first, second := pass("1"), pass("1"); first != 1 || second != 0 {
		t.Fatalf("%d writes, then %d; want 1 and 0", first, second)
	}
	live := a.objects[key("ConfigMap", "x")]
	for name, change := range map[string]func(){
		"status only":     func() { live.Object["status"] = map[string]any{"a": "b"}; live.SetResourceVersion("9") },
		"somebody's data": func() { live.Object["data"] = map[string]any{"a": "b"} },
		"a label":         func() { live.SetLabels(map[string]string{names.OwnedBy: names.CustomResource, "a": "b"}) },
		"what is wanted":  func() { object.Object["data"] = map[string]any{"c": "d"} },
	} {
		live = a.objects[key("ConfigMap", "x")]
		change()
		want := 1
		if name == "status only" {
			want = 0
		}
		if got := pass("1"); got != want {
			t.Errorf("%s: %d writes, want %d", name, got, want)
		}
	}
	if pass("2") != 1 {
		t.Error("another owner, and nothing was written")
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	of := func(o *unstructured.Unstructured, uid string) *unstructured.Unstructured {
		o.SetOwnerReferences([]metav1.OwnerReference{owner(uid)})
		return o
	}
	going := of(thing("ConfigMap", "going", ownLabels()), "1")
	going.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	a := newAPI(of(thing("ConfigMap", "kept", ownLabels()), "1"), of(thing("ConfigMap", "old", ownLabels()), "1"),
		of(thing("ConfigMap", "another owner's", ownLabels()), "2"), thing("StorageClass", "nobody's", ownLabels()),
		of(thing("DaemonSet", "old", ownLabels()), "1"), of(thing("CSIDriver", "not looked at", ownLabels()), "1"),
		going, of(thing("DaemonSet", "spared", map[string]string{"spare": "it"}), "1"))
	applier := apply.New(a, labelled{a}, a)
	kinds := []schema.GroupVersionKind{kindOf("ConfigMap"), kindOf("DaemonSet"), kindOf("StorageClass")}
	if _, err := applier.Prune(t.Context(), owner("1"), nil, kinds, nil); err == nil || len(a.calls) > 0 {
		t.Fatalf("nothing was rendered, and %v was called (%v)", a.calls, err)
	}
	deleted, err := applier.Prune(t.Context(), owner("1"), []*unstructured.Unstructured{wanted("ConfigMap", "kept")},
		kinds, func(labels map[string]string) bool { return labels["spare"] == "it" })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ConfigMap old", "DaemonSet old"}, deleted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"delete ConfigMap/old", "delete DaemonSet/old Foreground"}, a.calls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	a.calls = nil
	removed, err := applier.Remove(t.Context(), owner("1"), kinds[:1], nil)
	slices.Sort(removed)
	if diff := cmp.Diff([]string{"ConfigMap kept", "ConfigMap old"}, removed); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}
