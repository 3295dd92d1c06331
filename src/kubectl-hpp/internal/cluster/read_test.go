package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

const driver = "hpp.example"

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func pv(name, driver string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: named("", name)}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	return v
}

func pod(namespace, name string, volumes ...corev1.VolumeSource) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: named(namespace, name)}
	for i, v := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: v})
	}
	return p
}

func objects() []runtime.Object {
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	return []runtime.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: named("shop", "data")},
		&corev1.PersistentVolumeClaim{ObjectMeta: named("other", "data")},
		pv("pvc-1", driver), pv("pvc-2", "another.example"), &corev1.PersistentVolume{ObjectMeta: named("", "nfs")},
		pod("shop", "without"), pod("shop", "with", claim), pod("other", "with", claim),
		pod("shop", "ephemeral", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
		pod("shop", "inline", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}}),
		pod("shop", "inline-of-another", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "another.example"}}),
		&corev1.Node{ObjectMeta: named("", "worker-1")}, &storagev1.CSINode{ObjectMeta: named("", "worker-1")},
		&storagev1.StorageClass{ObjectMeta: named("", "local"), Provisioner: driver},
		&storagev1.StorageClass{ObjectMeta: named("", "another"), Provisioner: "another.example"},
		&storagev1.CSIStorageCapacity{ObjectMeta: named("hpp", "csisc-1"), StorageClassName: "local"},
		&storagev1.CSIStorageCapacity{ObjectMeta: named("hpp", "csisc-2"), StorageClassName: "another"},
	}
}

// names are what was read, by kind.
func names(s cluster.State) map[string]string {
	all := map[string]string{}
	add := func(kind string, m metav1.ObjectMeta) {
		all[kind] += " " + strings.TrimPrefix(m.Namespace+"/"+m.Name, "/")
	}
	for _, o := range s.Claims {
		add("claims", o.ObjectMeta)
	}
	for _, o := range s.Volumes {
		add("volumes", o.ObjectMeta)
	}
	for _, o := range s.Pods {
		add("pods", o.ObjectMeta)
	}
	for _, o := range s.Nodes {
		add("nodes", o.ObjectMeta)
	}
	for _, o := range s.Classes {
		add("classes", o.ObjectMeta)
	}
	for _, o := range s.Capacities {
		add("capacities", o.ObjectMeta)
	}
	for _, o := range s.CSINodes {
		add("csinodes", o.ObjectMeta)
	}
	return all
}

func TestRead(t *testing.T) {
	at := cluster.Controller{Namespace: "hpp", Driver: driver}
	everything := map[string]string{
		"claims": " other/data shop/data", "volumes": " pvc-1",
		"pods": " other/with shop/ephemeral shop/inline shop/with", "nodes": " worker-1", "classes": " another local",
		"capacities": " hpp/csisc-1", "csinodes": " worker-1",
	}
	for namespace, want := range map[string]map[string]string{
		"": everything,
		"shop": {
			"claims": " shop/data", "volumes": " pvc-1", "pods": " shop/ephemeral shop/inline shop/with",
			"nodes": " worker-1", "classes": " another local", "capacities": " hpp/csisc-1", "csinodes": " worker-1",
		},
	} {
		got, err := cluster.Read(t.Context(), fake.NewClientset(objects()...), at, namespace)
		if diff := cmp.Diff(
			want,
			names(got),
		); err != nil || diff != "" || len(got.Missing) > 0 ||
			got.Controller != at {
			t.Errorf("namespace %q: %v, %v: %s", namespace, err, got.Missing, diff)
		}
	}
}

// TestReadByPages: the API server answers one object at a time, and once says that the list is too old to go on.
func TestReadByPages(t *testing.T) {
	for _, expires := range []bool{false, true} {
		api, pages := fake.NewClientset(), 0
		api.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			options := a.(clienttesting.ListActionImpl).ListOptions
			pages++
			all := &corev1.NodeList{}
			for i := range 3 {
				all.Items = append(all.Items, corev1.Node{ObjectMeta: named("", fmt.Sprint("worker-", i))})
			}
			switch page := len(options.Continue); {
			case options.Limit == 0:
			case expires && page == 1:
				return true, nil, apierrors.NewResourceExpired("too old")
			case page < 2:
				all.Items, all.Continue = all.Items[page:page+1], strings.Repeat("c", page+1)
			default:
				all.Items = all.Items[page : page+1]
			}
			return true, all, nil
		})
		got, err := cluster.Read(t.Context(), api, cluster.Controller{}, "")
		if all := names(got)["nodes"]; err != nil || all != " worker-0 worker-1 worker-2" || pages != 3 {
			t.Errorf("expires %v: %v, %d pages: %s", expires, err, pages, all)
		}
	}
}

func refuse(api *fake.Clientset, resource string, err error) {
	api.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, err
	})
}

func TestReadWithoutRights(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	api := fake.NewClientset(objects()...)
	for _, resource := range []string{"pods", "nodes", "storageclasses", "csistoragecapacities"} {
		refuse(api, resource, forbidden)
	}
	got, err := cluster.Read(t.Context(), api, cluster.Controller{Namespace: "hpp", Driver: driver}, "")
	want := []string{
		"pods were not read: you may not list pods in all namespaces",
		"nodes were not read: you may not list nodes",
		"storageclasses were not read: you may not list storageclasses",
		"csistoragecapacities were not read: you may not list csistoragecapacities in namespace hpp",
	}
	if diff := cmp.Diff(want, got.Missing); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	if all := names(got); all["claims"] == "" || all["volumes"] == "" || all["pods"] != "" || all["nodes"] != "" {
		t.Errorf("read %v", all)
	}
	api = fake.NewClientset()
	refuse(api, "nodes", apierrors.NewServiceUnavailable("away"))
	_, err = cluster.Read(t.Context(), api, cluster.Controller{}, "shop")
	if err == nil || err.Error() != "list nodes: away" {
		t.Errorf("got %v", err)
	}
}

func TestEvents(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	event := func(name, about string, minute int) *corev1.Event {
		e := &corev1.Event{ObjectMeta: named("shop", name)}
		e.InvolvedObject = corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", Namespace: "shop", Name: about, UID: "1",
		}
		e.CreationTimestamp = metav1.NewTime(at.Add(time.Duration(minute) * time.Minute))
		return e
	}
	often := event("often", "data", 0)
	often.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at.Add(9 * time.Minute))}
	again := event("again", "data", 1)
	again.LastTimestamp = metav1.NewTime(at.Add(8 * time.Minute))
	late := event("late", "data", 2)
	late.EventTime = metav1.NewMicroTime(at.Add(7 * time.Minute))
	api := fake.NewClientset(often, again, late, event("first", "data", 3), event("other", "logs", 4))
	var asked string
	api.PrependReactor("list", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked = a.(clienttesting.ListActionImpl).ListOptions.FieldSelector
		return false, nil, nil
	})
	about := corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: "1"}
	list := func(ctx context.Context) (said []string, missing string, err error) {
		events, missing, err := cluster.Events(ctx, api, about)
		for _, e := range events {
			said = append(said, e.Name)
		}
		return said, missing, err
	}
	got, missing, err := list(t.Context())
	if diff := cmp.Diff([]string{"first", "late", "again", "often"}, got); err != nil || missing != "" || diff != "" {
		t.Errorf("%v %q: %s", err, missing, diff)
	}
	if want := "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=data," +
		"involvedObject.namespace=shop,involvedObject.uid=1"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	refuse(api, "events", apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	_, missing, err = list(t.Context())
	if err != nil || missing != "events were not read: you may not list events in namespace shop" {
		t.Errorf("%v %q", err, missing)
	}
}
