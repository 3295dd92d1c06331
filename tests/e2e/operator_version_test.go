package e2e

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	// controllerTag is the tag of the images of the last release whose chart has the definition in crds/
	// (commit 253208e).
	controllerTag = "0.1.0-e2e"
	// appliedBy is the annotation on the definition with the version of the operator that applied it.
	appliedBy = "hostpathprovisioner.kubevirt.io/applied-by"
)

func TestUpgradeAndRefusedDowngradeOfTheOperator(t *testing.T) {
	nightly(t)
	node := world.workers[0]
	var lines, volume string
	var writer *corev1.Pod
	replacing(t,
		"an operator is upgraded under a pod that writes, and an older one than the definition's changes nothing",
		step{"TheLastReleaseServesAVolume", func(s *scene) {
			s.whenDone(s.leaveOperator)
			s.installController()
			s.admit(s.seed("pool-cr.yaml"))
			s.apply(s.seed("pool-storageclass.yaml"))
			s.deleteWhenDone("storageclass", seedClass)
			s.condition("Available", "True")
			s.create(s.claim("data", seedClass, "16Mi"))
			s.create(on(node, s.pod("writer", claimed("data"), appendLines()...)))
			writer = s.running("writer")
			volume = s.bound("data").Name
			lines = seedPath + "/csi/" + volume + "/lines"
		}},
		step{"Upgrade", func(s *scene) {
			s.must(s.install(s.ctx, s.operated()))
			s.eventually("the driver is this version's", func() (bool, string) {
				image := s.daemonSet("-csi").Spec.Template.Spec.Containers[0].Image
				return strings.Contains(image, s.digests["driver"]), image
			})
			s.definitionIs(imageTag)
			s.condition("Available", "True")
			s.condition("Degraded", "False")
			s.untouched(writer)
			s.grows(node, lines)
		}},
		step{"OldAndNewVolumesWork", func(s *scene) {
			s.create(s.claim("new", seedClass, "16Mi"))
			s.output(on(node, s.pod("new", claimed("new"), writeData()...)))
			s.deletePod("new")
			created := s.bound("new").Name
			s.remove(s.claim("new", "", "0"))
			s.gone(created)
		}},
		step{"AnOlderOperatorChangesNothing", func(s *scene) {
			before := s.daemonSet("-csi")
			// What a newer one leaves. This one is then the older.
			s.kubectl("annotate", "customresourcedefinition", definition, appliedBy+"=9.9.9", "--overwrite")
			s.whenDone(func(ctx context.Context) error {
				_, err := s.cluster.Kubectl(ctx, nil, "annotate", "customresourcedefinition", definition, appliedBy+"-")
				return err
			})
			s.kubectl("patch", "hostpathprovisioner", customResource, "--type", "json", "--patch",
				`[{"op":"add","path":"/spec/storagePools/-","value":{"name":"added","path":"`+pathOf("added")+`"}}]`)
			s.resourceSays("Degraded", "DowngradeRefused", "9.9.9", imageTag, "kubectl annotate")
			s.stays("definition and driver are as they were", func() (bool, string) {
				var now appsv1.DaemonSet
				s.must(s.api.Get(s.ctx, before.Name, namespace, &now))
				ok := now.Generation == before.Generation && s.appliedBy() == "9.9.9"
				return ok, "the DaemonSet was changed, or the definition was applied by " + s.appliedBy()
			})
			s.grows(node, lines)
		}},
		step{"AllowedItGoesOn", func(s *scene) {
			s.typed("how-to/upgrade.md", "applied-by-")
			s.definitionIs(imageTag)
			s.poolIs("added", "Ready", len(s.nodes))
			s.condition("Degraded", "False")
			s.untouched(writer)
			s.deletePod("writer")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
		}},
	)
}

// installController replaces the suite's release by the last one whose chart has the definition in crds/.
func (s *scene) installController() {
	s.t.Helper()
	tree, images := s.earlier("controller-release.tar.gz", controllerTag, "driver", "operator")
	values := s.operated()
	delete(values, "mounter")
	withoutControllerImage(values)
	for part, image := range images {
		section, _ := values[part].(map[string]any)
		section["image"] = image
	}
	s.installEarlier(tree, values)
}

// appliedBy is the version of the operator that applied the definition, as that says.
func (s *scene) appliedBy() string {
	s.t.Helper()
	return s.kubectl("get", "customresourcedefinition", definition, "--output",
		`jsonpath={.metadata.annotations.hostpathprovisioner\.kubevirt\.io/applied-by}`)
}

func (s *scene) definitionIs(version string) {
	s.t.Helper()
	s.eventually("the definition was applied by "+version, func() (bool, string) {
		now := s.appliedBy()
		return now == version, now
	})
}
