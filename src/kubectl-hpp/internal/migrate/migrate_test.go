package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster/clustertest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/migrate"
)

const (
	gibibyte = int64(1) << 30
	driver   = "kubevirt.io.hostpath-provisioner"
	old      = "/opt/local-path-provisioner/pvc-1_shop_data"
)

// world is a cluster with one claim of local-path, its pod, and the node, all of which behave as far as a migration
// sees it. The call of number fails is refused.
type world struct {
	*fake.Clientset
	t            *testing.T
	calls, fails int
	taken        bool // the directory is in the pool
	mounted      bool
	enforcing    int // how often the node says that it is not done
	untagging    int
	restarted    bool // the pod's owner has made another one
	inTheWay     bool // there is another directory where it was
	lost         bool // it is nowhere
}

var errFails = errors.New("the connection was cut")

func newWorld(t *testing.T) *world {
	t.Helper()
	api := clustertest.Allow(fake.NewClientset(objects()...))
	w := &world{t: t, Clientset: api, mounted: true, enforcing: 2, untagging: 2}
	w.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		w.mounted = false
		pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		err := w.Tracker().Delete(pods, "shop", "db-0")
		if err == nil && !w.restarted { // its owner makes another, which is not scheduled while the claim is Lost
			w.restarted = true
			p := pod()
			p.UID, p.Spec.NodeName = "pod-2", ""
			err = w.Tracker().Add(p)
		}
		return true, nil, err
	})
	w.PrependReactor("patch", "persistentvolumeclaims", w.bind)
	w.PrependReactor("delete", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.phase(corev1.ClaimLost)
		return false, nil, nil
	})
	w.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return w.step() })
	return w
}

func (w *world) step() (bool, runtime.Object, error) {
	if w.calls++; w.calls == w.fails {
		return true, nil, errFails
	}
	return false, nil, nil
}

// bind is the PersistentVolume controller, when a claim was touched.
func (w *world) bind(clienttesting.Action) (bool, runtime.Object, error) {
	pvs := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	found, err := w.Tracker().Get(pvs, "", "pvc-1")
	if err == nil && found.(*corev1.PersistentVolume).Spec.ClaimRef.UID == "claim-1" {
		w.phase(corev1.ClaimBound)
	}
	return false, nil, nil
}

func (w *world) phase(is corev1.PersistentVolumeClaimPhase) {
	claims := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	found, err := w.Tracker().Get(claims, "shop", "data")
	if err == nil {
		claim := found.(*corev1.PersistentVolumeClaim)
		claim.Status.Phase = is
		err = w.Tracker().Update(claims, claim, "shop")
	}
	if err != nil {
		w.t.Error(err)
	}
}

// ask is the controller and the node. A call that fails has been done half of the time.
func (w *world) ask(_ context.Context, answer any, args ...string) error {
	_, _, err := w.step()
	if err != nil && w.fails%2 == 0 {
		return err
	}
	done := w.answer(answer, args)
	return errors.Join(err, done)
}

func (w *world) answer(answer any, args []string) error {
	switch a := answer.(type) {
	case *nodeapi.Directory:
		*a = nodeapi.Directory{
			Exists: (!w.taken || w.inTheWay) && !w.lost, SameMount: true, Enforceable: true, Files: 7,
			Bytes: gibibyte / 2,
		}
		if w.mounted {
			a.UsedAt = "/data (process 7)"
		}
	case *nodeapi.TakenDirectory:
		if pv := w.volume(); pv != nil && pv.Spec.CSI == nil {
			w.t.Errorf("the directory is taken while the old PersistentVolume is there")
		}
		if w.mounted {
			w.t.Errorf("it is taken while it is in use")
		}
		if want := []string{"take", "pvc-1", old, "local", "worker-1"}; !contains(args, want) {
			w.t.Errorf("asked %v, want all of %v", args, want)
		}
		w.taken = true
		*a = nodeapi.TakenDirectory{ID: "pvc-1", Bytes: gibibyte, Enforcement: "cooperative"}
		if w.enforcing--; w.enforcing > 0 {
			a.Enforcing, a.Files = true, 3
		}
	case *nodeapi.ReturnedDirectory:
		if w.volume() != nil {
			w.t.Errorf("the directory goes back while a PersistentVolume is there")
		}
		if w.inTheWay && w.taken {
			return errors.New("the controller refused: there is something at " + old)
		}
		if w.untagging--; w.taken && w.untagging > 0 {
			return nil
		}
		w.taken, a.Done = false, true
	}
	return nil
}

func contains(args, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(args, s) })
}

func (w *world) volume() *corev1.PersistentVolume {
	pvs := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	found, err := w.Tracker().Get(pvs, "", "pvc-1")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return found.(*corev1.PersistentVolume)
}

func (w *world) migration(out *bytes.Buffer) *migrate.Migration {
	return &migrate.Migration{
		Options: migrate.Options{From: "local-path", Namespace: "shop", Pool: "local", Enforce: nodeapi.EnforceNow},
		API:     w, Ask: w.ask, Driver: driver, TopologyKey: "topology/node", JournalNamespace: "hpp", Out: out,
		Wait: func(ctx context.Context) error { w.mounted = false; return ctx.Err() },
	}
}

func (w *world) apply() error {
	m := w.migration(&bytes.Buffer{})
	rows, err := m.Gather(context.Background())
	if err != nil {
		return err
	}
	return m.Apply(context.Background(), rows)
}

func (w *world) undo() error { return w.migration(&bytes.Buffer{}).Undo(context.Background()) }

// state is what a claim has in the end.
func (w *world) state() string {
	pv := w.volume()
	if pv == nil {
		return "no volume"
	}
	claims, err := w.CoreV1().PersistentVolumeClaims("shop").Get(context.Background(), "data", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	journals, err := w.CoreV1().ConfigMaps("hpp").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	kind := "old"
	if pv.Spec.CSI != nil {
		kind = fmt.Sprintf("%s %s on %v", pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle,
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values)
	}
	return fmt.Sprintf("%s %s, taken %v, claim %s, class %s, %d journals", kind, pv.Spec.PersistentVolumeReclaimPolicy,
		w.taken, claims.Status.Phase, pv.Spec.StorageClassName, len(journals.Items))
}

const (
	isNew = driver + " pvc-1 on [worker-1] Retain, taken true, claim Bound, class local-path, 1 journals"
	isOld = "old Delete, taken false, claim Bound, class local-path, 0 journals"
)

// TestKilledAtEachStep has each call of the migration fail in turn. Then it is gone on with, or undone.
func TestKilledAtEachStep(t *testing.T) {
	for _, undone := range []bool{false, true} {
		for step := 1; ; step++ {
			w := newWorld(t)
			w.fails = step
			first := w.apply()
			over := w.calls < step
			w.fails = 0
			journals, err := w.CoreV1().ConfigMaps("hpp").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want, again := isNew, w.apply
			if undone {
				if want, again = isOld, w.undo; len(journals.Items) == 0 { // it had not begun
					again = func() error { return nil }
				}
			}
			if err := again(); err != nil {
				t.Errorf("step %d failed with %v, then: %v", step, first, err)
			}
			if is := w.state(); is != want {
				t.Errorf("step %d failed with %v, then it is %s\nwant %s", step, first, is, want)
			}
			if over != (first == nil) {
				t.Errorf("step %d of %d failed, and that ended with %v", step, w.calls, first)
			}
			if over {
				if step < 20 {
					t.Errorf("only %d steps", step)
				}
				break
			}
		}
	}
}

// TestUndoKilledAtEachStep is that of --undo.
func TestUndoKilledAtEachStep(t *testing.T) {
	for step := 1; ; step++ {
		w := newWorld(t)
		if err := w.apply(); err != nil {
			t.Fatal(err)
		}
		w.calls, w.fails = 0, step
		first := w.undo()
		over := w.calls < step
		w.fails = 0
		if first != nil {
			if err := w.undo(); err != nil && !strings.Contains(err.Error(), "nothing to undo") {
				t.Errorf("step %d failed with %v, then: %v", step, first, err)
			}
		}
		if is := w.state(); is != isOld {
			t.Errorf("step %d failed with %v, then it is %s", step, first, is)
		}
		if over {
			return
		}
	}
}

// TestNoRights: nothing is begun that the user may not bring to its end, and nothing taken back.
func TestNoRights(t *testing.T) {
	for lacking, says := range map[string]string{
		"create persistentvolumes":     "you may not create persistentvolumes;",
		"patch persistentvolumes":      "you may not patch persistentvolumes;",
		"delete persistentvolumes":     "you may not delete persistentvolumes;",
		"create configmaps":            "you may not create configmaps in namespace hpp;",
		"update configmaps":            "you may not update configmaps in namespace hpp;",
		"create pods/eviction":         "you may not create pods/eviction in namespace shop;",
		"patch persistentvolumeclaims": "you may not patch persistentvolumeclaims in namespace shop;",
	} {
		w := newWorld(t)
		clustertest.Allow(w.Clientset, lacking)
		if err := w.apply(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", lacking, err)
		}
		if is := w.state(); is != isOld || w.restarted {
			t.Errorf("%s: it is %s", lacking, is)
		}
		clustertest.Allow(w.Clientset)
		if err := w.apply(); err != nil {
			t.Fatal(err)
		}
		clustertest.Allow(w.Clientset, lacking)
		if err := w.undo(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", lacking, err)
		}
		if is := w.state(); is != isNew {
			t.Errorf("%s: it is %s", lacking, is)
		}
	}
}

// TestUndoNeedsTheDirectory: a claim never gets another directory than its own back, nor none.
func TestUndoNeedsTheDirectory(t *testing.T) {
	for says, change := range map[string]func(*world){
		"there is something at " + old:                      func(w *world) { w.inTheWay = true },
		"has neither volume pvc-1 nor the directory " + old: func(w *world) { w.taken, w.lost = false, true },
	} {
		w := newWorld(t)
		if err := w.apply(); err != nil {
			t.Fatal(err)
		}
		change(w)
		if err := w.undo(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %s: %v", says, err)
		}
		if is := w.state(); is != "no volume" {
			t.Errorf("%s: it is %s", says, is)
		}
		w.inTheWay, w.lost = false, false
		if err := w.undo(); err != nil || w.state() != isOld {
			t.Errorf("%s: then %v, and it is %s", says, err, w.state())
		}
	}
}

// TestUndoneWhileItIsEnforced: the run that waits for the node has it take nothing again.
func TestUndoneWhileItIsEnforced(t *testing.T) {
	w := newWorld(t)
	w.enforcing = 5
	m, undone := w.migration(&bytes.Buffer{}), false
	wait := m.Wait
	m.Wait = func(ctx context.Context) error {
		if pv := w.volume(); !undone && pv != nil && pv.Spec.CSI != nil {
			undone = true
			if err := w.undo(); err != nil {
				t.Error(err)
			}
		}
		return wait(ctx)
	}
	rows, err := m.Gather(t.Context())
	if err == nil {
		err = m.Apply(t.Context(), rows)
	}
	if !undone || err == nil || !strings.Contains(err.Error(), "another run of this command") {
		t.Errorf("undone %v, and then: %v", undone, err)
	}
	if is := w.state(); is != isOld {
		t.Errorf("it is %s", is)
	}
}

// TestUndoOfAMovedVolume: what is on another node by now keeps its PersistentVolume.
func TestUndoOfAMovedVolume(t *testing.T) {
	w := newWorld(t)
	if err := w.apply(); err != nil {
		t.Fatal(err)
	}
	pv := w.volume()
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"worker-2"}
	if _, err := w.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.undo(); err == nil || !strings.Contains(err.Error(), "moved to node worker-2") {
		t.Errorf("%v", err)
	}
	if is := w.state(); is != strings.Replace(isNew, "worker-1", "worker-2", 1) {
		t.Errorf("it is %s", is)
	}
}

// TestUndoWithoutAClaim: the old PersistentVolume must not have its data deleted.
func TestUndoWithoutAClaim(t *testing.T) {
	w := newWorld(t)
	if err := w.apply(); err != nil {
		t.Fatal(err)
	}
	claims := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	w.PrependReactor("delete", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		pvs := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
		return true, nil, errors.Join(w.Tracker().Delete(pvs, "", "pvc-1"), w.Tracker().Delete(claims, "shop", "data"))
	})
	if err := w.undo(); err == nil || !strings.Contains(err.Error(), "the claim is gone") {
		t.Errorf("%v", err)
	}
	if pv := w.volume(); pv.Spec.HostPath == nil ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("%+v", pv.Spec)
	}
}

// TestFinish restores the policy and replaces the class, but for one that somebody would bring back.
func TestFinish(t *testing.T) {
	for managed, want := range map[bool]string{false: driver, true: "rancher.io/local-path"} {
		w := newWorld(t)
		if err := w.apply(); err != nil {
			t.Fatal(err)
		}
		class, err := w.StorageV1().StorageClasses().Get(t.Context(), "local-path", metav1.GetOptions{})
		if err == nil && managed {
			class.Annotations["objectset.rio.cattle.io/id"] = ""
			_, err = w.StorageV1().StorageClasses().Update(t.Context(), class, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = w.migration(&out).Finish(t.Context(), true)
		if managed != (err != nil) || managed && (!strings.Contains(err.Error(), "k3s") ||
			!strings.Contains(err.Error(), "the claims are finished")) {
			t.Errorf("finish: %v", err)
		}
		is := w.state()
		if is != strings.Replace(strings.Replace(isNew, "Retain", "Delete", 1), "1 journals", "0 journals", 1) {
			t.Errorf("it is %s", is)
		}
		class, err = w.StorageV1().StorageClasses().Get(t.Context(), "local-path", metav1.GetOptions{})
		if err != nil || class.Provisioner != want ||
			class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
			t.Errorf("%+v, %v", class, err)
		}
		if err := w.undo(); err == nil {
			t.Error("it can be undone after it was finished")
		}
	}
}

// TestMistyped: another driver, claim or pool than those of what was begun changes nothing, and says so.
func TestMistyped(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*migrate.Migration)
		does   func(context.Context, *migrate.Migration) error
		says   string
	}{
		"undo of another driver": {
			func(m *migrate.Migration) { m.Driver = "other" },
			func(ctx context.Context, m *migrate.Migration) error { return m.Undo(ctx) }, "nothing to undo",
		},
		"undo of another claim": {
			func(m *migrate.Migration) { m.Claims = []string{"data", "typo"} },
			func(ctx context.Context, m *migrate.Migration) error { return m.Undo(ctx) }, "claim shop/typo: it was not",
		},
		"finish of another claim": {
			func(m *migrate.Migration) { m.Claims = []string{"typo"} },
			func(ctx context.Context, m *migrate.Migration) error { return m.Finish(ctx, true) },
			"claim shop/typo: it was not",
		},
		"class of another pool": {
			func(m *migrate.Migration) { m.Pool = "loca" },
			func(ctx context.Context, m *migrate.Migration) error { return m.Finish(ctx, true) },
			`is in pool "loca", so that no class is replaced`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if err := w.apply(); err != nil {
				t.Fatal(err)
			}
			before := w.state()
			m := w.migration(&bytes.Buffer{})
			test.change(m)
			if err := test.does(t.Context(), m); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
			class, err := w.StorageV1().StorageClasses().Get(t.Context(), "local-path", metav1.GetOptions{})
			if after := w.state(); err != nil || after != before || class.Provisioner == driver {
				t.Errorf("it is %s, was %s; class %v, %v", after, before, class, err)
			}
		})
	}
}

// TestFinishLeavesOtherClasses of the source that no migrated volume has.
func TestFinishLeavesOtherClasses(t *testing.T) {
	w := newWorld(t)
	other := storageClass()
	other.Name, other.UID = "local-path-device", "class-2"
	if err := errors.Join(w.Tracker().Add(other), w.apply()); err != nil {
		t.Fatal(err)
	}
	if err := w.migration(&bytes.Buffer{}).Finish(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"local-path": driver, "local-path-device": "rancher.io/local-path"} {
		class, err := w.StorageV1().StorageClasses().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || class.Provisioner != want {
			t.Errorf("%s: %v, %v; want one of %s", name, class, err, want)
		}
	}
}

// TestFinishWithoutItsClass is done, and says what is left to do where the rest of what was done is said.
func TestFinishWithoutItsClass(t *testing.T) {
	for by, want := range map[string]string{"": "--finish --replace-class", "Helm": "first remove it there"} {
		w := newWorld(t)
		if err := w.apply(); err != nil {
			t.Fatal(err)
		}
		class := storageClass()
		class.Labels = map[string]string{"app.kubernetes.io/managed-by": by}
		if _, err := w.StorageV1().StorageClasses().Update(t.Context(), class, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := w.migration(&out).Finish(t.Context(), false); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %s, %v", by, out.String(), err)
		}
	}
}

// TestFinishOfADeletedVolume: a PersistentVolume that somebody has deleted keeps no other claim from being finished.
func TestFinishOfADeletedVolume(t *testing.T) {
	w := newWorld(t)
	err := w.apply()
	if err == nil {
		err = w.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, "", "pvc-1")
	}
	if err == nil {
		err = w.migration(&bytes.Buffer{}).Finish(t.Context(), false)
	}
	if err != nil || w.state() != "no volume" || w.undo() == nil {
		t.Errorf("%s, %v", w.state(), err)
	}
}

// TestTwoAtOnce: of two who begin at once, one is told.
func TestTwoAtOnce(t *testing.T) {
	w := newWorld(t)
	m := w.migration(&bytes.Buffer{})
	rows, err := m.Gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, "migrate-claim-1")
	})
	if err := m.Apply(t.Context(), rows); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("%v", err)
	}
	if is := w.state(); is != isOld {
		t.Errorf("it is %s", is)
	}
}

// TestPlan is the table of what is planned.
func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*migrate.Candidate, *migrate.Options)
		how    string
		said   string
		bytes  int64
	}{
		"renamed": {func(*migrate.Candidate, *migrate.Options) {}, migrate.Rename, "", gibibyte},
		"not enforced": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Found.Enforceable = false },
			migrate.NotEnforced, "", gibibyte,
		},
		"other filesystem": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Found.SameMount = false },
			migrate.Copy, "other filesystem", gibibyte,
		},
		"uses more": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Found.Bytes = 5 * gibibyte },
			migrate.Rename, "--grow", gibibyte,
		},
		"grown": {
			func(c *migrate.Candidate, o *migrate.Options) { c.Found.Bytes, o.Grow = 5*gibibyte, true },
			migrate.Rename, "", 6 * gibibyte,
		},
		"not enforced, and uses more": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Found.Enforceable, c.Found.Bytes = false, 5*gibibyte },
			migrate.NotEnforced, "", gibibyte,
		},
		"not enforced, and grown": {
			func(c *migrate.Candidate, o *migrate.Options) {
				c.Found.Enforceable, c.Found.Bytes, o.Grow = false, 5*gibibyte, true
			}, migrate.NotEnforced, "", 6 * gibibyte,
		},
		"never enforced, and uses more": {
			func(c *migrate.Candidate, o *migrate.Options) {
				c.Found.Bytes, o.Enforce = 5*gibibyte, nodeapi.EnforceNever
			}, migrate.NotEnforced, "", gibibyte,
		},
		"grown, and uses less": {
			func(_ *migrate.Candidate, o *migrate.Options) { o.Grow = true }, migrate.Rename, "", gibibyte,
		},
		"twins": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Twins = []string{"pvc-9"} },
			migrate.Rename, "pvc-9", gibibyte,
		},
		"unseen": {
			func(c *migrate.Candidate, _ *migrate.Options) {
				c.Found, c.Unseen = nodeapi.Directory{}, `pool is in no configuration: "nope"`
			}, migrate.Unknown, `"nope"`, gibibyte,
		},
		"no node": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Node = "" },
			migrate.Rename, "affinity", gibibyte,
		},
		"missing": {
			func(c *migrate.Candidate, _ *migrate.Options) {
				c.Found = nodeapi.Directory{Problems: []string{"there is no directory"}}
			}, migrate.Rename, "no directory", gibibyte,
		},
		"made by hand": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.PV.Spec.HostPath.Path = "/opt/data/photos" },
			migrate.Rename, "/opt/data/photos is not one that rancher.io/local-path makes", gibibyte,
		},
		"in its directory": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.PV.Spec.HostPath.Path = old + "/sub" },
			migrate.Rename, "--any-path", gibibyte,
		},
		"another's": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.PV.Spec.HostPath.Path = "/opt/x/pvc-12_shop_data" },
			migrate.Rename, "--any-path", gibibyte,
		},
		"any path": {
			func(c *migrate.Candidate, o *migrate.Options) {
				c.PV.Spec.HostPath.Path, o.AnyPath = "/opt/data/photos", true
			}, migrate.Rename, "", gibibyte,
		},
		"openebs": {
			func(c *migrate.Candidate, o *migrate.Options) {
				c.PV.Spec.HostPath.Path, o.From = "/var/openebs/local/pvc-1", "openebs"
			}, migrate.Rename, "", gibibyte,
		},
		"not of openebs": {
			func(_ *migrate.Candidate, o *migrate.Options) { o.From = "openebs" },
			migrate.Rename, "openebs.io/local makes", gibibyte,
		},
		"legacy with a prefix": {
			func(c *migrate.Candidate, o *migrate.Options) {
				c.PV.Spec.HostPath.Path, o.From = "/var/hpvolumes/data-pvc-1", "kubevirt-legacy"
			}, migrate.Rename, "", gibibyte,
		},
		"used by its pod": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Found.UsedAt = "/data (process 7)" },
			migrate.Rename, "", gibibyte,
		},
		"used, and its pod is elsewhere": {
			func(c *migrate.Candidate, _ *migrate.Options) {
				c.Found.UsedAt, c.Pods[0].Spec.NodeName = "/data (process 7)", "worker-2"
			}, migrate.Rename, "in use at /data (process 7)", gibibyte,
		},
		"bare pod": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Pods[0].OwnerReferences = nil },
			migrate.Rename, "no owner", gibibyte,
		},
		"fsGroup": {
			func(c *migrate.Candidate, _ *migrate.Options) {
				c.Pods[0].Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(7))}
			}, migrate.Rename, "OnRootMismatch", gibibyte,
		},
		"fsGroup that changes nothing": {
			func(c *migrate.Candidate, _ *migrate.Options) {
				c.Pods[0].Spec.SecurityContext = &corev1.PodSecurityContext{
					FSGroup: new(int64(7)), FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
				}
			}, migrate.Rename, "", gibibyte,
		},
		"not bound": {
			func(c *migrate.Candidate, _ *migrate.Options) { c.Claim.Status.Phase = corev1.ClaimLost },
			migrate.Rename, "Lost", gibibyte,
		},
	} {
		c := migrate.Candidate{
			PV: *volume(), Claim: claim(), Pods: []corev1.Pod{*pod()}, Node: "worker-1", Owner: "statefulset/db",
			Found: nodeapi.Directory{Exists: true, SameMount: true, Enforceable: true, Bytes: 1, Files: 1},
		}
		o := migrate.Options{From: "local-path", Pool: "local", Enforce: nodeapi.EnforceNow}
		test.change(&c, &o)
		r := migrate.Plan(c, o)
		problems := strings.Join(r.Problems, "; ")
		if r.How != test.how || r.Bytes != test.bytes || (test.said == "") != (problems == "") ||
			!strings.Contains(problems, test.said) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestApplySaysWhatItWaitsFor says it at once, and now and then.
func TestApplySaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	var out bytes.Buffer
	m := w.migration(&out)
	rounds := 0
	m.Wait = func(context.Context) error {
		rounds++
		w.mounted = rounds < 8
		return nil
	}
	rows, err := m.Gather(t.Context())
	if err = errors.Join(err, m.Apply(t.Context(), rows)); err != nil {
		t.Fatal(err)
	}
	wants := "shop/data: waits until nothing uses " + old + " on node worker-1: used at /data (process 7)\n"
	if !strings.Contains(out.String(), "waits until 1 pods of it have ended, as db-0\n") ||
		strings.Count(out.String(), wants) != 2 {
		t.Error(out.String())
	}
}

// TestStillUsed says where a directory is used that never gets free.
func TestStillUsed(t *testing.T) {
	w := newWorld(t)
	m := w.migration(&bytes.Buffer{})
	m.Wait = func(context.Context) error { w.mounted = true; return nil }
	rows, err := m.Gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const says = "something on node worker-1 still uses " + old + ": used at /data (process 7); run the command again"
	if err := m.Apply(t.Context(), rows); err == nil || !strings.Contains(err.Error(), says) || w.taken {
		t.Errorf("%v, want %s", err, says)
	}
}

// TestGoesOnWithAnotherSize: what is full by the time that it is taken, without a volume, is gone on with.
func TestGoesOnWithAnotherSize(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*migrate.Migration)
		size   string
	}{
		"grow":  {func(m *migrate.Migration) { m.Grow = true }, "6Gi"},
		"never": {func(m *migrate.Migration) { m.Enforce = nodeapi.EnforceNever }, "1Gi"},
	} {
		w := newWorld(t)
		apply := func(change func(*migrate.Migration)) error {
			m := w.migration(&bytes.Buffer{})
			change(m)
			rows, err := m.Gather(t.Context())
			m.Ask = func(ctx context.Context, answer any, args ...string) error {
				if contains(args, []string{"take", fmt.Sprint(gibibyte), nodeapi.EnforceNow}) {
					return errors.New("size is below what the volume uses")
				}
				err := w.ask(ctx, answer, args...)
				if found, ok := answer.(*nodeapi.Directory); ok && found.Exists {
					found.Bytes = 5 * gibibyte
				}
				return err
			}
			return errors.Join(err, m.Apply(t.Context(), rows))
		}
		const says = "uses; --grow makes it larger, and --enforce never takes it as it is; run the command again"
		for range 2 {
			err := apply(func(*migrate.Migration) {})
			if err == nil || !strings.Contains(err.Error(), says) || w.volume() != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := apply(test.change); err != nil || w.state() != isNew {
			t.Fatalf("%s: %v; it is %s", name, err, w.state())
		}
		if size := w.volume().Spec.Capacity[corev1.ResourceStorage]; size.String() != test.size {
			t.Errorf("%s: it has %s", name, size.String())
		}
	}
}

// TestBegunIsFoundByName: a claim whose PersistentVolume is gone by now is in the plan, and is gone on with alone.
func TestBegunIsFoundByName(t *testing.T) {
	w := newWorld(t)
	w.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.fails == -1, nil, errFails
	})
	w.fails = -1
	if err := w.apply(); !errors.Is(err, errFails) || w.volume() != nil {
		t.Fatalf("%v; %+v", err, w.volume())
	}
	w.fails = 0
	for name, want := range map[string]string{"data": "begun: --apply goes on, --undo goes back", "other": ""} {
		m := w.migration(&bytes.Buffer{})
		m.Claims = []string{name}
		rows, err := m.Gather(t.Context())
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "shop/other has no volume of local-path") {
				t.Errorf("%s: %v", name, err)
			}
			if err := m.Apply(t.Context(), nil); err != nil || w.volume() != nil {
				t.Errorf("another claim was worked on: %v", err)
			}
			continue
		}
		var out bytes.Buffer
		if err = errors.Join(err, migrate.Write(&out, rows)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s, %v", out.String(), err)
		}
	}
	m := w.migration(&bytes.Buffer{})
	m.Claims = []string{"data"}
	rows, err := m.Gather(t.Context())
	if err = errors.Join(err, m.Apply(t.Context(), rows)); err != nil || w.state() != isNew {
		t.Errorf("%s, %v", w.state(), err)
	}
	rows, err = m.Gather(t.Context())
	if err != nil || len(rows) != 1 || !strings.HasPrefix(rows[0].Begun, "migrated") {
		t.Errorf("%+v, %v", rows, err)
	}
	w.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	})
	m.Claims = nil
	if rows, err = m.Gather(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("without the journals: %+v, %v", rows, err)
	}
}

// TestOverlap: a volume is not migrated that has files in common with one of anybody on its node.
func TestOverlap(t *testing.T) {
	for path, of := range map[string]struct {
		host     string
		overlaps bool
	}{
		old: {"host-1", true}, old + "/sub": {"host-1", true}, "/opt/local-path-provisioner": {"host-1", true},
		"/": {"host-1", true}, old + "/": {"", true}, old + "-2": {"host-1", false}, old + "/other": {"host-2", false},
	} {
		w := newWorld(t)
		other := volume()
		other.Name, other.UID, other.Annotations, other.Spec.ClaimRef = "by-hand", "pv-2", nil, nil
		other.Spec.HostPath.Path = path
		other.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = of.host
		if of.host == "" {
			other.Spec.NodeAffinity = nil
		}
		two := node("worker-2", "host-2")
		if err := errors.Join(w.Tracker().Add(other), w.Tracker().Add(&two)); err != nil {
			t.Fatal(err)
		}
		rows, err := w.migration(&bytes.Buffer{}).Gather(t.Context())
		if err != nil || len(rows) != 1 {
			t.Fatalf("%s: %+v, %v", path, rows, err)
		}
		said := strings.Join(rows[0].Problems, "; ")
		if strings.Contains(said, "by-hand") != of.overlaps || (said == "") == of.overlaps {
			t.Errorf("%s on %s: %q", path, of.host, said)
		}
	}
}

// TestSources knows the PersistentVolumes of each provisioner, and their nodes, whose names are not the labels.
func TestSources(t *testing.T) {
	nodes := []corev1.Node{node("worker-1", "host-1"), node("worker-2", "host-2")}
	openebs := volume()
	openebs.Annotations["pv.kubernetes.io/provisioned-by"] = "openebs.io/local"
	openebs.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
		Local: &corev1.LocalVolumeSource{Path: "/var/openebs/local/pvc-1"},
	}
	legacy := volume()
	legacy.Annotations = map[string]string{
		"pv.kubernetes.io/provisioned-by": "kubevirt.io/hostpath-provisioner",
		"kubevirt.io/provisionOnNode":     "worker-2",
	}
	legacy.Spec.NodeAffinity = nil
	ours := volume()
	ours.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}
	got := map[string]string{}
	for name, pv := range map[string]*corev1.PersistentVolume{
		"local-path": volume(), "openebs": openebs, "kubevirt-legacy": legacy, "ours": ours,
	} {
		for from := range migrate.Sources() {
			if (migrate.Options{From: from}).IsOf(pv) {
				got[name] = from + " on " + migrate.NodeOf(pv, nodes)
			}
		}
	}
	want := map[string]string{
		"local-path": "local-path on worker-1", "openebs": "openebs on worker-1",
		"kubevirt-legacy": "kubevirt-legacy on worker-2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestWrite shows a plan.
func TestWrite(t *testing.T) {
	w := newWorld(t)
	m := w.migration(&bytes.Buffer{})
	rows, err := m.Gather(t.Context())
	var out bytes.Buffer
	if err = errors.Join(err, migrate.Write(&out, rows)); err != nil {
		t.Fatal(err)
	}
	want := "CLAIM      NODE      SIZE  USED   FILES  HOW     STOPS           " +
		"PATH                                         PROBLEM\n" +
		"shop/data  worker-1  1Gi   512Mi  7      rename  statefulset/db  " + old + "  -\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func node(name, host string) corev1.Node {
	labels := map[string]string{"kubernetes.io/hostname": host}
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func size() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(gibibyte, resource.BinarySI)}
}

// volume is one as local-path writes it.
func volume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1", UID: "pv-1",
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "rancher.io/local-path"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size(), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "local-path",
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "claim-1"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: old, Type: new(corev1.HostPathDirectoryOrCreate)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{"host-1"},
				}}}},
			}},
		},
	}
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "claim-1"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-1", StorageClassName: new("local-path")},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-0", UID: "pod-1",
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "worker-1", Volumes: []corev1.Volume{{
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func objects() []runtime.Object {
	n := node("worker-1", "host-1")
	return []runtime.Object{volume(), claim(), pod(), &n, storageClass()}
}

func storageClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "local-path", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: "rancher.io/local-path", ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete),
	}
}
