package everynode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

const (
	provisionedBy = names.EveryNodeProvisioner
	waitsFor      = names.EveryNodeProvisioner + "-waits-for"
)

// asPrinted: the claim of the seed, in the cluster's default class. When it is bound, every node has the directory.
func asPrinted(t *testing.T, w *world) {
	c := claim("")
	c.Spec.StorageClassName = nil
	w.Create(t, c)
	pv := w.bound(t, c)
	name := "default-hostpath-multihost-test-claim-pvc-" + string(c.UID)
	for node := range w.disks {
		info, err := os.Stat(filepath.Join(w.disks[node], name))
		if err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("on %s: %v, error %v; want drwxrwxrwx", node, info, err)
		}
		w.write(t, node, pv)
	}
	if pv.Spec.HostPath.Path != filepath.Join(w.base, name) || pv.Spec.NodeAffinity != nil ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		pv.Spec.Capacity.Storage().String() != "1Mi" || pv.Spec.StorageClassName != seedClass ||
		!slices.Equal(pv.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}) ||
		pv.Annotations[names.EveryNodeIdentity(provisionedBy)] != provisionedBy ||
		pv.Annotations[names.ProvisionedBy] != provisionedBy {
		t.Errorf("volume %+v, annotations %v", pv.Spec, pv.Annotations)
	}
	w.ended(t, c, pv)
}

func accessModes(t *testing.T, w *world) {
	for _, modes := range [][]corev1.PersistentVolumeAccessMode{
		{corev1.ReadWriteOnce},
		{corev1.ReadOnlyMany},
		{corev1.ReadWriteOncePod},
		{corev1.ReadWriteOnce, corev1.ReadWriteMany},
	} {
		c := claim(seedClass)
		c.Spec.AccessModes = modes
		w.Create(t, c)
		pv := w.bound(t, c)
		if !slices.Equal(pv.Spec.AccessModes, modes) {
			t.Errorf("access modes %v, want %v", pv.Spec.AccessModes, modes)
		}
		w.ended(t, c, pv)
		w.Gone(t, c)
	}
}

// ask makes a request to the manager of a node, as the provisioner does but for the token.
func (w *world) ask(t *testing.T, node, method, token string, fields url.Values) (int, string) {
	t.Helper()
	registry := harness.Get(t, w.Server, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: managerName,
	}})
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(registry.Data[node])) {
		t.Fatalf("%s has registered %q", node, registry.Data[node])
	}
	target := "https://" + address(node) + ":" + names.EveryNodePort + "/directories"
	body := io.Reader(strings.NewReader(fields.Encode()))
	if method != http.MethodPost {
		target, body = target+"?"+fields.Encode(), http.NoBody
	}
	request, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	config := &tls.Config{RootCAs: roots, ServerName: names.EveryNodeManager}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(text))
}

// strangers: whose token it is decides, whatever is asked for.
func strangers(t *testing.T, w *world) {
	w.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "stranger"}})
	pod := harness.Get(t, w.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: "provisioner",
	}})
	its := pod.DeepCopy()
	its.ObjectMeta = metav1.ObjectMeta{Namespace: harness.Namespace, Name: "stranger"}
	its.Spec.ServiceAccountName, its.Spec.DeprecatedServiceAccount = "stranger", "stranger"
	w.Create(t, its)
	_, pv := w.made(t, "retains")
	account := "system:serviceaccount:" + harness.Namespace + ":"
	const unknown = "the API does not accept the token for the audience hostpath-multihost-manager"
	for what, test := range map[string]struct {
		token  string
		status int
		text   string
	}{
		"no token":         {"", http.StatusUnauthorized, "show the provisioner's token"},
		"no real token":    {"secret", http.StatusUnauthorized, unknown},
		"another audience": {w.Token(t, provisionerName, "https://example.com", pod), http.StatusUnauthorized, unknown},
		"another account's": {
			w.Token(t, "stranger", names.EveryNodeManager, its), http.StatusForbidden,
			"the token is that of " + account + "stranger, not of " + account + provisionerName,
		},
		"a manager's": {
			w.Token(t, managerName, names.EveryNodeManager, nil), http.StatusForbidden,
			"the token is that of " + account + managerName + ", not of " + account + provisionerName,
		},
		"of no pod": {
			w.Token(t, provisionerName, names.EveryNodeManager, nil), http.StatusForbidden,
			"the token was made for no pod",
		},
	} {
		fields := url.Values{"path": {pv.Spec.HostPath.Path}, "volume": {pv.Name}}
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			harness.Eventually(t, "an answer that is no back-off", func(context.Context) error {
				status, text := w.ask(t, "node-1", method, test.token, fields)
				if status == http.StatusTooManyRequests {
					return errors.New(text)
				}
				if status != test.status || text != test.text {
					t.Errorf("%s: %s: %d %q, want %d %q", what, method, status, text, test.status, test.text)
				}
				return nil
			})
		}
	}
	w.keeps(t, "node-1", pv)
	w.Delete(t, claim(""))
	w.released(t, pv)
	w.removed(t, pv)
}

// onlyWhatAsks: not even the provisioner can have a directory removed whose volume is in use, or that has none.
func onlyWhatAsks(t *testing.T, w *world) {
	c, pv := w.made(t, seedClass)
	token, err := os.ReadFile(w.token)
	if err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(w.disks["node-1"], "default-a-pvc-1")
	if err := os.Mkdir(orphan, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, volume, want string }{
		{pv.Spec.HostPath.Path, pv.Name, "PersistentVolume " + pv.Name +
			" does not ask that this directory be removed: it is Bound, with policy Delete; nothing is removed"},
		{filepath.Join(w.base, "default-a-pvc-1"), "pvc-1", `there is no PersistentVolume "pvc-1"; nothing is removed`},
	} {
		fields := url.Values{"path": {test.path}, "volume": {test.volume}}
		status, text := w.ask(t, "node-1", http.MethodDelete, string(token), fields)
		if status != http.StatusConflict || text != test.want {
			t.Errorf("%d %q, want %q", status, text, test.want)
		}
	}
	w.keeps(t, "node-1", pv)
	if err := os.Remove(orphan); err != nil {
		t.Error(err)
	}
	w.ended(t, c, pv)
}

// downAtClaimTime: it holds nobody up, the claim's user is told, and it makes what it lacks when it returns.
func downAtClaimTime(t *testing.T, w *world) {
	w.down(t, "node-2")
	c, pv := w.made(t, seedClass)
	w.has(t, "node-1", pv)
	w.has(t, "node-2")
	w.has(t, "node-3", pv)
	w.event(t, c, "NodesAway", "pods wait for it there: node-2")
	if is := pv.Spec.HostPath.Type; is == nil || *is != corev1.HostPathDirectory {
		t.Errorf("type %v: a pod on node-2 would get a directory of its container runtime", is)
	}
	w.start(t, "node-2")
	w.has(t, "node-2", pv)
	if info, err := os.Stat(w.on("node-2", pv)); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, error %v; want drwxrwxrwx", info, err)
	}
	w.ended(t, c, pv)
}

// joins: a new node makes the directories of the volumes that there are.
func joins(t *testing.T, w *world) {
	c, pv := w.made(t, seedClass)
	w.join(t, "node-4")
	w.has(t, "node-4", pv)
	w.ended(t, c, pv)
}

// downAtDeletion: the claim is gone at once, the volume waits for the node, whatever becomes of the provisioner and of
// the other nodes meanwhile, and the node cleans up when it returns.
func downAtDeletion(t *testing.T, w *world) {
	c, pv := w.made(t, seedClass)
	w.down(t, "node-2")
	w.Delete(t, c)
	w.Gone(t, c)
	w.event(t, pv, "VolumeFailedDelete",
		"the volume's directory is not yet removed on 1 of its nodes: node node-2: its manager is not ready")
	for _, node := range []string{"node-1", "node-3", "node-4"} {
		w.has(t, node)
	}
	harness.Until(t, w.Server, "the volume says what it waits for", pv, func(v *corev1.PersistentVolume) error {
		if got, want := v.Annotations[waitsFor], string(c.UID)+":node-2"; got != want {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
	w.provisioner.Kill(t)
	w.provisioner = w.runProvisioner(t)
	w.down(t, "node-3")
	w.keeps(t, "node-2", pv)
	w.start(t, "node-2")
	w.Gone(t, pv)
	w.has(t, "node-2")
	w.start(t, "node-3")
}

// saved: an administrator who retains the volume while it waits for a node finds there what it had.
func saved(t *testing.T, w *world) {
	c, pv := w.made(t, seedClass)
	w.down(t, "node-2")
	w.Delete(t, c)
	w.has(t, "node-1")
	harness.Change(t, w.Server, pv, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	w.start(t, "node-2")
	other := claim(seedClass)
	other.Name = "other"
	w.Create(t, other) // with its end the provisioner has seen all that was before
	its := w.bound(t, other)
	w.Delete(t, other)
	w.Gone(t, its)
	w.keeps(t, "node-2", pv)
	harness.Change(t, w.Server, pv, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	w.Gone(t, pv)
	w.has(t, "node-2")
}

// deletedForGood: nobody waits for a node without Node object for longer than was said, and an event names it.
func deletedForGood(t *testing.T, w *world) {
	c, pv := w.made(t, seedClass)
	w.down(t, "node-4")
	w.Delete(t, c)
	w.event(t, pv, "VolumeFailedDelete", "node node-4: its manager is not ready")
	w.nodes.Leave(t, "node-4")
	w.event(t, pv, "NodeGivenUp", "node node-4 is given up: data of the volume may remain on its disk, in "+
		pv.Spec.HostPath.Path)
	w.Gone(t, pv)
	registry := harness.Get(t, w.Server, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: managerName,
	}})
	if _, found := registry.Data["node-4"]; found || len(registry.Data) != 3 {
		t.Errorf("%d nodes are registered, node-4 among them: %v", len(registry.Data), found)
	}
	w.keeps(t, "node-4", pv)
	delete(w.disks, "node-4")
	for node := range w.disks {
		w.has(t, node)
	}
}

// deletedByHand: the finalizer keeps a volume until its data is gone, also when it was deleted before its claim.
func deletedByHand(t *testing.T, w *world) {
	c, pv := w.made(t, seedClass)
	w.down(t, "node-1")
	w.Delete(t, pv)
	w.Delete(t, c)
	w.event(t, pv, "VolumeFailedDelete", "node node-1: its manager is not ready")
	w.Delete(t, pv)
	w.keeps(t, "node-1", pv)
	w.start(t, "node-1")
	w.Gone(t, pv)
	for node := range w.disks {
		w.has(t, node)
	}
}

// takenOver: a volume as kubeboost's provisioner left it, with its directory on two nodes.
func takenOver(t *testing.T, w *world) {
	c := claim(seedClass)
	c.Name, c.Spec.VolumeName = "old", "pvc-11111111-2222-3333-4444-555555555555"
	w.Create(t, c)
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName, Annotations: map[string]string{
			names.EveryNodeIdentity(provisionedBy): provisionedBy, names.ProvisionedBy: provisionedBy,
		}},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: seedClass, AccessModes: c.Spec.AccessModes, Capacity: c.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: filepath.Join(w.base, "default-old-"+c.Spec.VolumeName),
			}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
			},
		},
	}
	for _, node := range []string{"node-1", "node-2"} {
		if err := os.Mkdir(w.on(node, pv), 0o700); err != nil { // as its pods have left it
			t.Fatal(err)
		}
		w.write(t, node, pv)
	}
	w.Create(t, pv)
	w.bound(t, c)
	w.has(t, "node-3", pv)
	for _, node := range []string{"node-1", "node-2"} {
		w.keeps(t, node, pv)
		if info, err := os.Stat(w.on(node, pv)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("on %s: %v, error %v; want it as it was", node, info, err)
		}
	}
	w.ended(t, c, pv)
}

func retained(t *testing.T, w *world) {
	c, pv := w.made(t, "retains")
	w.Delete(t, c)
	w.released(t, pv)
	w.removed(t, pv)
}

// reusedBySame: the next claim of the name has the volume with its data; one of another name has not.
func reusedBySame(t *testing.T, w *world) {
	c, pv := w.made(t, "same")
	w.Delete(t, c)
	w.Gone(t, c)
	w.available(t, pv)
	other := claim("same")
	other.Name = "other"
	w.Create(t, other)
	if got := w.bound(t, other); got.Name == pv.Name {
		t.Errorf("a claim of another name has got %s", got.Name)
	}
	again := claim("same")
	w.Create(t, again)
	if got := w.bound(t, again); got.Name != pv.Name {
		t.Errorf("the claim of the same name has got %s, want %s", got.Name, pv.Name)
	}
	for node := range w.disks {
		w.keeps(t, node, pv)
	}
	w.end(t, again, other)
}

// reusedByAny: the next claim has the volume with its data, of whatever namespace.
func reusedByAny(t *testing.T, w *world) {
	c, pv := w.made(t, "always")
	for range 2 {
		w.Delete(t, c)
		w.Gone(t, c)
		w.available(t, pv)
		c = claim("always")
		c.Namespace, c.Name = harness.Namespace, "other"
		w.Create(t, c)
		if got := w.bound(t, c); got.Name != pv.Name {
			t.Errorf("the next claim has got %s, want %s", got.Name, pv.Name)
		}
	}
	for node := range w.disks {
		w.keeps(t, node, pv)
	}
	w.end(t, c)
}

func neverReused(t *testing.T, w *world) {
	c, pv := w.made(t, "never")
	w.Delete(t, c)
	w.Gone(t, c)
	again := claim("never")
	w.Create(t, again)
	if got := w.bound(t, again); got.Name == pv.Name {
		t.Error("the next claim has got the volume")
	}
	if now := harness.Get(t, w.Server, pv); now.Status.Phase != corev1.VolumeReleased ||
		now.Spec.ClaimRef.UID != c.UID {
		t.Errorf("it is %s, claim %+v", now.Status.Phase, now.Spec.ClaimRef)
	}
	w.removed(t, pv)
	w.end(t, again)
}

// available waits until a volume is for somebody else.
func (w *world) available(t *testing.T, pv *corev1.PersistentVolume) {
	t.Helper()
	harness.Until(t, w.Server, "the volume is available", pv, func(v *corev1.PersistentVolume) error {
		if v.Status.Phase != corev1.VolumeAvailable {
			return fmt.Errorf("it is %s", v.Status.Phase)
		}
		return nil
	})
}

// end deletes claims of retaining classes with all that they have.
func (w *world) end(t *testing.T, claims ...*corev1.PersistentVolumeClaim) {
	t.Helper()
	for _, c := range claims {
		pv := w.bound(t, c)
		harness.Change(t, w.Server, pv, func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		})
		w.Delete(t, c)
		w.Gone(t, pv)
	}
	for node := range w.disks {
		w.has(t, node)
	}
}

// unknownPolicy: a typo provisions nothing, and the claim goes on when it is corrected.
func unknownPolicy(t *testing.T, w *world) {
	class := harness.Get(t, w.Server, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}})
	key := names.ReusePolicy(provisionedBy)
	class.Annotations = map[string]string{key: "Sometimes"}
	if err := w.Client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	c := claim("unknown")
	w.Create(t, c)
	w.event(t, c, "ProvisioningFailed",
		"StorageClass unknown: annotation "+key+`: "Sometimes": want Never, SamePVCName or Always`)
	for node := range w.disks {
		w.has(t, node)
	}
	class.Annotations[key] = "Never"
	if err := w.Client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	w.ended(t, c, w.bound(t, c))
}

// takesOver: of two instances one works, and the other one when that ends.
func takesOver(t *testing.T, w *world) {
	second := w.runProvisioner(t)
	c, pv := w.made(t, seedClass)
	if strings.Contains(second.Log(), pv.Name) {
		t.Errorf("both instances work:\n%s", second.Log())
	}
	w.provisioner.Stop(t)
	w.ended(t, c, pv)
	if !strings.Contains(second.Log(), pv.Name) {
		t.Errorf("the second instance did nothing:\n%s", second.Log())
	}
	w.provisioner = second
}
