package repair_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster/clustertest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/repair"
)

var errUsage = errors.New("wrong command line")

// plugin is the commands with a cluster in memory, and a controller that answers each command in turn.
type plugin struct {
	api     *fake.Clientset
	answers map[string][]string // by command; the last one stays
	asked   []string
}

// exited is a command that has ended badly.
type exited struct{}

func (exited) Error() string   { return "command terminated with exit code 1" }
func (exited) ExitStatus() int { return 1 }

func (p *plugin) exec(ctx context.Context, command []string) (stdout, stderr []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	asked := strings.TrimSuffix(strings.TrimPrefix(strings.Join(command, " "), "/controller "), " --output json")
	p.asked = append(p.asked, asked)
	answers, ok := p.answers[asked]
	if !ok {
		panic("nobody expected: " + asked)
	}
	if len(answers) > 1 {
		p.answers[asked] = answers[1:]
	}
	if refused, ok := strings.CutPrefix(answers[0], "refused: "); ok {
		return nil, []byte("controller: the driver refused: " + refused + "\n"), exited{}
	}
	return []byte(answers[0]), nil, nil
}

func (p *plugin) run(ctx context.Context, line string) (printed, problems string, err error) {
	var out, bad bytes.Buffer
	root := &cobra.Command{Use: "kubectl hpp", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(&out)
	root.SetErr(&bad)
	root.SetArgs(strings.Fields(line))
	root.AddCommand(repair.Commands(repair.Config{
		IOStreams: genericclioptions.IOStreams{In: strings.NewReader("yes\n"), Out: &out, ErrOut: &bad},
		Kubectl:   func() string { return "kubectl --context prod" },
		API:       func() (kubernetes.Interface, error) { return p.api, nil },
		Controller: func(context.Context) (*remote.Controller, error) {
			return &remote.Controller{
				At: cluster.Controller{
					Namespace:   "hpp",
					Pod:         "controller-0",
					Driver:      "hpp",
					TopologyKey: "topology/node",
				},
				Exec: p.exec,
			}, nil
		},
		Namespace: func() (string, error) { return "shop", nil }, Usage: errUsage,
	})...)
	err = root.ExecuteContext(ctx)
	return out.String(), bad.String(), err
}

// must runs a command that prints what is wanted.
func (p *plugin) must(t *testing.T, line, want string) {
	t.Helper()
	got, _, err := p.run(t.Context(), line)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%s: %v\n%s", line, err, diff)
	}
}

// fails runs a command that ends with an error, which has all parts.
func (p *plugin) fails(t *testing.T, line string, as error, parts ...string) {
	t.Helper()
	got, _, err := p.run(t.Context(), line)
	if !errors.Is(err, as) {
		t.Errorf("%s: %v, want %v; printed: %s", line, err, as, got)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q is not in: %v", line, part, err)
		}
	}
}

const (
	trash = `[
{"entry": "pvc-1.1795", "node": "worker-1", "id": "pvc-1", "pool": "local", "claim": "shop/data", "bytes": 1073741824,
 "deleted": "2026-11-21T12:00:00Z"},
{"entry": "pvc-2.1796", "node": "worker-2", "id": "pvc-2", "pool": "local", "claim": "shop/data", "bytes": 5,
 "deleted": "2026-11-22T12:00:00Z"},
{"entry": "pvc-3.1797", "node": "worker-2", "id": "pvc-3", "pool": "nvme0", "claim": "shop/other", "bytes": 5,
 "deleted": "2026-11-22T12:00:00Z"},
{"node": "worker-3", "state": "node worker-3 is not connected"}]`

	listed = `[
{"id": "pvc-1", "node": "worker-1", "pool": "local", "claim": "shop/data", "bytes": 1073741824, "used": -1,
 "pv": "pvc-1"},
{"id": "pvc-2", "node": "worker-2", "pool": "local", "claim": "shop/data", "bytes": 5, "used": -1, "state": "orphan"},
{"id": "pvc-3", "node": "worker-2", "pool": "nvme0", "claim": "shop/other", "bytes": 2048, "used": -1,
 "state": "orphan"},
{"id": "snapshot-1", "node": "worker-2", "pool": "nvme0", "claim": "shop/other", "snapshotOf": "pvc-3", "used": -1}]`
)

// manifests are what the controller gives for a volume.
func manifests(id, claim string) string {
	return fmt.Sprintf(`{"manifests": [
{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %[1]q},
 "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "hpp", "volumeHandle": %[1]q}}},
{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": %[2]q},
 "spec": {"volumeName": %[1]q}}]}`, id, claim)
}

func class(name, driver, pool string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
		},
		Provisioner: driver,
		Parameters:  map[string]string{"storagePool": pool},
	}
}

func classes(lacking ...string) *fake.Clientset {
	return clustertest.Allow(fake.NewClientset(
		class("fast", "hpp", "nvme*"),
		class("slow", "hpp", "local"),
		class("theirs", "x", "local"),
	), lacking...)
}

const undeleted = `apiVersion: v1
kind: PersistentVolume
metadata:
  name: pvc-3
spec:
  capacity:
    storage: 1Gi
  csi:
    driver: hpp
    volumeHandle: pvc-3
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: other
  namespace: shop
spec:
  volumeName: pvc-3
`

const (
	undelete3 = "volume undelete pvc-3.1797 --node worker-2 --storage-class fast"
	undelete1 = "volume undelete pvc-1.1795 --node worker-1 --storage-class slow"
)

// TestUndelete: node, entry and class are found, and what is not clear is asked.
func TestUndelete(t *testing.T) {
	p := &plugin{api: classes(), answers: map[string][]string{
		"volume list --deleted": {
			trash,
		},
		"volume list": {strings.ReplaceAll(listed, "shop/other", "shop/back")},
		undelete3:     {manifests("pvc-3", "other")},
		undelete1:     {manifests("pvc-1", "data")},
	}}
	for _, name := range []string{"other", "shop/other", "pvc-3", "pvc-3.1797"} {
		p.must(t, "undelete "+name, undeleted)
	}
	p.fails(t, "undelete data", repair.ErrAmbiguous, "\n  pvc-2.1796 on worker-2, deleted 2026-11-22T12:00:00Z\n"+
		"  pvc-1.1795 on worker-1, deleted 2026-11-21T12:00:00Z")
	p.fails(t, "undelete lost", repair.ErrNotFound, "shop/lost", "node worker-3 is not connected")
	p.fails(t, "undelete back --apply", repair.ErrNotFound, "shop/back", "not connected; but volume pvc-3 is on node "+
		"worker-2, without a PersistentVolume: kubectl hpp adopt pvc-3 --node worker-2 --apply")
	p.fails(t, "undelete", errUsage, "0 names")
	if all, _ := p.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{}); len(all.Items) > 0 {
		t.Errorf("without --apply there are %v", all.Items)
	}
	const made = "persistentvolume/pvc-1 created\npersistentvolumeclaim/data created in shop\n"
	p.must(t, "undelete data --node worker-1 --apply", made)
	p.must(t, "undelete pvc-1 --apply",
		"persistentvolume/pvc-1 is there already\npersistentvolumeclaim/data is there already\n")
	p.asked = nil
	p.fails(t, "undelete pvc-2 --apply", repair.ErrRefused, "claim shop/data is there, with volume pvc-1")
	if diff := cmp.Diff([]string{"volume list --deleted"}, p.asked); diff != "" {
		t.Errorf("asked beside: %s", diff)
	}
	p.api = fake.NewClientset(class("a", "hpp", "nvme0,nvme1"), class("b", "hpp", "nvme*"))
	p.fails(t, "undelete pvc-3", errUsage, "several StorageClasses", "--class a, or --class b")
	p.fails(t, "undelete pvc-1", errUsage, "no StorageClass of hpp names pool local")
	p.must(t, "undelete pvc-3 --class fast", undeleted)
	p.answers[undelete3] = []string{"refused: node worker-2: there is no room"}
	p.fails(t, "undelete pvc-3 --class fast", remote.ErrRefused, "there is no room")
	p.answers[undelete3] = []string{`{"manifests": [`}
	p.fails(t, "undelete pvc-3 --class fast", remote.ErrCutOff)
}

// TestHalfMade: what could not be created is printed, and said.
func TestHalfMade(t *testing.T) {
	p := &plugin{api: classes(), answers: map[string][]string{
		"volume list --deleted": {trash}, undelete3: {manifests("pvc-3", "other")},
	}}
	theirs := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-3"}}
	if err := p.api.Tracker().Add(theirs); err != nil {
		t.Fatal(err)
	}
	got, _, err := p.run(t.Context(), "undelete pvc-3 --apply")
	if !errors.Is(err, repair.ErrHalfMade) || got != undeleted ||
		!strings.Contains(err.Error(), "volume pvc-3 is on node worker-2, without a PersistentVolume") ||
		!strings.Contains(err.Error(), "is another volume's") {
		t.Errorf("%s, %v", got, err)
	}
}

// TestNoRights: a volume is not brought back for whoever may not create what it needs then.
func TestNoRights(t *testing.T) {
	for lacking, says := range map[string]string{
		"create persistentvolumes":      "you may not create persistentvolumes;",
		"create persistentvolumeclaims": "you may not create persistentvolumeclaims in namespace shop;",
	} {
		p := &plugin{api: classes(lacking), answers: map[string][]string{
			"volume list --deleted": {trash}, "volume list": {listed},
		}}
		p.fails(t, "undelete pvc-3 --apply", repair.ErrRefused, says, "without --apply the manifests are printed")
		p.fails(t, "adopt pvc-3 --apply", repair.ErrRefused, says)
		p.fails(t, "adopt other --node worker-2 --class fast --apply", repair.ErrRefused, says)
		if diff := cmp.Diff([]string{"volume list --deleted", "volume list", "volume list"}, p.asked); diff != "" {
			t.Errorf("asked beside: %s", diff)
		}
	}
}

func TestAdopt(t *testing.T) {
	const adopt = "volume adopt pvc-3 --node worker-2 --storage-class fast"
	p := &plugin{api: classes(), answers: map[string][]string{
		"volume list": {listed}, adopt: {manifests("pvc-3", "other")},
		"volume adopt old --node worker-2 --storage-class slow --size 10Gi": {manifests("old", "old")},
	}}
	p.must(t, "adopt other", undeleted)
	p.must(t, "adopt pvc-3 --apply", "persistentvolume/pvc-3 created\npersistentvolumeclaim/other created in shop\n")
	p.must(t, "adopt old --node worker-2 --class slow --size 10Gi --apply",
		"persistentvolume/old created\npersistentvolumeclaim/old created in shop\n")
	p.fails(t, "adopt old", repair.ErrNotFound, "--node")
	p.fails(t, "adopt old --node worker-2", errUsage, "--class")
	p.fails(t, "adopt", errUsage, "no names")
}

// TestAdoptOnANode, where another has a volume of that id, too.
func TestAdoptOnANode(t *testing.T) {
	const two = `[{"id": "pvc-3", "node": "worker-1", "pool": "nvme0", "claim": "shop/other", "state": "orphan"},
{"id": "pvc-3", "node": "worker-2", "pool": "nvme0", "claim": "shop/other", "state": "orphan"}]`
	p := &plugin{api: classes(), answers: map[string][]string{
		"volume list": {two}, "volume adopt pvc-3 --node worker-2 --storage-class fast": {manifests("pvc-3", "other")},
	}}
	p.fails(t, "adopt pvc-3", repair.ErrAmbiguous, "on worker-1", "on worker-2")
	p.must(t, "adopt pvc-3 --node worker-2", undeleted)
	p.must(t, "adopt other --node worker-2 --class fast", undeleted)
}

// TestAdoptSeveral: each is tried, of those that fail it is said, and what is printed is one stream.
func TestAdoptSeveral(t *testing.T) {
	const fast, slow = " --node worker-2 --storage-class fast", " --node worker-2 --storage-class slow"
	p := &plugin{api: classes(), answers: map[string][]string{
		"volume list":               {listed},
		"volume adopt pvc-3" + fast: {manifests("pvc-3", "other")},
		"volume adopt pvc-2" + slow: {manifests("pvc-2", "data"), "refused: node worker-2: there is no room"},
	}}
	one := strings.NewReplacer("pvc-3", "pvc-2", "name: other", "name: data").Replace(undeleted)
	p.must(t, "adopt pvc-2 pvc-3", one+"---\n"+undeleted)
	got, _, err := p.run(t.Context(), "adopt --apply pvc-2 snapshot-1 lost pvc-3")
	if want := "persistentvolume/pvc-3 created\npersistentvolumeclaim/other created in shop\n"; got != want {
		t.Errorf("printed %s", got)
	}
	if !errors.Is(err, repair.ErrSome) || errors.Is(err, errUsage) || strings.Contains(err.Error(), "pvc-3") {
		t.Errorf("got %v", err)
	}
	for _, part := range []string{
		": 3 of 4:\n  pvc-2: the controller refused", "there is no room\n  snapshot-1: not found: snapshot-1 is a snap",
		"\n  lost: not found: no volume is named lost",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

// TestGivenUp: what cannot be undone is asked, or has to be said with the command.
func TestGivenUp(t *testing.T) {
	p := &plugin{answers: map[string][]string{
		"status": {`{"nodes": [{"name": "worker-2", "state": "connected", "pools": [{"name": "nvme0"}]},
			{"name": "worker-9", "state": "not connected"}]}`},
		"volume list":                                           {listed},
		"volume discard pvc-3 --node worker-2":                  {`{"message": "volume pvc-3 is in the trash"}`},
		"volume discard pvc-9 --node worker-1 --pv-on worker-2": {`{"message": "volume pvc-9 is in the trash"}`},
		"volume discard pvc-2 --node worker-2":                  {"refused: node worker-2: it is mounted"},
		"pool forget nvme0 --node worker-2":                     {`{"message": "pool nvme0 is forgotten on worker-2"}`},
		"pool take nfs --from 77 --node worker-2":               {"refused: node worker-2: it belongs to 78"},
	}}
	p.must(t, "discard pvc-3 --yes", "volume pvc-3 is in the trash\n")
	p.must(t, "discard pvc-9 --node worker-1 --pv-on worker-2 -y", "volume pvc-9 is in the trash\n")
	p.must(t, "pool forget nvme0 --node worker-2 --yes", "pool nvme0 is forgotten on worker-2\n")
	p.fails(t, "pool take nfs --from 77 --node worker-2 --yes", remote.ErrRefused, "it belongs to 78")
	p.fails(t, "discard pvc-2 pvc-9 pvc-3 --yes", repair.ErrSome, ": 2 of 3:\n  pvc-2: the controller refused",
		"it is mounted\n  pvc-9: not found")
	if !slices.Contains(p.asked, "volume discard pvc-3 --node worker-2") {
		t.Errorf("asked %v", p.asked)
	}
	p.fails(t, "discard pvc-2 pvc-3", errUsage, "2 volumes go into the trash:\n  pvc-2 on node worker-2, made for "+
		"shop/data\n  pvc-3 on node worker-2, made for shop/other\n")
	p.asked = nil
	p.fails(t, "discard pvc-3", errUsage, "Volume pvc-3 on node worker-2 goes into the trash.", "--yes")
	p.fails(t, "pool forget nvme0 --node worker-2", errUsage, "--yes")
	p.fails(t, "pool forget nvme0 --node worker-9", errUsage, "--yes")
	p.fails(t, "pool forget nvme9 --node worker-2", repair.ErrNotFound, "node worker-2 shows no pool nvme9", "--yes")
	p.fails(t, "pool forget nvme0 --node worker-3", repair.ErrNotFound, "knows no node worker-3")
	if diff := cmp.Diff([]string{"volume list", "status", "status", "status", "status"}, p.asked); diff != "" {
		t.Errorf("asked beside: %s", diff)
	}
}

// volume is a PersistentVolume on a node.
func volume(name, driver, node string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeReclaimPolicy: policy,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: "of-" + name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "topology/node", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}}}},
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// TestRelease: only volumes of this driver on that node are given up, and none while it is connected.
func TestRelease(t *testing.T) {
	everywhere := volume("everywhere", "hpp", "", corev1.PersistentVolumeReclaimDelete)
	everywhere.Spec.NodeAffinity = nil
	elsewhere := volume("c", "hpp", "worker-2", corev1.PersistentVolumeReclaimDelete)
	elsewhere.Spec.ClaimRef.Namespace = "blog"
	elsewhere.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("1500M")
	released := volume("d", "hpp", "worker-2", corev1.PersistentVolumeReclaimDelete)
	released.Status.Phase = corev1.VolumeReleased // its claim is gone
	p := &plugin{
		api: fake.NewClientset(volume("a", "hpp", "worker-2", corev1.PersistentVolumeReclaimDelete),
			volume("b", "hpp", "worker-2", corev1.PersistentVolumeReclaimRetain), elsewhere, released,
			volume("other", "hpp", "worker-1", corev1.PersistentVolumeReclaimDelete),
			volume("theirs", "x", "worker-2", corev1.PersistentVolumeReclaimDelete), everywhere),
		answers: map[string][]string{"status": {`{"nodes": [{"name": "worker-1", "state": "connected"},
			{"name": "worker-2", "state": "not connected"}]}`}},
	}
	const table = `PV  CLAIM      PHASE     SIZE   WHEN THE CLAIM IS DELETED
a   shop/of-a  Bound     1Gi    the PersistentVolume goes
b   shop/of-b  Bound     1Gi    the PersistentVolume stays (Retain) until you delete it
c   blog/of-c  Bound     1.3Gi  the PersistentVolume goes
d   shop/of-d  Released  1Gi    the PersistentVolume goes

`
	p.fails(t, "node release worker-1 --apply", repair.ErrRefused, "node worker-1 is connected")
	p.must(t, "node release worker-2", table+"Nothing was changed. --apply gives them up.\n")
	if got := p.released(t); len(got) > 0 {
		t.Errorf("without --apply: %v", got)
	}
	p.must(t, "node release worker-2 --apply", table+"4 PersistentVolumes are given up: each goes with its claim. "+
		"Now delete the claims whose data is lost:\n\nkubectl --context prod delete pvc --namespace blog of-c\n"+
		"kubectl --context prod delete pvc --namespace shop of-a of-b\n")
	if diff := cmp.Diff([]string{"a of worker-2", "b of worker-2", "c of worker-2", "d of worker-2"},
		p.released(t)); diff != "" {
		t.Error(diff)
	}
	p.must(t, "node release worker-9", "no PersistentVolume of hpp is on node worker-9: nothing is to be done\n")
}

func (p *plugin) released(t *testing.T) (all []string) {
	t.Helper()
	list, err := p.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pv := range list.Items {
		if node := pv.Annotations["hpp/release-volume"]; node != "" {
			all = append(all, pv.Name+" of "+node)
		}
	}
	slices.Sort(all)
	return all
}
