package hostpath

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
)

const pvName = "pvc-0b1f1d0c-1111-4222-8333-444455556666"

// cluster is a cluster with node "here", whose hostname label is another word.
func cluster(objects ...runtime.Object) *fake.Clientset {
	return fake.NewClientset(append(objects, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "here", Labels: map[string]string{corev1.LabelHostname: "here.example.com"},
		},
	})...)
}

// provisioner works in a directory of the test's.
func provisioner(t *testing.T, change func(*Config)) (*Provisioner, string) {
	t.Helper()
	c := Config{
		Client:  cluster(),
		Classes: storagelisters.NewStorageClassLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)),
		Volumes: corelisters.NewPersistentVolumeLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)),
		Node:    "here", Directory: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p, c.Directory
}

// options are those for an ordinary claim of 1Gi.
func options(change func(*controller.ProvisionOptions)) controller.ProvisionOptions {
	name := "hostpath"
	o := controller.ProvisionOptions{
		StorageClass: &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: names.LegacyProvisioner,
		},
		PVName: pvName,
		PVC: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "0b1f1d0c-1111-4222-8333-444455556666"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
				},
			},
		},
	}
	if change != nil {
		change(&o)
	}
	return o
}

// size is that of the filesystem under a directory, in bytes.
func size(t *testing.T, directory string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(directory, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

func mustProvision(t *testing.T, p *Provisioner, o controller.ProvisionOptions) *corev1.PersistentVolume {
	t.Helper()
	pv, state, err := p.Provision(t.Context(), o)
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatalf("state %s, error %v, want a volume", state, err)
	}
	return pv
}

func TestProvisionedVolume(t *testing.T) {
	before := unix.Umask(0o077) // which must not matter
	defer unix.Umask(before)
	p, directory := provisioner(t, nil)
	pv := mustProvision(t, p, options(nil))
	mode, is := corev1.PersistentVolumeFilesystem, corev1.HostPathDirectory
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, Annotations: map[string]string{
			"hostPathProvisionerIdentity":     "kubevirt.io/hostpath-provisioner",
			"kubevirt.io/provisionOnNode":     "here",
			"pv.kubernetes.io/provisioned-by": "kubevirt.io/hostpath-provisioner",
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(directory, pvName), Type: &is},
			},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			VolumeMode:                    &mode,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "kubernetes.io/hostname", Operator: "In", Values: []string{"here.example.com"}},
				}}},
			}},
		},
	}
	if diff := cmp.Diff(want, pv); diff != "" {
		t.Errorf("PersistentVolume (-want +got):\n%s", diff)
	}
	info, err := os.Stat(pv.Spec.HostPath.Path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("directory has mode %v, want drwxrwxrwx", info.Mode())
	}
}

func TestProvisionFollowsClassAndClaim(t *testing.T) {
	retain := corev1.PersistentVolumeReclaimRetain
	p, _ := provisioner(t, nil)
	pv := mustProvision(t, p, options(func(o *controller.ProvisionOptions) {
		o.StorageClass.ReclaimPolicy = &retain
		o.PVC.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}))
	if got := pv.Spec.PersistentVolumeReclaimPolicy; got != retain {
		t.Errorf("reclaim policy %s, want the class's", got)
	}
	if got := pv.Spec.AccessModes; len(got) != 1 || got[0] != corev1.ReadWriteOncePod {
		t.Errorf("access modes %v, want ReadWriteOncePod", got)
	}
}

func TestDirectoryNames(t *testing.T) {
	long := strings.Repeat("c", 253) // the longest name of a claim
	for _, test := range []struct {
		prefix      bool
		claim, want string
	}{
		{false, "data", pvName},
		{true, "data", "data-" + pvName},
		{true, long, long[:255-1-len(pvName)] + "-" + pvName},
	} {
		p, directory := provisioner(t, func(c *Config) { c.NamingPrefix = test.prefix })
		pv := mustProvision(t, p, options(func(o *controller.ProvisionOptions) { o.PVC.Name = test.claim }))
		if got := pv.Spec.HostPath.Path; got != filepath.Join(directory, test.want) {
			t.Errorf("path %s, want the name %s", got, test.want)
		}
		if _, err := os.Stat(pv.Spec.HostPath.Path); err != nil {
			t.Error(err)
		}
		if err := remove(t.Context(), p, pv); err != nil {
			t.Errorf("it could not be deleted again: %v", err)
		}
	}
}

func TestCapacityOfTheFilesystem(t *testing.T) {
	p, directory := provisioner(t, func(c *Config) { c.WholeFilesystem = true })
	total := size(t, directory)
	for name, test := range map[string]struct{ request, want int64 }{
		"small": {1 << 20, roundDown(total)},
		"all of it, which the rounded size lacks": {total, total},
	} {
		pv := mustProvision(t, p, options(func(o *controller.ProvisionOptions) {
			o.PVC.Spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(test.request,
				resource.BinarySI)
		}))
		if got := pv.Spec.Capacity.Storage().Value(); got != test.want {
			t.Errorf("%s: capacity %d, want %d", name, got, test.want)
		}
	}
}

func TestRoundDown(t *testing.T) {
	for in, want := range map[int64]int64{
		5: 5, 9<<20 + 7: 9<<20 + 7, 10<<20 + 7: 10 << 20, 9<<30 + 1<<20 + 1: 9<<30 + 1<<20, 10<<30 + 1: 10 << 30,
	} {
		if got := roundDown(in); got != want {
			t.Errorf("%d: %d, want %d", in, got, want)
		}
	}
}

// TestProvisionGoesOn where an attempt was cut off before the PersistentVolume was saved.
func TestProvisionGoesOn(t *testing.T) {
	p, directory := provisioner(t, nil)
	path := filepath.Join(directory, pvName)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustProvision(t, p, options(nil))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("mode %v, error %v, want 0777", info.Mode(), err)
	}
	if data, err := os.ReadFile(filepath.Join(path, "file")); err != nil || string(data) != "kept" {
		t.Errorf("content %q, error %v, want it kept", data, err)
	}
}

func TestProvisionRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*controller.ProvisionOptions)
		want   string
	}{
		"parameters": {
			func(o *controller.ProvisionOptions) {
				o.StorageClass.Parameters = map[string]string{"storagePool": "local", "a": "b"}
			},
			"StorageClass hostpath has parameters (a, storagePool), and provisioner kubevirt.io/hostpath-provisioner " +
				"(with a slash) takes none; the CSI driver kubevirt.io.hostpath-provisioner (with a dot) does",
		},
		"mount options": {
			func(o *controller.ProvisionOptions) { o.StorageClass.MountOptions = []string{"noatime", "ro"} },
			"StorageClass hostpath has mountOptions (noatime, ro), and the kubelet starts no pod that has a hostPath " +
				"volume with mount options; remove them from the class, or use a class of the CSI driver",
		},
		"selector": {
			func(o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} },
			"the claim has a selector, which no volume that is made for it can match; remove it",
		},
		"data source": {
			func(o *controller.ProvisionOptions) {
				o.PVC.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "yesterday"}
			},
			"the claim wants to begin as a copy of VolumeSnapshot yesterday, and this provisioner cannot copy; leave " +
				"dataSource and dataSourceRef out",
		},
		"data source reference": {
			func(o *controller.ProvisionOptions) {
				o.PVC.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
			},
			"the claim wants to begin as a copy of PersistentVolumeClaim other, and this provisioner cannot copy; " +
				"leave dataSource and dataSourceRef out",
		},
		"many writers": {
			func(o *controller.ProvisionOptions) {
				o.PVC.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}
			},
			"the claim asks for access mode ReadWriteMany, and a hostPath volume is on one node; want ReadWriteOnce " +
				"(all pods of the node) or ReadWriteOncePod",
		},
	} {
		p, directory := provisioner(t, nil)
		_, state, err := p.Provision(t.Context(), options(test.change))
		if err == nil || err.Error() != test.want || state != controller.ProvisioningFinished {
			t.Errorf("%s: state %s, error (-want +got):\n%s", name, state, cmp.Diff(test.want, message(err)))
		}
		if left := listDirectory(t, directory); len(left) > 0 {
			t.Errorf("%s: %v was made", name, left)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func listDirectory(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

// TestNoRoom: the scheduler may look for another node, unless the claim's user has chosen this one.
func TestNoRoom(t *testing.T) {
	p, directory := provisioner(t, nil)
	large := *resource.NewQuantity(size(t, directory)+1, resource.BinarySI)
	want := "the claim asks for " + bytesize.Format(large.Value()) + ", and the whole filesystem of " + directory +
		" on node here has " + bytesize.Format(size(t, directory)) + "; ask for less, or for a node with a larger one"
	for annotation, wantState := range map[string]controller.ProvisioningState{
		"": controller.ProvisioningReschedule, "here": controller.ProvisioningFinished,
	} {
		_, state, err := p.Provision(t.Context(), options(func(o *controller.ProvisionOptions) {
			o.PVC.Annotations = map[string]string{names.ProvisionOnNode: annotation}
			o.PVC.Spec.Resources.Requests[corev1.ResourceStorage] = large
		}))
		if message(err) != want || state != wantState {
			t.Errorf("annotation %q: state %s, want %s; error (-want +got):\n%s",
				annotation, state, wantState, cmp.Diff(want, message(err)))
		}
	}
}

// TestDirectoryThatCannotBeUsed: nothing is followed out of the directory and nothing is taken that is not a directory.
func TestDirectoryThatCannotBeUsed(t *testing.T) {
	outside := t.TempDir()
	for name, test := range map[string]struct {
		prepare func(t *testing.T, directory string)
		want    string
	}{
		"a link": {
			func(t *testing.T, directory string) {
				t.Helper()
				if err := os.Symlink(outside, filepath.Join(directory, pvName)); err != nil {
					t.Fatal(err)
				}
			},
			"make the directory of the volume on node here: DIR/" + pvName +
				" is there and is not a directory; move it away",
		},
		"a file": {
			func(t *testing.T, directory string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(directory, pvName), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			"make the directory of the volume on node here: DIR/" + pvName +
				" is there and is not a directory; move it away",
		},
		"no directory of the volumes": {
			func(t *testing.T, directory string) {
				t.Helper()
				if err := os.Remove(directory); err != nil {
					t.Fatal(err)
				}
			},
			"open the directory of the volumes on node here: open DIR: no such file or directory",
		},
	} {
		p, directory := provisioner(t, nil)
		test.prepare(t, directory)
		_, state, err := p.Provision(t.Context(), options(nil))
		want := strings.ReplaceAll(test.want, "DIR", directory)
		if message(err) != want || state != controller.ProvisioningReschedule {
			t.Errorf("%s: state %s; error (-want +got):\n%s", name, state, cmp.Diff(want, message(err)))
		}
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() == 0o777 {
		t.Errorf("the target of the link has mode %v (%v), want it untouched", info.Mode(), err)
	}
}

func TestProvisionAsksTheCluster(t *testing.T) {
	for name, test := range map[string]struct {
		cluster *fake.Clientset
		want    string
	}{
		"no such node": {fake.NewClientset(), `read the labels of node here: nodes "here" not found`},
		"a node without hostname": {
			fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}),
			"node here has no label kubernetes.io/hostname, and without one no pod could be bound to a volume on it; " +
				"label the node",
		},
		"the volume exists": {
			cluster(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvName}}),
			"ignored because the claim's PersistentVolume is there already",
		},
	} {
		p, directory := provisioner(t, func(c *Config) { c.Client = test.cluster })
		_, state, err := p.Provision(t.Context(), options(nil))
		if message(err) != test.want || state != controller.ProvisioningFinished {
			t.Errorf("%s: state %s; error (-want +got):\n%s", name, state, cmp.Diff(test.want, message(err)))
		}
		if left := listDirectory(t, directory); len(left) > 0 {
			t.Errorf("%s: %v was made", name, left)
		}
	}
}

func TestShouldProvision(t *testing.T) {
	waiting := storagev1.VolumeBindingWaitForFirstConsumer
	classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := classes.Add(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "known"}, Provisioner: names.LegacyProvisioner, VolumeBindingMode: &waiting,
	}); err != nil {
		t.Fatal(err)
	}
	p, _ := provisioner(t, func(c *Config) { c.Classes = storagelisters.NewStorageClassLister(classes) })
	const selected = "volume.kubernetes.io/selected-node"
	for _, test := range []struct {
		class       string
		annotations map[string]string
		want        bool
	}{
		{"known", map[string]string{selected: "here"}, true},
		{"known", map[string]string{selected: "there"}, false},
		{"known", map[string]string{names.ProvisionOnNode: "here"}, false}, // the node is selected first
		{"known", map[string]string{names.ProvisionOnNode: "here", selected: "there"}, true},
		{"known", map[string]string{names.ProvisionOnNode: "there", selected: "here"}, false},
		{"known", nil, false},
		{"not yet", map[string]string{selected: "here"}, true}, // so that it is asked again
		{"not yet", map[string]string{names.ProvisionOnNode: "there", selected: "here"}, false},
		{"not yet", nil, false},
	} {
		claim := options(func(o *controller.ProvisionOptions) {
			o.PVC.Spec.StorageClassName = &test.class
			o.PVC.Annotations = test.annotations
		}).PVC
		if got := p.ShouldProvision(t.Context(), claim); got != test.want {
			t.Errorf("class %s, annotations %v: %t, want %t", test.class, test.annotations, got, test.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{
		Client:  cluster(),
		Classes: storagelisters.NewStorageClassLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)),
		Volumes: corelisters.NewPersistentVolumeLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)),
		Node:    "here", Log: slog.New(slog.DiscardHandler),
	}
	for directory, want := range map[string]string{
		"/":             `directory of the volumes: "/": want a clean absolute path of its own`,
		"hpvolumes":     `directory of the volumes: "hpvolumes": want a clean absolute path of its own`,
		"/hpvolumes/..": `directory of the volumes: "/hpvolumes/..": want a clean absolute path of its own`,
	} {
		c := good
		c.Directory = directory
		if _, err := New(c); message(err) != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := New(Config{}); message(err) != "hostPath provisioner: a field of its Config is missing" {
		t.Errorf("error %v, want one that says that a field is missing", err)
	}
}

// TestAnAPIErrorIsNoVerdict: without an answer nothing is made.
func TestAnAPIErrorIsNoVerdict(t *testing.T) {
	away := errors.New("the API is away")
	broken := cluster()
	broken.PrependReactor("get", "persistentvolumes", failing(away))
	p, directory := provisioner(t, func(c *Config) { c.Client = broken })
	_, _, err := p.Provision(t.Context(), options(nil))
	if want := "look for PersistentVolume " + pvName + ": the API is away"; message(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if left := listDirectory(t, directory); len(left) > 0 {
		t.Errorf("%v was made", left)
	}
}
