package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestGrowthUnderLoad(t *testing.T) {
	node := world.workers[0]
	class := classOf(poolGrowing)
	var writer *corev1.Pod
	var lines string
	parallel(t, "a volume grows under a pod that writes, and only as far as its pool has room",
		step{"APodWrites", func(s *scene) {
			s.mountBtrfs(node, poolGrowing, "1G", pathOf(poolGrowing))
			s.capacityBecomes(class, node, "more than 512 MiB", func(n int64) bool { return n > 512*mebibyte })
			s.create(s.claim("data", class, "128Mi"))
			s.create(on(node, s.pod("data", claimed("data"), appendLines()...)))
			writer = s.running("data")
			lines = volumePath(poolGrowing, s.bound("data").Name) + "/lines"
			s.grows(node, lines)
		}},
		step{"ItGrowsMeanwhile", func(s *scene) {
			s.ask("data", "256Mi")
			s.given("data", "256Mi")
			if size := s.bound("data").Spec.Capacity[corev1.ResourceStorage]; size.Value() != 256*mebibyte {
				s.t.Errorf("the PersistentVolume has %s, want 256Mi", size.String())
			}
			s.untouched(writer)
			s.grows(node, lines)
			s.volumeStat(node, "data", "capacity_bytes", func(n float64) bool { return n == 256*mebibyte })
			fitted, why := s.filled(on(node, s.pod("filler", claimed("data"), fillData()...)))
			if fitted > 256*mebibyte || fitted < 200*mebibyte || why == "all" {
				s.t.Errorf("%d bytes fitted into 256 MiB (%s); want nearly all of it, and an error then", fitted, why)
			}
			s.deletePod("filler")
			s.onNode(node, "rm "+volumePath(poolGrowing, s.bound("data").Name)+"/fill-*")
		}},
		step{"MoreThanThePoolHasIsRefused", func(s *scene) {
			s.grows(node, lines)
			writer = s.running("data") // full was an error to it too, and it was started again
			s.ask("data", "100Gi")
			s.t.Logf(
				"the claim's event: %s", s.said("PersistentVolumeClaim", "data", "VolumeResizeFailed", "publishes room for"),
			)
			if size := s.bound("data").Spec.Capacity[corev1.ResourceStorage]; size.Value() != 256*mebibyte {
				s.t.Errorf("the PersistentVolume has %s, want 256Mi as before", size.String())
			}
			s.untouched(writer)
			s.grows(node, lines)
		}},
		step{"ThePodStartsAgain", func(s *scene) {
			s.deletePod("data")
			s.create(on(node, s.pod("data", claimed("data"), appendLines()...)))
			writer = s.running("data")
			s.grows(node, lines)
		}},
		step{"AskingForLessGrowsAfterAll", func(s *scene) {
			s.ask("data", "300Mi")
			s.given("data", "300Mi")
			s.untouched(writer)
		}},
		step{"WithoutAPodItGrowsAtTheNextMount", func(s *scene) {
			s.deletePod("data")
			s.ask("data", "400Mi")
			s.waitsForAMount("data", "300Mi")
			if size := s.bound("data").Spec.Capacity[corev1.ResourceStorage]; size.Value() != 400*mebibyte {
				s.t.Errorf("the PersistentVolume has %s, want 400Mi: it was granted", size.String())
			}
			fitted, why := s.filled(on(node, s.pod("data", claimed("data"), fillData()...)))
			if fitted > 400*mebibyte || fitted < 320*mebibyte || why == "all" {
				s.t.Errorf("%d bytes fitted into 400 MiB (%s); want nearly all of it, and an error then", fitted, why)
			}
			s.given("data", "400Mi")
		}},
		step{"VolumeGoesBeforeItsDisk", func(s *scene) { s.forget("data") }},
	)
}

func TestGrowthWhereNothingIsEnforced(t *testing.T) {
	node := world.workers[1]
	class := classOf(poolSingle)
	parallel(t, "where nothing is enforced a volume's record grows, also where no further volume can be made",
		step{"APodUsesIt", func(s *scene) {
			s.create(s.claim("data", class, "16Mi"))
			s.create(on(node, s.pod("data", claimed("data"), appendLines()...)))
			s.running("data")
		}},
		step{"ItsPoolTakesNoOther", func(s *scene) {
			s.create(s.claim("other", class, "16Mi"))
			s.create(on(node, s.pod("other", claimed("other"), appendLines()...)))
			s.said("Pod", "other", "FailedScheduling", "did not have enough free storage")
			s.capacityBecomes(class, node, "0", none) // what volumes may grow by is published apart from that
		}},
		step{"TheRecordGrows", func(s *scene) {
			s.ask("data", "32Mi")
			s.given("data", "32Mi")
			var record struct {
				Bytes int64 `json:"bytes"`
			}
			text := s.onNode(node, "cat "+pathOf(poolSingle)+"/csi/.hpp/volumes/"+s.bound("data").Name+".json")
			s.must(json.Unmarshal([]byte(text), &record))
			if record.Bytes != 32*mebibyte {
				s.t.Errorf("the record says %d bytes, want 32 MiB: %s", record.Bytes, text)
			}
		}},
	)
}

// ask asks for another size of a claim, as users do.
func (s *scene) ask(claim, size string) {
	s.t.Helper()
	s.kubectl("patch", "persistentvolumeclaim", claim, "--namespace", s.namespace, "--patch",
		fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

// waitsForAMount waits until a growth was granted that only the kubelet can finish, and wants the
// claim to have its old size meanwhile.
func (s *scene) waitsForAMount(claim, size string) {
	s.t.Helper()
	want := resource.MustParse(size)
	s.eventually("the growth of claim "+claim+" waits for a mount", func() (bool, string) {
		got, onNode, instead := s.growth(claim)
		return onNode && got.Cmp(want) == 0, instead
	})
}

// given waits until a claim has a size. The kubelet takes up to 90 seconds to see that a volume of a running pod is
// to grow, and sees it at once when the pod changes; that of the claim's name does.
func (s *scene) given(claim, size string) {
	s.t.Helper()
	want, changed := resource.MustParse(size), false
	s.eventually("claim "+claim+" has "+size, func() (bool, string) {
		got, onNode, instead := s.growth(claim)
		if onNode && !changed {
			s.kubectl("annotate", "pods", claim, "--namespace", s.namespace, "--overwrite",
				"e2e.hostpath-provisioner/grows-to="+size)
			changed = true
		}
		return got.Cmp(want) == 0, instead
	})
}

// growth is the size that a claim has, and whether a larger one was granted that the node has yet to give.
func (s *scene) growth(claim string) (size resource.Quantity, onNode bool, what string) {
	s.t.Helper()
	var pvc corev1.PersistentVolumeClaim
	if err := s.api.Get(s.ctx, claim, s.namespace, &pvc); err != nil {
		return size, false, err.Error()
	}
	size = pvc.Status.Capacity[corev1.ResourceStorage]
	onNode = slices.ContainsFunc(pvc.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
	})
	return size, onNode, fmt.Sprintf("%s, conditions %v", size.String(), pvc.Status.Conditions)
}
