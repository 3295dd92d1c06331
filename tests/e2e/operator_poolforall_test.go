package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// poolForAll has one claim, which all nodes share.
const poolForAll = "for-all"

// overlayClass is what kubevirt's operator calls the class of such a pool.
const overlayClass = "hpp-overlay"

// sharedVolume is a PersistentVolume that all nodes can have at once, for one claim of the operator's namespace.
func (s *scene) sharedVolume(claim string) {
	s.t.Helper()
	s.shareDisk(claim, "256M", sharedPath)
	s.apply(`apiVersion: v1
kind: PersistentVolume
metadata: {name: ` + claim + `}
spec:
  accessModes: [ReadWriteMany]
  capacity: {storage: 200Mi}
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: ` + namespace + `, name: ` + claim + `}
  hostPath: {path: ` + sharedPath + `, type: Directory}
`)
	s.deleteWhenDone("persistentvolume", claim)
}

func TestOperatorServesOneClaimForAllNodes(t *testing.T) {
	nightly(t)
	first, second := world.workers[0], world.workers[1]
	path := pathOf(poolForAll)
	var volume string
	var user *corev1.Pod
	replacing(t, "one ReadWriteMany claim is a pool on all nodes, with the class that kubevirt's operator makes for it",
		step{"OneClaimIsMountedOnEveryNode", func(s *scene) {
			s.sharedVolume(poolClaim(poolForAll, "shared"))
			s.installOperator()
			s.admit(
				"apiVersion: hostpathprovisioner.kubevirt.io/v1beta1\nkind: HostPathProvisioner\nmetadata: {name: " +
					customResource + "}\nspec:\n  storagePools:\n  - name: " + poolForAll + "\n    path: " + path + `
    pvcTemplate:
      storageClassName: ""
      accessModes: [ReadWriteMany]
      resources: {requests: {storage: 200Mi}}
`)
			s.poolIs(poolForAll, "Ready", len(s.nodes))
			s.claimOfPoolIs(poolForAll, "shared", corev1.ClaimBound)
			s.condition("Available", "True")
			s.condition("Degraded", "False")
			var class storagev1.StorageClass
			s.must(s.api.Get(s.ctx, overlayClass, "", &class))
			if class.Parameters["storagePool"] != poolForAll || class.Parameters["overlayCSI"] != "true" {
				s.t.Errorf("class %s has the parameters %v", overlayClass, class.Parameters)
			}
		}},
		step{"PodsOnTwoNodesShareAVolume", func(s *scene) {
			s.create(writableByMany(s.claim("data", overlayClass, "16Mi")))
			pv := s.bound("data") // without a pod: the class is Immediate
			volume = pv.Name
			if pv.Spec.NodeAffinity != nil {
				s.t.Errorf("the volume is tied to %v", pv.Spec.NodeAffinity)
			}
			sum := firstWord(s.output(on(first, s.pod("writer", claimed("data"), writeData()...))))
			s.output(on(second, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.create(on(second, s.pod("user", claimed("data"), appendLines()...)))
			user = s.running("user")
			s.grows(first, path+"/csi/"+volume+"/lines")
			for _, node := range s.nodes {
				if got := s.sum(node, sharedPath+"/"+volume+"/file"); got != sum {
					s.t.Errorf("on the filesystem of the claim %s sees %s, the pod wrote %s", node, got, sum)
				}
			}
		}},
		step{"TheMounterIsKilledWhileAVolumeIsInUse", func(s *scene) {
			s.killMounter(poolForAll, path, user)
			s.output(on(first, s.pod("again", claimed("data"), writeData()...)))
		}},
		step{"ANodeThatIsNotSelectedKeepsItsMounter", func(s *scene) {
			s.kubectl("patch", "hostpathprovisioner", customResource, "--type", "json", "--patch",
				`[{"op":"add","path":"/spec/storagePools/0/nodeSelector","value":{"kubernetes.io/hostname":"`+first+
					`"}}]`)
			s.condition("Available", "True")
			s.stays("the mounter is there", func() (bool, string) {
				list, err := s.mounters(poolForAll, second)
				return err == nil && len(list) == 1, fmt.Sprintf("%d pods, %v", len(list), err)
			})
			s.grows(second, path+"/csi/"+volume+"/lines")
			s.untouched(user)
			s.kubectl("patch", "hostpathprovisioner", customResource, "--type", "json", "--patch",
				`[{"op":"remove","path":"/spec/storagePools/0/nodeSelector"}]`)
			s.poolIs(poolForAll, "Ready", len(s.nodes))
		}},
		step{"TheResourceGoesAndTheClaimStays", func(s *scene) {
			for _, pod := range []string{"writer", "reader", "user", "again"} {
				s.deletePod(pod)
			}
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.everyRoomIsEmpty(path)
			s.deleteResource()
			s.noPodsOf(nodeComponent)
			s.noPodsOf(mounterComponent)
			s.nothingIsOwned()
			s.absentObject("storageclass/" + overlayClass)
			for _, node := range s.nodes {
				s.notMounted(node, path+"/csi")
			}
			s.poolClaimIs(poolForAll, "shared", corev1.ClaimBound)
			left := s.list(first, sharedPath)
			if slices.Sort(left); !slices.Equal(left, []string{".hpp", "lost+found"}) {
				s.t.Errorf("on the claim is left %v", left)
			}
		}},
	)
}
