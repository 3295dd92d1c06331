package networkfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

const (
	pvName = "pvc-145c785e-ab83-11e7-9432-4201ac1fd019"
	name   = "torchbox.com/hostpath"
)

// scene is a provisioner with what it sees: a place that is a mount point, if the test mounts something there.
type scene struct {
	*Provisioner
	t                *testing.T
	storage          string
	volumes, classes cache.Indexer
}

// setUp mounts a tmpfs where the storage is to be. Needs root.
func setUp(t *testing.T) *scene {
	t.Helper()
	s := unmounted(t)
	s.mount()
	return s
}

func unmounted(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		t: t, storage: filepath.Join(t.TempDir(), "ceph"),
		volumes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
		classes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
	}
	if err := os.Mkdir(s.storage, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	s.Provisioner, err = New(Config{
		Client: fake.NewClientset(), Classes: storagelisters.NewStorageClassLister(s.classes),
		Volumes: corelisters.NewPersistentVolumeLister(s.volumes), Name: name, ID: name, Path: filepath.Dir(s.storage),
		Guard: &hostpathpv.Guard{Host: mounts.Self}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Delete is called with what the API has: a volume that is to go.
func (s *scene) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	s.t.Helper()
	pv = pv.DeepCopy()
	pv.Status.Phase = corev1.VolumeReleased
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	s.Client = fake.NewClientset(pv)
	defer func() { s.Client = fake.NewClientset() }()
	return s.Provisioner.Delete(ctx, pv)
}

func (s *scene) mount() {
	s.t.Helper()
	mounttest.Tmpfs(s.t, s.storage, "")
}

func (s *scene) unmount() {
	s.t.Helper()
	if err := unix.Unmount(s.storage, 0); err != nil {
		s.t.Fatal(err)
	}
}

// class is the one that the tests use, known to the cluster.
func (s *scene) class(parameters ...string) *storagev1.StorageClass {
	s.t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "cephfs"}, Provisioner: name, Parameters: map[string]string{},
	}
	for i := 0; i < len(parameters); i += 2 {
		class.Parameters[parameters[i]] = parameters[i+1]
	}
	if err := s.classes.Add(class); err != nil {
		s.t.Fatal(err)
	}
	return class
}

// claimed are the options for the claim that torchbox prints.
func claimed(class *storagev1.StorageClass) controller.ProvisionOptions {
	return controller.ProvisionOptions{
		StorageClass: class, PVName: pvName,
		PVC: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "testpvc"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("50Gi")},
				},
			},
		},
	}
}

func (s *scene) provisioned(o controller.ProvisionOptions) *corev1.PersistentVolume {
	s.t.Helper()
	pv, state, err := s.Provision(s.t.Context(), o)
	if err != nil || state != controller.ProvisioningFinished {
		s.t.Fatalf("state %s, error %v, want a volume", state, err)
	}
	return pv
}

// torchboxs is a PersistentVolume as torchbox's provisioner left it.
func torchboxs(path string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, Annotations: map[string]string{
			"torchbox.com/hostpath-provisioner-id": name, "pv.kubernetes.io/provisioned-by": name,
		}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path},
			},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
}

// refused expects an error with this text, in which STORAGE stands for the storage's path.
func (s *scene) refused(what string, err error, want string) {
	s.t.Helper()
	want = strings.ReplaceAll(want, "STORAGE", s.storage)
	got := "nothing"
	if err != nil {
		got = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s: error (-want +got):\n%s", what, diff)
	}
}

// holds compares what is in a directory.
func (s *scene) holds(path string, want ...string) {
	s.t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("in %s there is %v, want %v", path, got, want)
	}
}

func (s *scene) write(path ...string) {
	s.t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("data"), 0o400); err != nil {
		s.t.Fatal(err)
	}
}

func TestProvisionedVolume(t *testing.T) {
	before := unix.Umask(0o077) // which must not matter
	defer unix.Umask(before)
	s := setUp(t)
	retain := corev1.PersistentVolumeReclaimRetain
	class := s.class("PVDIR", s.storage+"/k8s//pvs/")
	class.ReclaimPolicy = &retain
	pv := s.provisioned(claimed(class))
	path := filepath.Join(s.storage, "k8s/pvs", pvName)
	filesystem, directory := corev1.PersistentVolumeFilesystem, corev1.HostPathDirectory
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, Annotations: map[string]string{
			"torchbox.com/hostpath-provisioner-id":     name,
			"torchbox.com/hostpath-provisioner-pv-dir": s.storage + "/k8s/pvs",
			"pv.kubernetes.io/provisioned-by":          name,
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("50Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory},
			},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: retain, VolumeMode: &filesystem,
		},
	}
	if diff := cmp.Diff(want, pv); diff != "" {
		t.Errorf("PersistentVolume (-want +got):\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("directory: %v, mode %v, want drwxrwxrwx", err, info.Mode())
	}
	s.holds(s.storage, "k8s")
	s.holds(s.storage+"/k8s", "pvs")
	s.holds(s.storage+"/k8s/pvs", pvName)
}

// TestProvisionGoesOn where an attempt was cut off before the PersistentVolume was saved, also by an instance that runs
// as another user.
func TestProvisionGoesOn(t *testing.T) {
	s := setUp(t)
	class := s.class("pvDir", s.storage)
	s.write(s.storage, pvName, "file")
	s.provisioned(claimed(class))
	s.holds(filepath.Join(s.storage, pvName), "file")
	if info, err := os.Stat(filepath.Join(s.storage, pvName)); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("mode %v, error %v, want 0777", info.Mode(), err)
	}
}

func TestAccessModes(t *testing.T) {
	s := setUp(t)
	o := claimed(s.class("pvDir", s.storage))
	o.PVC.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{
		corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany,
	}
	if diff := cmp.Diff(o.PVC.Spec.AccessModes, s.provisioned(o).Spec.AccessModes); diff != "" {
		t.Errorf("access modes (-claim +volume):\n%s", diff)
	}
}

func TestBadInput(t *testing.T) {
	with := func(parameters ...string) func(*scene, *controller.ProvisionOptions) {
		return func(s *scene, o *controller.ProvisionOptions) {
			for i, text := range parameters {
				parameters[i] = strings.ReplaceAll(text, "STORAGE", s.storage)
			}
			o.StorageClass = s.class(parameters...)
		}
	}
	const wantPath = `want the absolute path of a directory on the storage, without . and .., such as /ceph/pvs`
	for _, test := range []struct {
		change func(*scene, *controller.ProvisionOptions)
		want   string
	}{
		{with(), "StorageClass cephfs: parameter pvDir is missing; it names the directory on the storage where " +
			"volumes are made, such as /ceph/pvs"},
		{with("pvdir", "ceph/pvs"), `StorageClass cephfs: parameter pvDir: "ceph/pvs": ` + wantPath},
		{with("pvDir", "/"), `StorageClass cephfs: parameter pvDir: "/": ` + wantPath},
		{with("pvDir", "STORAGE/../x"), `StorageClass cephfs: parameter pvDir: "STORAGE/../x": ` + wantPath},
		{with("pvDir", "/ceph/./x"), `StorageClass cephfs: parameter pvDir: "/ceph/./x": ` + wantPath},
		{
			with("pvDir", "STORAGE", "pvdir", "/other"),
			"StorageClass cephfs has the parameter pvdir twice, in different letters",
		},
		{
			with("pvDir", "STORAGE", "pv-dir", "x"),
			`StorageClass cephfs has the parameter "pv-dir", and provisioner torchbox.com/hostpath knows pvDir ` +
				`and cephFSQuota`,
		},
		{
			with("pvDir", "STORAGE", "CephFSQuota", "yes"),
			`StorageClass cephfs: parameter cephFSQuota: "yes": want true or false`,
		},
		{
			func(_ *scene, o *controller.ProvisionOptions) { o.StorageClass.MountOptions = []string{"noatime"} },
			"StorageClass cephfs has mountOptions (noatime), and the kubelet starts no pod that has a hostPath " +
				"volume with mount options; remove them from the class, or use a class of the CSI driver",
		},
		{
			func(_ *scene, o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} },
			"the claim has a selector, which no volume that is made for it can match; remove it",
		},
		{
			func(_ *scene, o *controller.ProvisionOptions) {
				o.PVC.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
			},
			"the claim wants to begin as a copy of PersistentVolumeClaim other, and this provisioner cannot copy; " +
				"leave dataSource and dataSourceRef out",
		},
	} {
		s := setUp(t)
		o := claimed(s.class("pvDir", s.storage))
		test.change(s, &o)
		_, state, err := s.Provision(t.Context(), o)
		s.refused("bad input", err, test.want)
		if state != controller.ProvisioningFinished {
			t.Errorf("state %s", state)
		}
		s.holds(s.storage)
	}
}

// TestPopulatorsServeTheirOwnClaims.
func TestPopulatorsServeTheirOwnClaims(t *testing.T) {
	s := unmounted(t)
	o := claimed(s.class("pvDir", s.storage))
	if !s.ShouldProvision(t.Context(), o.PVC) {
		t.Error("an ordinary claim is left alone")
	}
	o.PVC.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeImportSource", Name: "image"}
	if s.ShouldProvision(t.Context(), o.PVC) {
		t.Error("a populator's claim is taken")
	}
}

// TestTheVolumeIsThere already, in the API.
func TestTheVolumeIsThere(t *testing.T) {
	s := setUp(t)
	s.Client = fake.NewClientset(torchboxs(s.storage + "/" + pvName))
	_, _, err := s.Provision(t.Context(), claimed(s.class("pvDir", s.storage)))
	s.refused("the volume exists", err, "ignored because the claim's PersistentVolume is there already")
	s.holds(s.storage)
}

// TestUnmounted: nothing is made on the node's own disk, and nothing removed; and what is mounted later is seen.
func TestUnmounted(t *testing.T) {
	const wanted = "is on the filesystem of the node's /"
	s := unmounted(t)
	class := s.class("pvDir", s.storage+"/pvs")
	_, _, err := s.Provision(t.Context(), claimed(class))
	if err == nil || !strings.HasPrefix(err.Error(), s.storage+"/pvs is not there, and "+s.storage+" "+wanted) ||
		!strings.HasSuffix(err.Error(),
			": the storage is not mounted there, and nothing is made or removed until it is") {
		t.Errorf("provision: error %v", err)
	}
	s.holds(s.storage)
	s.write(s.storage, "pvs", pvName, "file")
	_, _, err = s.Provision(t.Context(), claimed(class))
	if err == nil || !strings.HasPrefix(err.Error(), s.storage+"/pvs "+wanted) {
		t.Errorf("provision where the directory is there: error %v", err)
	}
	pv := torchboxs(s.storage + "/pvs/" + pvName)
	if err := s.Delete(t.Context(), pv); err == nil || !strings.HasPrefix(err.Error(), s.storage+"/pvs "+wanted) {
		t.Errorf("delete: error %v", err)
	}
	s.holds(s.storage+"/pvs/"+pvName, "file")
	s.mount()
	s.provisioned(claimed(class))
	s.holds(s.storage+"/pvs", pvName)
	s.unmount()
	s.holds(s.storage+"/pvs/"+pvName, "file")
	if _, _, err = s.Provision(t.Context(), claimed(class)); err == nil {
		t.Error("it goes on after the storage was unmounted")
	}
}

// TestWithoutAGuard any directory will do.
func TestWithoutAGuard(t *testing.T) {
	s := unmounted(t)
	s.Guard = nil
	pv := s.provisioned(claimed(s.class("pvDir", s.storage+"/pvs")))
	if err := errors.Join(s.Current(), s.Delete(t.Context(), pv)); err != nil {
		t.Error(err)
	}
	s.holds(s.storage + "/pvs")
}

// TestQuota: the size in bytes reaches CephFS; where there is none, the claim gets nothing rather than a volume without
// limit.
func TestQuota(t *testing.T) {
	s := setUp(t)
	class := s.class("pvDir", s.storage, "cephfsquota", "true")
	_, _, err := s.Provision(t.Context(), claimed(class))
	s.refused("on tmpfs", err, "set the quota of the volume on CephFS (ceph.quota.max_bytes; the class says "+
		"cephFSQuota: true, and the client needs the capability p): operation not supported")
	s.holds(s.storage)
	var asked string
	s.setxattr = func(fd int, attribute string, value []byte, _ int) error {
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		asked = fmt.Sprint(at, " ", attribute, "=", string(value))
		return err
	}
	s.provisioned(claimed(class))
	if want := s.storage + "/" + pvName + " ceph.quota.max_bytes=53687091200"; asked != want {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

func TestAnAPIErrorIsNoVerdict(t *testing.T) {
	s := setUp(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	away := fake.NewClientset()
	away.PrependReactor("get", "persistentvolumes", failing(errors.New("the API is away")))
	s.Client = away
	_, _, err := s.Provision(canceled, claimed(s.class("pvDir", s.storage)))
	s.refused("the API is away", err, "look for PersistentVolume "+pvName+": the API is away")
	s.holds(s.storage)
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	if _, err := New(Config{}); err == nil ||
		err.Error() != "provisioner for a network filesystem: a field of its Config is missing" {
		t.Errorf("error %v", err)
	}
}
