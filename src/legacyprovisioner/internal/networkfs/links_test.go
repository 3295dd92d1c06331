package networkfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const refused = ", and what is in a volume its pods can exchange for a link to anything on the node; nothing is made " +
	"or removed there: choose a directory that is in no volume"

// TestInATenantsVolume is the attack: the pod of one volume owns the directory that another is made in, and puts a link
// to the node's files in its place before the kubelet looks.
func TestInATenantsVolume(t *testing.T) {
	static := func(source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "tenants"},
			Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
		}
	}
	const named = "pvc-00000000-1111-2222-3333-444455556666"
	for below, source := range map[string]corev1.PersistentVolumeSource{
		"a":     {HostPath: &corev1.HostPathVolumeSource{Path: "STORAGE/a/"}},
		"a/b/c": {HostPath: &corev1.HostPathVolumeSource{Path: "STORAGE//a"}},
		"l/d":   {Local: &corev1.LocalVolumeSource{Path: "STORAGE/l"}},
		"csi/h/d": {CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "kubevirt.io.hostpath-provisioner", VolumeHandle: "h",
		}},
		"x-" + named + "/d": {},
	} {
		s := setUp(t)
		if source.HostPath != nil {
			source.HostPath.Path = strings.ReplaceAll(source.HostPath.Path, "STORAGE", s.storage)
		}
		if source.Local != nil {
			source.Local.Path = strings.ReplaceAll(source.Local.Path, "STORAGE", s.storage)
		}
		if err := s.volumes.Add(static(source)); err != nil {
			t.Fatal(err)
		}
		pvDir := filepath.Join(s.storage, below)
		want := pvDir + " is or lies in the directory of PersistentVolume tenants" + refused
		if strings.Contains(below, named) {
			want = pvDir + " is or lies in a directory that is named like a volume's (x-" + named + ")" + refused
		}
		class := s.class("pvDir", pvDir)
		_, _, err := s.Provision(t.Context(), claimed(class))
		s.refused("provision in "+below, err, want)
		s.holds(s.storage)
		// One that an older version has made there, and a pod has exchanged.
		s.write(s.storage, "nodes", pvName, "file")
		if err := os.MkdirAll(filepath.Dir(pvDir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(s.storage+"/nodes", pvDir); err != nil {
			t.Fatal(err)
		}
		s.refused("delete in "+below, s.Delete(t.Context(), torchboxs(pvDir+"/"+pvName)), want)
		s.holds(s.storage+"/nodes/"+pvName, "file")
	}
}

// TestThroughALink below the instance's path, at whatever place, nothing is made or removed. One above it is the
// administrator's.
func TestThroughALink(t *testing.T) {
	s := setUp(t)
	s.write(s.storage, "nodes", "deep", pvName, "file")
	for link, to := range map[string]string{"a": "nodes/deep", "b": "nodes", "c": s.storage + "/nodes"} {
		if err := os.Symlink(to, filepath.Join(s.storage, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, pvDir := range []string{"a", "b/deep", "c/deep", "b/new"} {
		link, _, _ := strings.Cut(pvDir, "/")
		want := "STORAGE/" + link + " is a link, and none is followed below " + s.Path + ", the path of this " +
			"instance (-path): name the directory that it leads to"
		class := s.class("pvDir", filepath.Join(s.storage, pvDir))
		_, _, err := s.Provision(t.Context(), claimed(class))
		s.refused("provision in "+pvDir, err, want)
		s.refused("delete in "+pvDir, s.Delete(t.Context(), torchboxs(filepath.Join(s.storage, pvDir, pvName))), want)
	}
	s.holds(s.storage+"/nodes", "deep")
	s.holds(s.storage+"/nodes/deep/"+pvName, "file")

	above := filepath.Join(t.TempDir(), "above")
	if err := os.Symlink(s.storage, above); err != nil {
		t.Fatal(err)
	}
	s.Path = above
	s.provisioned(claimed(s.class("pvDir", above+"/pvs")))
	s.holds(s.storage+"/pvs", pvName)
}

// TestOutsideOfItsPath an instance makes and removes nothing.
func TestOutsideOfItsPath(t *testing.T) {
	s := setUp(t)
	s.Path = s.storage + "/mine"
	for _, pvDir := range []string{s.storage, s.storage + "/other", s.storage + "/mine2"} {
		want := pvDir + " is not in STORAGE/mine, the path of this instance (-path); nothing is made or removed there"
		_, _, err := s.Provision(t.Context(), claimed(s.class("pvDir", pvDir)))
		s.refused("provision", err, want)
		s.write(pvDir, pvName, "file")
		s.refused("delete", s.Delete(t.Context(), torchboxs(pvDir+"/"+pvName)), want)
		s.holds(pvDir+"/"+pvName, "file")
	}
}
