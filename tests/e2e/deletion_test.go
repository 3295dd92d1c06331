package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestDeletion(t *testing.T) {
	node := world.workers[0]
	var volume string
	parallel(t, "deleting a claim removes the directory",
		step{"PodWrites", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "16Mi"))
			s.output(on(node, s.pod("writer", claimed("data"), writeData()...)))
			volume = s.bound("data").Name
			s.existsOnlyOn(node, volumePath(poolLocal, volume))
		}},
		step{"ClaimInUseStays", func(s *scene) {
			s.create(on(node, s.pod("user", claimed("data"), appendLines()...)))
			s.running("user")
			s.remove(s.claim("data", "", "0"))
			s.stays("the volume of a claim that a pod uses is there", func() (bool, string) {
				return s.exists(node, volumePath(poolLocal, volume)+"/file"), "it is gone"
			})
		}},
		step{"DirectoryRecordAndTrashAreRemoved", func(s *scene) {
			s.deletePod("user")
			s.deletePod("writer")
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
			s.vanishes(node, pathOf(poolLocal)+"/csi/.hpp/volumes/"+volume+".json")
			s.eventually("the trash is purged", func() (bool, string) {
				left := s.onNode(node, "ls "+pathOf(poolLocal)+"/csi/.hpp/trash")
				return !strings.Contains(left, volume), left
			})
		}},
	)
}

func TestRetain(t *testing.T) {
	node := world.workers[1]
	var volume, sum string
	parallel(t, "Retain keeps the directory",
		step{"PodWrites", func(s *scene) {
			s.create(s.claim("data", classRetain, "16Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
		}},
		step{"DirectoryOutlivesItsClaim", func(s *scene) {
			s.deletePod("writer")
			s.remove(s.claim("data", "", "0"))
			s.volumeBecomes(volume, corev1.VolumeReleased)
			s.stays("file of the released volume is there", func() (bool, string) {
				got := s.sum(node, volumePath(poolLocal, volume)+"/file")
				return got == sum, got
			})
		}},
		step{"AClaimOfTheSameNameGetsIt", func(s *scene) {
			const page = "how-to/reuse-a-retained-volume.md"
			if of := s.typed(page, "get pv PV", "PV", volume); of != s.namespace+"/data\n" {
				s.t.Errorf("the volume was of %q", of)
			}
			s.typed(page, `{"uid": null`, "PV", volume)
			s.create(s.claim("data", classRetain, "16Mi"))
			s.has("data", volume)
			s.remove(s.claim("data", "", "0"))
			s.volumeBecomes(volume, corev1.VolumeReleased)
		}},
		step{"AClaimOfAnotherNameGetsIt", func(s *scene) {
			s.typed("how-to/reuse-a-retained-volume.md", "volumeName", "PV", volume, "NAMESPACE", s.namespace, "CLAIM",
				"again", "CLASS", classRetain, "1Gi", "16Mi")
			s.has("again", volume)
			s.remove(s.claim("again", "", "0"))
			s.volumeBecomes(volume, corev1.VolumeReleased)
		}},
		step{"ItGoesWhenThePolicyIsChanged", func(s *scene) {
			s.typed("how-to/reuse-a-retained-volume.md", "persistentVolumeReclaimPolicy", "PV", volume)
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
		}},
	)
}

// has waits until a claim is Bound to a volume.
func (s *scene) has(claim, volume string) {
	s.t.Helper()
	if got := s.bound(claim).Name; got != volume {
		s.t.Errorf("the claim %s has volume %s, and not %s", claim, got, volume)
	}
}

// trashed makes a volume of the claim data and deletes it, so that it is in the trash, with a file of that sum.
func (s *scene) trashed(node string) (volume, sum string) {
	s.t.Helper()
	s.create(s.claim("data", classKept, "16Mi"))
	sum = firstWord(s.output(on(node, s.pod("data", claimed("data"), writeData()...))))
	volume = s.bound("data").Name
	s.forget("data")
	s.vanishes(node, volumePath(poolLocal, volume))
	return volume, sum
}

// TestUndelete types what docs/how-to/undelete.md says.
func TestUndelete(t *testing.T) {
	node := world.workers[1]
	var volume, sum string
	parallel(t, "a volume that was deleted comes back, its data too",
		step{"AVolumeIsDeleted", func(s *scene) { volume, sum = s.trashed(node) }},
		step{"ItComesBack", func(s *scene) {
			const page = "how-to/undelete.md"
			if out := s.typed(page, "get trash"); !strings.Contains(out, volume) {
				s.t.Errorf("the trash is %s", out)
			}
			s.typed(page, "undelete CLAIM", "CLAIM", "data --class "+classKept+" --node "+node,
				"NAMESPACE", s.namespace)
			s.has("data", volume)
			s.output(s.pod("reader", claimed("data"), checkData(sum)...))
		}},
		step{"ItIsDeletedLikeAnyOther", func(s *scene) {
			s.deletePod("reader")
			s.typed("how-to/undelete.md", "persistentVolumeReclaimPolicy", "ID", volume)
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
			s.onNode(node, "rm -r "+pathOf(poolLocal)+"/csi/.hpp/trash/"+volume+".*") // as an administrator
		}},
	)
}

// TestCopyFromTheTrash types how data is copied from the trash.
func TestCopyFromTheTrash(t *testing.T) {
	nightly(t)
	const page = "how-to/undelete.md"
	node := world.workers[0]
	var volume, sum string
	parallel(t, "a deleted volume's data is copied from the trash into another",
		step{"AVolumeIsDeleted", func(s *scene) { volume, sum = s.trashed(node) }},
		step{"ItsDataIsCopied", func(s *scene) {
			s.create(s.claim("new", classOf(poolLocal), "16Mi"))
			s.create(on(node, s.pod("user", claimed("new"), "sleep")))
			s.running("user")
			trash := pathOf(poolLocal) + "/csi/.hpp/trash"
			entry := s.onNode(node, "cd "+trash+"; ls -d "+volume+".*")
			s.typedOnNode(node, page, "rsync", "rsync", s.bring(node, "rsync"), "/mnt/ssd", pathOf(poolLocal),
				"ENTRY", entry, "NEW", s.bound("new").Name)
			s.deletePod("user")
			s.output(s.pod("reader", claimed("new"), checkData(sum)...))
			s.deletePod("reader")
			s.onNode(node, "rm -r "+trash+"/"+entry) // as an administrator
		}},
	)
}

// volumeBecomes waits for a PersistentVolume's phase.
func (s *scene) volumeBecomes(volume string, phase corev1.PersistentVolumePhase) {
	s.t.Helper()
	var pv corev1.PersistentVolume
	s.eventually("PersistentVolume "+volume+" is "+string(phase), func() (bool, string) {
		if err := s.api.Get(s.ctx, volume, "", &pv); err != nil {
			return false, err.Error()
		}
		return pv.Status.Phase == phase, string(pv.Status.Phase)
	})
}
