package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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
			s.growTo("data", "256Mi")
			s.recorded(node, poolGrowing, "data", 256*mebibyte)
			s.untouched(writer)
			s.grows(node, lines)
			fitted, why := s.filled(on(node, s.pod("filler", claimed("data"), fillData()...)))
			if fitted > 256*mebibyte || fitted < 200*mebibyte || why == "all" {
				s.t.Errorf("%d bytes fitted into 256 MiB (%s); want nearly all of it, and an error then", fitted, why)
			}
			s.deletePod("filler")
			s.onNode(node, "rm "+volumePath(poolGrowing, s.bound("data").Name)+"/fill-*")
		}},
		step{"MoreThanThePoolHasIsRefused", func(s *scene) {
			s.grows(node, lines)
			s.ask("data", "100Gi")
			s.t.Logf("the claim's event: %s",
				s.said("PersistentVolumeClaim", "data", "VolumeResizeFailed", "OutOfRange"))
			s.settlesAs("data", corev1.PersistentVolumeClaimControllerResizeInfeasible)
			if size := s.bound("data").Spec.Capacity[corev1.ResourceStorage]; size.Value() != 256*mebibyte {
				s.t.Errorf("the PersistentVolume has %s, want 256Mi as before", size.String())
			}
			s.recorded(node, poolGrowing, "data", 256*mebibyte)
			s.untouched(writer)
			s.grows(node, lines)
		}},
		step{"AskingForLessSettlesIt", func(s *scene) {
			s.growTo("data", "300Mi")
			s.settlesAs("data", "")
			if said := s.typed("how-to/grow-a-volume.md", "csi-resizer"); !strings.Contains(said, controllerService) {
				s.t.Errorf("the page's commands for a growth that waits print %s", said)
			}
			s.untouched(writer)
		}},
		step{"TheKubeletTellsTheSize", func(s *scene) {
			s.volumeStat(node, "data", "capacity_bytes", func(n float64) bool { return n == 300*mebibyte })
		}},
		step{"WithoutAPodItGrowsToo", func(s *scene) {
			s.deletePod("data")
			s.growTo("data", "400Mi")
			fitted, why := s.filled(on(node, s.pod("data", claimed("data"), fillData()...)))
			if fitted > 400*mebibyte || fitted < 320*mebibyte || why == "all" {
				s.t.Errorf("%d bytes fitted into 400 MiB (%s); want nearly all of it, and an error then", fitted, why)
			}
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
			s.capacityBecomes(class, node, "0", none)
		}},
		step{"TheRecordGrows", func(s *scene) {
			s.growTo("data", "32Mi")
			s.recorded(node, poolSingle, "data", 32*mebibyte)
		}},
	)
}

// ask asks for another size of a claim, as users do.
func (s *scene) ask(claim, size string) {
	s.t.Helper()
	s.kubectl("patch", "persistentvolumeclaim", claim, "--namespace", s.namespace, "--patch",
		fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

// quick is how soon a growth should be there. No test fails on that clock.
const quick = 10 * time.Second

// growTo asks for a size and waits until claim and PersistentVolume have it.
func (s *scene) growTo(claim, size string) {
	s.t.Helper()
	begin := time.Now()
	s.typed("how-to/grow-a-volume.md", "--watch", "data", claim, "20Gi", size, " --watch", "")
	s.given(claim, size)
	s.t.Logf("claim %s has %s after %s (expected: %s)", claim, size, seconds(begin), quick)
	if got := s.bound(claim).Spec.Capacity[corev1.ResourceStorage]; got.Cmp(resource.MustParse(size)) != 0 {
		s.t.Errorf("the PersistentVolume of claim %s has %s, want %s", claim, got.String(), size)
	}
}

// given waits until a claim has a size.
func (s *scene) given(claim, size string) {
	s.t.Helper()
	want := resource.MustParse(size)
	s.eventually("claim "+claim+" has "+size, func() (bool, string) {
		var pvc corev1.PersistentVolumeClaim
		err := s.api.Get(s.ctx, claim, s.namespace, &pvc)
		got := pvc.Status.Capacity[corev1.ResourceStorage]
		return err == nil && got.Cmp(want) == 0, fmt.Sprintf("%s, %v, %v", got.String(), pvc.Status.Conditions, err)
	})
}

// settlesAs waits until csi-resizer says how far it is with a claim. It says nothing once that has its size.
func (s *scene) settlesAs(claim string, want corev1.ClaimResourceStatus) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the growth of claim %s is %q", claim, want), func() (bool, string) {
		var pvc corev1.PersistentVolumeClaim
		err := s.api.Get(s.ctx, claim, s.namespace, &pvc)
		got := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
		return err == nil && got == want, fmt.Sprintf("%q, %v, %v", got, pvc.Status.Conditions, err)
	})
}

// recorded checks the size in the record of a claim's volume.
func (s *scene) recorded(node, pool, claim string, bytes int64) {
	s.t.Helper()
	var record struct {
		Bytes int64 `json:"bytes"`
	}
	text := s.onNode(node, "cat "+pathOf(pool)+"/csi/.hpp/volumes/"+s.bound(claim).Name+".json")
	s.must(json.Unmarshal([]byte(text), &record))
	if record.Bytes != bytes {
		s.t.Errorf("the record says %d bytes, want %d: %s", record.Bytes, bytes, text)
	}
}
