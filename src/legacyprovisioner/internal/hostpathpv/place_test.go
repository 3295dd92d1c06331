package hostpathpv_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// TestWarnOfOthers where somebody else may exchange what is in a directory. Needs root.
func TestWarnOfOthers(t *testing.T) {
	for _, test := range []struct {
		mode  os.FileMode
		owner int
		warns bool
	}{
		{0o755, 0, false},
		{0o777 | os.ModeSticky, 0, false},
		{0o775, 0, true},
		{0o757, 0, true},
		{0o700, 1000, true},
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, test.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, test.owner, 0); err != nil {
			t.Fatalf("give a directory away (this test needs root): %v", err)
		}
		d, err := hostpathpv.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		hostpathpv.WarnOfOthers(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), d.File)
		if warned := log.Len() > 0; warned != test.warns {
			t.Errorf("mode %v, owner %d: logged %q", test.mode, test.owner, log.String())
		}
		d.Close()
	}
}

// TestAlone: what is removed with a volume is nobody else's.
func TestAlone(t *testing.T) {
	type source = corev1.PersistentVolumeSource
	named := func(name string, from source) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: from},
		}
	}
	at := func(path string) source { return source{HostPath: &corev1.HostPathVolumeSource{Path: path}} }
	pv := named("pvc-1", at("/srv/pvc-1"))
	for _, c := range []struct {
		other *corev1.PersistentVolume
		alone bool
	}{
		{named("other", at("/srv/pvc-1")), false},
		{named("other", at("/srv/pvc-1/")), false},
		{named("other", at("/srv/pvc-1/in/it")), false},
		{named("other", source{Local: &corev1.LocalVolumeSource{Path: "/srv/pvc-1"}}), false},
		{named("other", at("/srv/pvc-10")), true},
		{named("other", at("/srv")), true},
		{named("other", source{CSI: &corev1.CSIPersistentVolumeSource{VolumeHandle: "pvc-1"}}), true},
		{named("pvc-1", at("/srv/pvc-1")), true}, // itself
	} {
		volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		if err := volumes.Add(c.other); err != nil {
			t.Fatal(err)
		}
		err := hostpathpv.Alone(pv, corelisters.NewPersistentVolumeLister(volumes))
		if (err == nil) != c.alone || err != nil && !strings.Contains(err.Error(), "PersistentVolume other has") {
			t.Errorf("beside %s at %v: %v", c.other.Name, c.other.Spec.PersistentVolumeSource, err)
		}
	}
}
