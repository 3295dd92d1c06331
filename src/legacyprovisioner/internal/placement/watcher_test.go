package placement

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// watch runs the watcher of node "here" on a cluster with these objects, in a bubble of its own time, while do runs.
func watch(t *testing.T, cluster *fake.Clientset, do func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(cluster, time.Hour)
		w, err := New(Config{
			Client: cluster, Informers: factory, Node: "here", NoticeDelay: 10 * time.Second,
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		factory.StartWithContext(ctx)
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		passTime(time.Second) // until the informers have read everything
		do(t)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	})
}

// passTime lets an interval go by and what it brings be done.
func passTime(interval time.Duration) {
	time.Sleep(interval)
	synctest.Wait()
}

func events(t *testing.T, cluster *fake.Clientset) []corev1.Event {
	t.Helper()
	list, err := cluster.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestTheNamedNodeIsSelected(t *testing.T) {
	cluster := fake.NewClientset(class(waiting), claim(provisionOnNode, "here"))
	watch(t, cluster, func(t *testing.T) {
		got, err := cluster.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{provisionOnNode: "here", SelectedNode: "here"}
		if diff := cmp.Diff(want, got.Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	})
	var patches []string
	for _, action := range cluster.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			patches = append(patches, string(patch.GetPatch()))
		}
	}
	want := []string{
		`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"here"},"resourceVersion":"7","uid":"1234"}}`,
	}
	if diff := cmp.Diff(want, patches); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}

// TestTheSchedulerMayBeFaster: its write makes ours fail, and what was decided is decided again.
func TestTheSchedulerMayBeFaster(t *testing.T) {
	cluster := fake.NewClientset(class(waiting), claim(provisionOnNode, "here"))
	attempts := 0
	cluster.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		attempts++
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data",
			errors.New("changed"))
	})
	watch(t, cluster, func(t *testing.T) {
		before := attempts
		faster := claim(provisionOnNode, "here", SelectedNode, "there")
		if _, err := cluster.CoreV1().PersistentVolumeClaims("shop").Update(
			t.Context(), faster, metav1.UpdateOptions{},
		); err != nil {
			t.Fatal(err)
		}
		passTime(time.Minute)
		got := events(t, cluster)
		if len(got) != 1 {
			t.Fatalf("%d events, want one", len(got))
		}
		if before == 0 || attempts != before {
			t.Errorf("%d attempts to select the node before the scheduler's and %d in all, want some and none after it",
				before, attempts)
		}
	})
}

func TestNotices(t *testing.T) {
	many := []runtime.Object{class(waiting), claim(provisionOnNode, "gone")}
	for _, letter := range "abcdefghijkl" {
		many = append(many, node("node-"+string(letter)))
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		reason  string
		message string
	}{
		"immediate without annotation": {
			[]runtime.Object{class(immediate), claim()},
			"WaitingForAnnotation",
			"StorageClass hostpath binds immediately, so nothing chooses a node for this volume: name one with " +
				"`kubectl annotate pvc --namespace=shop data kubevirt.io/provisionOnNode=NODE`, or use a class with " +
				"volumeBindingMode WaitForFirstConsumer",
		},
		"no such node": {
			[]runtime.Object{class(immediate), claim(provisionOnNode, "gone"), node("here"), node("there")},
			"NodeNotFound",
			`annotation kubevirt.io/provisionOnNode: there is no node "gone"; the nodes are here, there; correct it ` +
				"with `kubectl annotate --overwrite pvc --namespace=shop data kubevirt.io/provisionOnNode=NODE`",
		},
		"no such node among many": {
			many, "NodeNotFound",
			`annotation kubevirt.io/provisionOnNode: there is no node "gone"; the nodes are node-a, node-b, node-c, ` +
				`node-d, node-e, node-f, node-g, ` +
				"node-h, node-i, node-j, and others; correct it with " +
				"`kubectl annotate --overwrite pvc --namespace=shop data kubevirt.io/provisionOnNode=NODE`",
		},
		"the scheduler chose another": {
			[]runtime.Object{class(waiting), claim(provisionOnNode, "here", SelectedNode, "there")},
			"NodeConflict",
			"the scheduler chose node there, but annotation kubevirt.io/provisionOnNode says here and wins: the " +
				"volume is made on here; a pod that has other volumes on there cannot be scheduled, so give all " +
				"claims of a pod the annotation with the same node, or none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fake.NewClientset(test.objects...)
			watch(t, cluster, func(t *testing.T) {
				passTime(time.Minute)
				got := events(t, cluster)
				if len(got) != 1 {
					t.Fatalf("%d events, want one", len(got))
				}
				e := got[0]
				if e.Type != "Warning" || e.Reason != test.reason || e.Message != test.message {
					t.Errorf("event %s %s, want Warning %s; message (-want +got):\n%s",
						e.Type, e.Reason, test.reason, cmp.Diff(test.message, e.Message))
				}
				want := corev1.ObjectReference{
					APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data",
					UID: "1234", ResourceVersion: "7",
				}
				if diff := cmp.Diff(want, e.InvolvedObject); diff != "" {
					t.Errorf("event's object (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestOneEventForAllNodes: the second instance finds the name taken, which is as good as its own event.
func TestOneEventForAllNodes(t *testing.T) {
	cluster := fake.NewClientset(class(immediate), claim())
	for range 2 {
		watch(t, cluster, func(*testing.T) { passTime(time.Minute) })
	}
	if got := events(t, cluster); len(got) != 1 {
		t.Errorf("%d events, want one", len(got))
	}
}

// TestOthersWaitBeforeTheyAsk: while the named node does its work in time, no other asks the API for anything.
func TestOthersWaitBeforeTheyAsk(t *testing.T) {
	cluster := fake.NewClientset(class(immediate), claim(provisionOnNode, "there"))
	watch(t, cluster, func(t *testing.T) {
		passTime(5 * time.Second)
		bound := claim(provisionOnNode, "there")
		bound.Spec.VolumeName = "pvc-1234"
		if _, err := cluster.CoreV1().PersistentVolumeClaims("shop").Update(
			t.Context(), bound, metav1.UpdateOptions{},
		); err != nil {
			t.Fatal(err)
		}
		passTime(time.Hour)
	})
	for _, action := range cluster.Actions() {
		if resource := action.GetResource().Resource; resource == "nodes" || resource == "events" {
			t.Errorf("%s %s, want nothing asked or said", action.GetVerb(), resource)
		}
	}
}

func TestANodeThatExistsIsNoCauseForAnEvent(t *testing.T) {
	cluster := fake.NewClientset(class(immediate), claim(provisionOnNode, "there"), node("there"))
	watch(t, cluster, func(t *testing.T) {
		passTime(time.Minute)
		if got := events(t, cluster); len(got) != 0 {
			t.Errorf("event %q, want none", got[0].Message)
		}
	})
}

// TestAClaimMayBeOlderThanItsClass and is served all the same.
func TestAClaimMayBeOlderThanItsClass(t *testing.T) {
	cluster := fake.NewClientset(claim(provisionOnNode, "here"))
	watch(t, cluster, func(t *testing.T) {
		if _, err := cluster.StorageV1().StorageClasses().Create(
			t.Context(), class(waiting), metav1.CreateOptions{},
		); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got, err := cluster.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Annotations[SelectedNode] != "here" {
			t.Errorf("selected node %q, want here", got.Annotations[SelectedNode])
		}
	})
}

// TestAnAPIThatFailsIsAskedAgain until the event is there.
func TestAnAPIThatFailsIsAskedAgain(t *testing.T) {
	cluster := fake.NewClientset(class(immediate), claim(provisionOnNode, "gone"), node("here"))
	failures := map[string]int{"get": 2, "list": 1, "create": 1}
	cluster.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource().Resource
		if (resource == "nodes" || resource == "events") && failures[action.GetVerb()] > 0 {
			failures[action.GetVerb()]--
			return true, nil, errors.New("the API is away")
		}
		return false, nil, nil
	})
	watch(t, cluster, func(t *testing.T) {
		passTime(time.Hour)
		if got := events(t, cluster); len(got) != 1 {
			t.Errorf("%d events, want one", len(got))
		}
	})
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	_, err := New(Config{Node: "here"})
	if err == nil || err.Error() != "claim watcher: a field of its Config is missing" {
		t.Errorf("error %v, want one that says that a field is missing", err)
	}
}
