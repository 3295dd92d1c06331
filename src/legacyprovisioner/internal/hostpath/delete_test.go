package hostpath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

func failing(err error) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
}

// persistentVolume is one as kubevirt's provisioner left it, at a path.
func persistentVolume(path string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, Annotations: map[string]string{
			"hostPathProvisionerIdentity":     "kubevirt.io/hostpath-provisioner",
			"kubevirt.io/provisionOnNode":     "here",
			"pv.kubernetes.io/provisioned-by": "kubevirt.io/hostpath-provisioner",
		}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
		},
	}
}

// remove calls Delete with what the API has: a volume that is to go.
func remove(ctx context.Context, p *Provisioner, pv *corev1.PersistentVolume) error {
	pv = pv.DeepCopy()
	pv.Status.Phase = corev1.VolumeReleased
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	before := p.Client
	p.Client = cluster(pv)
	defer func() { p.Client = before }()
	return p.Delete(ctx, pv)
}

// fill makes a directory with what pods leave behind: files, directories without permissions,
// and a link that leads out.
func fill(t *testing.T, path, link string) {
	t.Helper()
	for _, directory := range []string{path, filepath.Join(path, "deep", "er")} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(path, "deep", "file"), []byte("data"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(link, filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(path, "deep", "er"), 0o500); err != nil {
		t.Fatal(err)
	}
}

func TestDelete(t *testing.T) {
	for _, name := range []string{pvName, "data-" + pvName} {
		p, directory := provisioner(t, nil)
		neighbour, outside := filepath.Join(directory, "other-pvc-1"), t.TempDir()
		fill(t, neighbour, outside)
		fill(t, outside, "/nowhere")
		fill(t, filepath.Join(directory, name), outside)
		pv := persistentVolume(filepath.Join(directory, name))
		if !p.ShouldDelete(t.Context(), pv) {
			t.Fatalf("%s: not taken for one of its own", name)
		}
		for range 2 { // the second finds nothing, which is as good
			if err := remove(t.Context(), p, pv); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if diff := cmp.Diff([]string{"other-pvc-1"}, listDirectory(t, directory)); diff != "" {
			t.Errorf("%s: what is left (-want +got):\n%s", name, diff)
		}
		for _, kept := range []string{neighbour, outside} {
			if diff := cmp.Diff([]string{"deep", "link"}, listDirectory(t, kept)); diff != "" {
				t.Errorf("%s: in %s (-want +got):\n%s", name, kept, diff)
			}
		}
	}
}

// TestDeleteGoesOn where an attempt was cut off: after the rename, or when a pod has had the
// directory made again since.
func TestDeleteGoesOn(t *testing.T) {
	for name, left := range map[string][]string{
		"half removed":                 {".deleted-" + pvName},
		"half removed, and made again": {".deleted-" + pvName, pvName},
	} {
		p, directory := provisioner(t, nil)
		for _, entry := range left {
			fill(t, filepath.Join(directory, entry), "/nowhere")
		}
		if err := remove(t.Context(), p, persistentVolume(filepath.Join(directory, pvName))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if found := listDirectory(t, directory); len(found) > 0 {
			t.Errorf("%s: %v is left", name, found)
		}
	}
}

// TestDeleteThatIsStopped leaves nothing that looks like a volume, and the next attempt ends it.
func TestDeleteThatIsStopped(t *testing.T) {
	p, directory := provisioner(t, nil)
	fill(t, filepath.Join(directory, pvName), "/nowhere")
	pv := persistentVolume(filepath.Join(directory, pvName))
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	err := remove(stopped, p, pv)
	if want := "remove the volume's directory on node here: context canceled"; message(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if diff := cmp.Diff([]string{".deleted-" + pvName}, listDirectory(t, directory)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if err := remove(t.Context(), p, pv); err != nil {
		t.Error(err)
	}
	if found := listDirectory(t, directory); len(found) > 0 {
		t.Errorf("%v is left", found)
	}
}

// TestDeleteStopsAtMounts: what somebody mounted inside a volume is not the volume's. Needs root.
func TestDeleteStopsAtMounts(t *testing.T) {
	p, directory := provisioner(t, nil)
	point := filepath.Join(directory, pvName, "mounted")
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	mounttest.Tmpfs(t, point, "")
	mounted := filepath.Join(directory, ".deleted-"+pvName, "mounted") // the mount moves with the rename
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	fill(t, filepath.Join(point, "data"), "/nowhere")
	pv := persistentVolume(filepath.Join(directory, pvName))
	err := remove(t.Context(), p, pv)
	want := "remove the volume's directory on node here: open " + mounted + ": invalid cross-device link"
	if message(err) != want {
		t.Errorf("error (-want +got):\n%s", cmp.Diff(want, message(err)))
	}
	if diff := cmp.Diff([]string{"deep", "link"}, listDirectory(t, filepath.Join(mounted, "data"))); diff != "" {
		t.Errorf("what is mounted (-want +got):\n%s", diff)
	}
	if err := unix.Unmount(mounted, 0); err != nil {
		t.Fatal(err)
	}
	if err := remove(t.Context(), p, pv); err != nil {
		t.Error(err)
	}
	if found := listDirectory(t, directory); len(found) > 0 {
		t.Errorf("%v is left", found)
	}
}

func TestDeleteRefuses(t *testing.T) {
	const byHand = "nothing is removed: remove the directory by hand and delete the PersistentVolume"
	outside := `path "PATH" is not directly in DIR on node here, where this provisioner's volumes are; ` + byHand
	another := `path "PATH" does not end in the name of PersistentVolume ` + pvName + "; " + byHand
	for path, want := range map[string]string{
		"/var/other/" + pvName:           outside,
		"/":                              outside,
		"DIR":                            outside,
		"DIR/":                           outside,
		"DIR/..":                         outside,
		"DIR/deep/" + pvName:             outside,
		"DIR/../other/" + pvName:         outside,
		"DIR//" + pvName:                 outside,
		"DIR/" + pvName + "/":            outside,
		"DIR/.deleted-pvc-1":             another,
		"DIR/pvc-1":                      another,
		"DIR/x" + pvName:                 another,
		"DIR/" + pvName + "-old":         another,
		"DIR/pvc-1-" + pvName + "-pvc-1": another,
		"DIR/" + pvName[:len(pvName)-1]:  another,
	} {
		p, directory := provisioner(t, nil)
		path = strings.ReplaceAll(path, "DIR", directory)
		for _, entry := range []string{"pvc-1", "x" + pvName, "deep/" + pvName, pvName + "-old", pvName} {
			fill(t, filepath.Join(directory, entry), "/nowhere")
		}
		before := listDirectory(t, directory)
		err := remove(t.Context(), p, persistentVolume(path))
		want = strings.NewReplacer("PATH", path, "DIR", directory).Replace(want)
		if message(err) != want {
			t.Errorf("%s: error (-want +got):\n%s", path, cmp.Diff(want, message(err)))
		}
		if diff := cmp.Diff(before, listDirectory(t, directory)); diff != "" {
			t.Errorf("%s: something was removed (-before +after):\n%s", path, diff)
		}
	}
	p, _ := provisioner(t, nil)
	bare := persistentVolume("")
	bare.Spec.HostPath = nil
	if err := remove(t.Context(), p, bare); message(err) != "PersistentVolume "+pvName+
		" has no hostPath; nothing is removed" {
		t.Errorf("error %v, want one that names the missing hostPath", err)
	}
}

// TestDeleteOfALink: where the volume's directory should be, neither the link nor what it leads to is removed.
func TestDeleteOfALink(t *testing.T) {
	p, directory := provisioner(t, nil)
	outside := t.TempDir()
	fill(t, outside, "/nowhere")
	path := filepath.Join(directory, pvName)
	if err := os.Symlink(outside, path); err != nil {
		t.Fatal(err)
	}
	err := remove(t.Context(), p, persistentVolume(path))
	want := "remove the volume's directory on node here: " + path +
		" is not a directory; see what it is, and move it away"
	if message(err) != want {
		t.Errorf("error (-want +got):\n%s", cmp.Diff(want, message(err)))
	}
	if diff := cmp.Diff([]string{"deep", "link"}, listDirectory(t, outside)); diff != "" {
		t.Errorf("the link's target (-want +got):\n%s", diff)
	}
}

// TestDeleteOfAForgedName: what ends like the name of a volume that another node has in use is that volume's.
func TestDeleteOfAForgedName(t *testing.T) {
	p, directory := provisioner(t, nil)
	fill(t, filepath.Join(directory, pvName), "/nowhere")
	fill(t, filepath.Join(directory, "csi"), "/nowhere")
	for name, path := range map[string]string{
		"444455556666": filepath.Join(directory, pvName), "csi": filepath.Join(directory, "csi"),
	} {
		pv := persistentVolume(path)
		pv.Name = name
		want := `path "` + path + `" does not end in the name of PersistentVolume ` + name +
			"; nothing is removed: remove the " +
			"directory by hand and delete the PersistentVolume"
		if err := remove(t.Context(), p, pv); message(err) != want {
			t.Errorf("error (-want +got):\n%s", cmp.Diff(want, message(err)))
		}
	}
	if diff := cmp.Diff([]string{"csi", pvName}, listDirectory(t, directory)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// TestSavedMeanwhile: the API says that the volume is retained now, and bound; what is watched is behind.
func TestSavedMeanwhile(t *testing.T) {
	p, directory := provisioner(t, nil)
	fill(t, filepath.Join(directory, pvName), "/nowhere")
	old := persistentVolume(filepath.Join(directory, pvName))
	old.Status.Phase, old.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeReleased,
		corev1.PersistentVolumeReclaimDelete
	saved := old.DeepCopy()
	saved.Status.Phase, saved.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeBound,
		corev1.PersistentVolumeReclaimRetain
	p.Client = cluster(saved)
	var ignored *controller.IgnoredError
	if err := p.Delete(t.Context(), old); !errors.As(err, &ignored) {
		t.Errorf("error %v, want one that the library ignores", err)
	}
	if diff := cmp.Diff([]string{pvName}, listDirectory(t, directory)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// TestUnmounted: where none of the node's volumes is, their disk is not. Needs root.
func TestUnmounted(t *testing.T) {
	p, directory := provisioner(t, nil)
	mounttest.Tmpfs(t, directory, "")
	going, kept := persistentVolume(filepath.Join(directory, pvName)),
		persistentVolume(filepath.Join(directory, "pvc-1"))
	kept.Name, kept.Status.Phase = "pvc-1", corev1.VolumeBound
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := errors.Join(volumes.Add(going), volumes.Add(kept)); err != nil {
		t.Fatal(err)
	}
	p.Volumes = corelisters.NewPersistentVolumeLister(volumes)
	fill(t, filepath.Join(directory, pvName), "/nowhere")
	fill(t, filepath.Join(directory, "pvc-1"), "/nowhere")
	// Mounted elsewhere meanwhile, as an unmounted disk keeps its data.
	elsewhere := t.TempDir()
	if err := unix.Mount(directory, elsewhere, "", unix.MS_MOVE, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(elsewhere, unix.MNT_DETACH) })
	going.Status.Phase = corev1.VolumeReleased
	going.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	want := "on node here: " + directory +
		" has none of the 1 volumes that the cluster has there (such as pvc-1), so it is " +
		"not their storage, and nothing is made or removed: mount the right one, or delete their PersistentVolumes"
	if err := remove(t.Context(), p, going); message(err) != want {
		t.Errorf("delete: error (-want +got):\n%s", cmp.Diff(want, message(err)))
	}
	_, _, err := p.Provision(t.Context(), options(func(o *controller.ProvisionOptions) { o.PVName = "pvc-2" }))
	if message(err) != want {
		t.Errorf("provision: error (-want +got):\n%s", cmp.Diff(want, message(err)))
	}
	if found := listDirectory(t, directory); len(found) > 0 {
		t.Errorf("%v was made", found)
	}
	if err := unix.Mount(elsewhere, directory, "", unix.MS_MOVE, ""); err != nil {
		t.Fatal(err)
	}
	if err := remove(t.Context(), p, going); err != nil {
		t.Errorf("mounted again: %v", err)
	}
	if diff := cmp.Diff([]string{"pvc-1"}, listDirectory(t, directory)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// TestRequireMount: a directory on the node's own disk is none.
func TestRequireMount(t *testing.T) {
	p, directory := provisioner(t, func(c *Config) { c.Guard = &hostpathpv.Guard{Host: mounts.Self} })
	_, _, err := p.Provision(t.Context(), options(nil))
	if !strings.Contains(message(err), directory+" is on the filesystem of the node's /") {
		t.Errorf("error %v, want that nothing is mounted", err)
	}
	if found := listDirectory(t, directory); len(found) > 0 {
		t.Errorf("%v was made", found)
	}
}

// TestOnlyItsOwn: volumes of other nodes and other provisioners are not touched.
func TestOnlyItsOwn(t *testing.T) {
	for _, annotation := range []string{
		"hostPathProvisionerIdentity", "kubevirt.io/provisionOnNode", "pv.kubernetes.io/provisioned-by",
	} {
		p, directory := provisioner(t, nil)
		fill(t, filepath.Join(directory, pvName), "/nowhere")
		pv := persistentVolume(filepath.Join(directory, pvName))
		pv.Annotations[annotation] = "other"
		if p.ShouldDelete(t.Context(), pv) {
			t.Errorf("with another %s it is taken for one of its own", annotation)
		}
		if err := remove(t.Context(), p, pv); message(err) != "PersistentVolume "+pvName+
			" is not one of this provisioner's for node here" {
			t.Errorf("error %v, want one that says so", err)
		}
		if found := listDirectory(t, directory); len(found) != 1 {
			t.Errorf("with another %s there is %v, want it untouched", annotation, found)
		}
	}
}

// TestInAVolume nothing is made or removed: its pods can exchange what is there.
func TestInAVolume(t *testing.T) {
	p, directory := provisioner(t, nil)
	fill(t, filepath.Join(directory, pvName), "/nowhere")
	tenants := persistentVolume(filepath.Dir(directory))
	tenants.Name = "tenants"
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := volumes.Add(tenants); err != nil {
		t.Fatal(err)
	}
	p.Volumes = corelisters.NewPersistentVolumeLister(volumes)
	want := "the directory of the volumes on node here: " + directory +
		" is or lies in the directory of PersistentVolume " +
		"tenants, and what is in a volume its pods can exchange for a link to anything on the node; nothing is made " +
		"or removed there: choose a directory that is in no volume"
	_, _, err := p.Provision(t.Context(), options(nil))
	if message(err) != want {
		t.Errorf("provision: error %v, want %s", err, want)
	}
	if err := remove(t.Context(), p, persistentVolume(filepath.Join(directory, pvName))); message(err) != want {
		t.Errorf("delete: error %v, want %s", err, want)
	}
	if diff := cmp.Diff([]string{pvName}, listDirectory(t, directory)); diff != "" {
		t.Errorf("what is there (-want +got):\n%s", diff)
	}
}

// TestDeleteWithoutItsDisk: where the directory of the volumes is away, that a volume is gone cannot be known.
func TestDeleteWithoutItsDisk(t *testing.T) {
	p, directory := provisioner(t, nil)
	if err := os.Remove(directory); err != nil {
		t.Fatal(err)
	}
	err := remove(t.Context(), p, persistentVolume(filepath.Join(directory, pvName)))
	if want := "open the directory of the volumes on node here: open " + directory +
		": no such file or directory"; message(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestDirectoryOfAnother is not removed.
func TestDirectoryOfAnother(t *testing.T) {
	p, directory := provisioner(t, nil)
	fill(t, filepath.Join(directory, pvName), "/nowhere")
	other := persistentVolume(filepath.Join(directory, pvName, "deep"))
	other.Name = "other"
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := volumes.Add(other); err != nil {
		t.Fatal(err)
	}
	p.Volumes = corelisters.NewPersistentVolumeLister(volumes)
	err := remove(t.Context(), p, persistentVolume(filepath.Join(directory, pvName)))
	if !strings.HasPrefix(message(err), "PersistentVolume other has the directory "+directory) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{pvName}, listDirectory(t, directory)); diff != "" {
		t.Errorf("what is there (-want +got):\n%s", diff)
	}
}
