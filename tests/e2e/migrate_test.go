package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/localpath"
)

const migratedPool = "migrated"

// localPathProvisioner is the name that local-path has in tests.
const localPathProvisioner = "test.rancher.io/local-path"

// goesOn waits until a file begins with a line and has more lines than before.
func (s *scene) goesOn(node, file, first string, more int) (lines int) {
	s.t.Helper()
	s.eventually(file+" goes on from where it was", func() (bool, string) {
		text := s.onNode(node, "cat "+file+" || true")
		lines = strings.Count(text, "\n")
		begins, _, _ := strings.Cut(text, "\n")
		return (first == "" || begins == first) && lines > more, begins
	})
	return lines
}

// TestMigrateFromLocalPath takes a volume of rancher's local-path, gives it back, takes it again, and replaces the
// class.
func TestMigrateFromLocalPath(t *testing.T) {
	var volume, node, oldFile, first string
	lines := 0
	newFile := func() string { return localpath.Path + "/csi/" + volume + "/lines" }
	migrate := func(s *scene, text string) string {
		return s.typed("how-to/come-from-local-path.md", text, "-n shop", "-n "+s.namespace, " web ", " data ",
			"--pool local", "--provisioner "+localPathProvisioner+" --pool "+migratedPool)
	}
	alone(t, "a StatefulSet on rancher's local-path goes on with its data on a volume of the driver",
		step{"LocalPathHasAVolume", func(s *scene) {
			s.whenDone(func(ctx context.Context) error {
				return errors.Join(s.noVolumesOf(ctx, localpath.Class), localpath.Remove(ctx, s.cluster))
			})
			s.must(localpath.Install(s.ctx, s.cluster))
			s.must(s.install(s.ctx, s.values("info", pool{Name: migratedPool, Path: localpath.Path})))
			s.create(s.claim("data", localpath.Class, "64Mi"))
			s.create(s.statefulSet("db", s.pod("db", claimed("data"), appendLines()...)))
			node = s.running("db-0").Spec.NodeName
			pv := s.bound("data")
			volume = pv.Name
			switch {
			case pv.Spec.HostPath != nil:
				oldFile = pv.Spec.HostPath.Path + "/lines"
			case pv.Spec.Local != nil:
				oldFile = pv.Spec.Local.Path + "/lines"
			}
			lines = s.goesOn(node, oldFile, "", 2)
			first, _, _ = strings.Cut(s.onNode(node, "head -n 1 "+oldFile), "\n")
		}},
		step{"ThePlanChangesNothing", func(s *scene) {
			plan := migrate(s, "-n shop\n")
			if !strings.Contains(plan, "rename") || !strings.Contains(plan, "statefulset/db") {
				s.t.Errorf("the plan:\n%s", plan)
			}
			if pv := s.bound("data"); pv.Spec.CSI != nil {
				s.t.Errorf("%+v", pv.Spec)
			}
		}},
		step{"ItIsMigrated", func(s *scene) {
			migrate(s, "--apply")
			if pv := s.bound("data"); pv.Name != volume || pv.Spec.CSI == nil {
				s.t.Errorf("%s: %+v", pv.Name, pv.Spec)
			}
			lines = s.goesOn(node, newFile(), first, lines)
		}},
		step{"ItIsUndone", func(s *scene) {
			migrate(s, "--undo")
			if pv := s.bound("data"); pv.Spec.CSI != nil {
				s.t.Errorf("%+v", pv.Spec)
			}
			lines = s.goesOn(node, oldFile, first, lines)
		}},
		step{"ItIsFinished", func(s *scene) {
			migrate(s, "--apply")
			lines = s.goesOn(node, newFile(), first, lines)
			migrate(s, "--finish")
			by := s.kubectl("get", "storageclass", localpath.Class, "-o", "jsonpath={.provisioner}")
			if by != driverName {
				s.t.Errorf("the class is one of %s", by)
			}
			if is := s.bound("data").Spec.PersistentVolumeReclaimPolicy; is != corev1.PersistentVolumeReclaimDelete {
				s.t.Errorf("the volume's policy is %s", is)
			}
			s.remove(s.statefulSet("db", s.pod("db", claimed("data"), "sleep")))
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
		}},
	)
}
