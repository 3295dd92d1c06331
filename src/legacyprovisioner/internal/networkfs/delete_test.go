package networkfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounts"
)

func failing(err error) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
}

// TestDelete removes volumes of its own and of torchbox's, and nothing beside them.
func TestDelete(t *testing.T) {
	s := setUp(t)
	class := s.class("pvDir", s.storage)
	own := s.provisioned(claimed(class))
	for what, pv := range map[string]*corev1.PersistentVolume{
		"its own": own, "torchbox's": torchboxs(s.storage + "/" + pvName),
	} {
		outside := t.TempDir()
		s.write(outside, "kept")
		s.write(s.storage, pvName, "deep", "file")
		s.write(s.storage, "pvc-other", "file")
		if err := os.Symlink(outside, filepath.Join(s.storage, pvName, "link")); err != nil {
			t.Fatal(err)
		}
		if !s.ShouldDelete(t.Context(), pv) {
			t.Fatalf("%s: not taken for one of its own", what)
		}
		for range 2 { // the second finds nothing, which is as good
			if err := s.Delete(t.Context(), pv); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		s.holds(s.storage, "pvc-other")
		s.holds(outside, "kept")
		if err := os.RemoveAll(s.storage + "/pvc-other"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAVolumeOutlivesItsClass, if it is not torchbox's, who wrote nothing about the directory on it.
func TestAVolumeOutlivesItsClass(t *testing.T) {
	s := setUp(t)
	class := s.class("pvDir", s.storage)
	own := s.provisioned(claimed(class))
	class = class.DeepCopy()
	class.Parameters["pvDir"] = "/other"
	if err := s.classes.Update(class); err != nil {
		t.Fatal(err)
	}
	err := s.Delete(t.Context(), torchboxs(own.Spec.HostPath.Path))
	s.refused("torchbox's", err, `path "STORAGE/`+pvName+`" is in STORAGE, which is the pvDir of no StorageClass of `+
		"provisioner torchbox.com/hostpath; nothing is removed: make a class with it, or remove the directory by "+
		"hand and delete the PersistentVolume")
	s.holds(s.storage, pvName)
	if err := s.Delete(t.Context(), own); err != nil {
		t.Error(err)
	}
	s.holds(s.storage)
}

// TestDeleteGoesOn where an attempt was cut off: after the rename, in the middle of the removal, or when a pod has had
// the directory made again since.
func TestDeleteGoesOn(t *testing.T) {
	for _, left := range [][]string{{".deleted-" + pvName}, {".deleted-" + pvName, pvName}} {
		s := setUp(t)
		s.class("pvDir", s.storage)
		for _, entry := range left {
			s.write(s.storage, entry, "deep", "file")
		}
		if err := s.Delete(t.Context(), torchboxs(s.storage+"/"+pvName)); err != nil {
			t.Errorf("%v: %v", left, err)
		}
		s.holds(s.storage)
	}
	s := setUp(t)
	s.class("pvDir", s.storage)
	s.write(s.storage, pvName, "file")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Delete(stopped, torchboxs(s.storage+"/"+pvName))
	s.refused("stopped", err, "remove the volume's directory: context canceled")
	s.holds(s.storage, ".deleted-"+pvName)
}

func TestDeleteRefuses(t *testing.T) {
	const byHand = "; nothing is removed: remove the directory by hand and delete the PersistentVolume"
	named := `path "PATH" is not a directory with the name of PersistentVolume ` + pvName + byHand
	for path, want := range map[string]string{
		"/":                           named,
		"/" + pvName:                  named,
		"STORAGE/pvs":                 named,
		"STORAGE/pvs/":                named,
		"STORAGE/pvs/other":           named,
		"STORAGE/pvs//" + pvName:      named,
		"STORAGE/pvs/" + pvName + "/": named,
		"STORAGE/pvs/../" + pvName:    named,
		"pvs/" + pvName:               named,
		"STORAGE/pvs/x" + pvName:      named,
		"STORAGE/" + pvName: `path "PATH" is in STORAGE, which is the pvDir of no StorageClass of provisioner ` + name +
			"; nothing is removed: make a class with it, or remove the directory by hand and delete the " +
			"PersistentVolume",
	} {
		s := setUp(t)
		s.class("pvDir", s.storage+"/pvs")
		s.write(s.storage, pvName, "file")
		s.write(s.storage, "pvs", pvName, "file")
		path = strings.ReplaceAll(path, "STORAGE", s.storage)
		s.refused(path, s.Delete(t.Context(), torchboxs(path)), strings.ReplaceAll(want, "PATH", path))
		s.holds(s.storage+"/"+pvName, "file")
		s.holds(s.storage+"/pvs/"+pvName, "file")
	}
	s := setUp(t)
	pv := torchboxs("")
	pv.Spec.HostPath = nil
	s.refused("no hostPath", s.Delete(t.Context(), pv), "PersistentVolume "+pvName+
		" has no hostPath; nothing is removed")
}

// TestSavedMeanwhile: the API says that the volume is retained now, and bound; what is watched is behind.
func TestSavedMeanwhile(t *testing.T) {
	s := setUp(t)
	s.class("pvDir", s.storage)
	s.write(s.storage, pvName, "file")
	saved := torchboxs(s.storage + "/" + pvName)
	saved.Status.Phase, saved.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeBound,
		corev1.PersistentVolumeReclaimRetain
	s.Client = fake.NewClientset(saved)
	var ignored *controller.IgnoredError
	if err := s.Provisioner.Delete(t.Context(), torchboxs(s.storage+"/"+pvName)); !errors.As(err, &ignored) {
		t.Errorf("error %v, want one that the library ignores", err)
	}
	s.holds(s.storage, pvName)
}

// TestDeleteFollowsNoLink where the volume's directory should be.
func TestDeleteFollowsNoLink(t *testing.T) {
	s := setUp(t)
	s.class("pvDir", s.storage)
	outside := t.TempDir()
	s.write(outside, "kept")
	path := filepath.Join(s.storage, pvName)
	if err := os.Symlink(outside, path); err != nil {
		t.Fatal(err)
	}
	s.refused("a link", s.Delete(t.Context(), torchboxs(path)),
		"remove the volume's directory: "+path+" is not a directory; see what it is, and move it away")
	s.holds(outside, "kept")
	s.holds(s.storage, pvName)
}

// TestOnlyItsOwn: another name or another identity is another instance's.
func TestOnlyItsOwn(t *testing.T) {
	for _, annotation := range []string{"torchbox.com/hostpath-provisioner-id", "pv.kubernetes.io/provisioned-by"} {
		for _, value := range []string{"other", ""} {
			s := setUp(t)
			s.class("pvDir", s.storage)
			s.write(s.storage, pvName, "file")
			pv := torchboxs(s.storage + "/" + pvName)
			if pv.Annotations[annotation] = value; value == "" {
				delete(pv.Annotations, annotation)
			}
			if s.ShouldDelete(t.Context(), pv) {
				t.Errorf("with %s=%q it is taken for one of its own", annotation, value)
			}
			s.refused(annotation, s.Delete(t.Context(), pv), "PersistentVolume "+pvName+" is not one of provisioner "+
				name+
				" with identity "+name)
			s.holds(s.storage, pvName)
		}
	}
	s := setUp(t)
	s.class("pvDir", s.storage)
	s.ID = "mine"
	pv := torchboxs(s.storage + "/" + pvName)
	pv.Annotations["torchbox.com/hostpath-provisioner-id"] = "mine"
	if !s.ShouldDelete(t.Context(), pv) || s.provisioned(claimed(s.class("pvDir", s.storage))).
		Annotations["torchbox.com/hostpath-provisioner-id"] != "mine" {
		t.Error("an identity of its own is not used")
	}
}

// TestAnotherFilesystem at the path, which has none of the volumes that the cluster knows: not the storage.
func TestAnotherFilesystem(t *testing.T) {
	s := setUp(t)
	class := s.class("pvDir", s.storage)
	kept := torchboxs(s.storage + "/pvc-kept")
	kept.Name, kept.Status.Phase = "pvc-kept", corev1.VolumeBound
	if err := s.volumes.Add(kept); err != nil {
		t.Fatal(err)
	}
	const want = "STORAGE has none of the 1 volumes that the cluster has there (such as pvc-kept), so it is not " +
		"their storage, and nothing is made or removed: mount the right one, or delete their PersistentVolumes"
	_, _, err := s.Provision(t.Context(), claimed(class))
	s.refused("provision", err, want)
	s.refused("delete", s.Delete(t.Context(), torchboxs(s.storage+"/"+pvName)), want)
	s.holds(s.storage)

	// What is being deleted does not count: its directory may be gone.
	kept.Status.Phase = corev1.VolumeReleased
	if err := s.Delete(t.Context(), torchboxs(s.storage+"/"+pvName)); err != nil {
		t.Errorf("beside a volume that is being deleted: %v", err)
	}
	// What the class retains does.
	kept.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	_, _, err = s.Provision(t.Context(), claimed(class))
	s.refused("beside a retained volume", err, want)

	s.write(s.storage, "pvc-kept", "file")
	pv := s.provisioned(claimed(class))
	if err := s.Delete(t.Context(), pv); err != nil {
		t.Error(err)
	}
	s.holds(s.storage, "pvc-kept")
}

// hostTable gives the guard the mount table of a node, with SELF for the process's own lines.
func (s *scene) hostTable(text string) {
	s.t.Helper()
	own, err := os.ReadFile(mounts.Self)
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.t.TempDir(), "mountinfo")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "SELF", string(own))), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.Guard.Host = path
}

// nodes is a node's mount table without the storage.
const nodes = "1 0 999:1 / / rw - ext4 /dev/sda1 rw\n2 1 999:2 / /var rw - ext4 /dev/sda2 rw\n"

// TestInAPod what is mounted on the node decides, not what the pod was given when it started.
func TestInAPod(t *testing.T) {
	s := setUp(t)
	class := s.class("pvDir", s.storage)
	s.hostTable(nodes + "SELF")
	s.provisioned(claimed(class))
	s.hostTable(nodes)
	_, _, err := s.Provision(t.Context(), claimed(class))
	s.refused("unmounted on the node", err,
		"STORAGE is not mounted on the node any more, and nothing is made or removed until it is")
	if err := s.Current(); err != nil {
		t.Errorf("unmounted on the node: %v, and to start anew would not help", err)
	}
	s.hostTable(nodes + "3 1 999:3 / " + s.storage + " rw - ceph monitor:/ rw\n")
	s.refused("mounted anew on the node", s.Current(),
		"STORAGE is another filesystem here (none) than on the node (monitor:/)")
	s.Guard.Host = "/does/not/exist"
	_, _, err = s.Provision(t.Context(), claimed(class))
	s.refused("no table", err, "see what is mounted on the node: open /does/not/exist: no such file or directory")
	s.hostTable("")
	_, _, err = s.Provision(t.Context(), claimed(class))
	s.refused("an empty table", err, "see what is mounted on the node: it has no root")
	s.holds(s.storage, pvName)
}

// TestTheNodesDisk: the pod's directory is a mount of its own, and yet on the filesystem of the node's /var.
func TestTheNodesDisk(t *testing.T) {
	s := setUp(t)
	own, err := mounts.Read(mounts.Self)
	if err != nil {
		t.Fatal(err)
	}
	device := own.At(s.storage)
	line := strings.ReplaceAll(nodes, "999:2", strings.Join([]string{number(device.Major), number(device.Minor)}, ":"))
	s.hostTable(line)
	_, _, err = s.Provision(t.Context(), claimed(s.class("pvDir", s.storage)))
	s.refused("on the node's disk", err, "STORAGE is on the filesystem of the node's /var: the storage is not mounted "+
		"there, and nothing is made or removed until it is")
	s.hostTable(nodes)
	_, _, err = s.Provision(t.Context(), claimed(s.class("pvDir", filepath.Dir(s.storage))))
	if err == nil || !strings.Contains(err.Error(), " is on the filesystem of the container's /") {
		t.Errorf("a directory that the pod was not given: error %v", err)
	}
	s.holds(s.storage)
}

func number(n int) string { return strconv.Itoa(n) }

// TestDirectoryOfAnother is not removed.
func TestDirectoryOfAnother(t *testing.T) {
	s := setUp(t)
	s.class("pvDir", s.storage)
	s.write(s.storage, pvName, "file")
	other := torchboxs(s.storage + "/" + pvName)
	if other.Name = "other"; s.volumes.Add(other) != nil {
		t.Fatal("cannot add a volume")
	}
	at := "STORAGE/" + pvName
	s.refused("delete", s.Delete(t.Context(), torchboxs(s.storage+"/"+pvName)), "PersistentVolume other has the "+
		"directory "+at+", which would be removed with "+at+"; nothing is removed: delete PersistentVolume other if "+
		"nobody needs its data, or set the persistentVolumeReclaimPolicy of "+pvName+" to Retain")
	s.holds(s.storage, pvName)
}
