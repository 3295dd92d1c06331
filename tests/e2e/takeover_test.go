package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// kubevirtPool is the pool of the volumes to take over.
const kubevirtPool = "kubevirt"

// kubevirtClass is a StorageClass as kubevirt's documentation has it.
const kubevirtClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: e2e-hostpath-csi
provisioner: kubevirt.io.hostpath-provisioner
reclaimPolicy: Delete
volumeBindingMode: WaitForFirstConsumer
parameters:
  storagePool: kubevirt
  overlayCSI: "true"
`

// kubevirtVolume is a PersistentVolume as kubevirt's driver and its
// external-provisioner made them: fsType xfs by default, the class's
// parameters and the provisioner's keys as attributes, the size of the whole
// filesystem as capacity.
const kubevirtVolume = `apiVersion: v1
kind: PersistentVolume
metadata:
  name: ${VOLUME}
  annotations:
    pv.kubernetes.io/provisioned-by: kubevirt.io.hostpath-provisioner
    volume.kubernetes.io/provisioner-deletion-secret-name: ""
    volume.kubernetes.io/provisioner-deletion-secret-namespace: ""
  finalizers: [kubernetes.io/pv-protection, external-provisioner.volume.kubernetes.io/finalizer]
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 79Gi}
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: ${NAMESPACE}, name: ${CLAIM}, uid: ${UID}}
  csi:
    driver: kubevirt.io.hostpath-provisioner
    fsType: xfs
    volumeHandle: ${VOLUME}
    volumeAttributes:
      csi.storage.k8s.io/pv/name: ${VOLUME}
      csi.storage.k8s.io/pvc/name: ${CLAIM}
      csi.storage.k8s.io/pvc/namespace: ${NAMESPACE}
      storage.kubernetes.io/csiProvisionerIdentity: 1700000000000-1234-kubevirt.io.hostpath-provisioner-${NODE}
      storagePool: ${POOL}
      overlayCSI: "true"
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: topology.hostpath.csi/node, operator: In, values: [${NODE}]}
  persistentVolumeReclaimPolicy: Delete
  storageClassName: ${CLASS}
  volumeMode: Filesystem
`

// kubevirtMade makes a claim, its volume and its directory as kubevirt's
// driver would have, and returns the volume's name.
func (s *scene) kubevirtMade(node, pool, claim string) string {
	s.t.Helper()
	volume := s.untracked(node, pool, claim, "e2e-hostpath-csi")
	s.onNode(node, "chmod 755 "+pathOf(pool)+"/csi; echo written by kubevirt in "+claim+
		" >"+volumePath(pool, volume)+"/file")
	return volume
}

// untracked makes a claim, its volume and a directory of which no driver knows, and returns the volume's name.
func (s *scene) untracked(node, pool, claim, class string) string {
	s.t.Helper()
	c := s.claim(claim, class, "1Gi")
	s.create(c)
	volume := "pvc-" + string(c.UID)
	s.onNode(node, "mkdir -p "+volumePath(pool, volume))
	s.apply(strings.NewReplacer("${VOLUME}", volume, "${CLAIM}", claim, "${NAMESPACE}", s.namespace, "${CLASS}", class,
		"${UID}", string(c.UID), "${NODE}", node, "${POOL}", pool).Replace(kubevirtVolume))
	return volume
}

// adopted waits until so many volumes of a pool have a record that says that they were not made by this driver.
func (s *scene) adopted(node, pool string, want int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d volumes of pool %s have records", want, pool), func() (bool, string) {
		records := s.onNode(node, "cat "+pathOf(pool)+"/csi/.hpp/volumes/*.json || true")
		return strings.Count(records, `"adopted": true`) == want, records
	})
}

func TestTakeoverFromKubevirt(t *testing.T) {
	nightly(t)
	node := world.workers[1]
	extra := pool{Name: kubevirtPool, Path: pathOf(kubevirtPool), Inline: true}
	snapshots := pathOf(kubevirtPool) + "/csi/snapshots"
	var first, second string
	alone(t, "volumes that kubevirt's driver made are served and deleted properly",
		step{"KubevirtLeavesVolumes", func(s *scene) {
			s.apply(kubevirtClass)
			s.deleteWhenDone("storageclass", "e2e-hostpath-csi")
			first, second = s.kubevirtMade(node, kubevirtPool, "first"), s.kubevirtMade(node, kubevirtPool, "second")
			s.onNode(node, "mkdir -p "+snapshots+"; echo precious >"+snapshots+"/file")
			for _, claim := range []string{"first", "second"} {
				s.bound(claim)
			}
		}},
		step{"TheyAreAdopted", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info", extra)))
			s.adopted(node, kubevirtPool, 2)
		}},
		step{"PodsReadAndWriteThem", func(s *scene) {
			sum := s.sum(node, volumePath(kubevirtPool, first)+"/file")
			s.output(s.pod("reader", claimed("first"), checkData(sum)...)) // the affinity alone places it
			s.deletePod("reader")
			s.output(s.pod("writer", claimed("second"), "write", dataDir+"/new"))
			s.deletePod("writer")
			if !s.exists(node, volumePath(kubevirtPool, second)+"/new") {
				s.t.Error("the pod wrote somewhere else")
			}
		}},
		step{"TheirClassMakesNewVolumes", func(s *scene) {
			s.create(s.claim("new", "e2e-hostpath-csi", "16Mi"))
			s.output(on(node, s.pod("new", claimed("new"), writeData()...)))
			volume := s.bound("new").Name
			s.existsOnlyOn(node, volumePath(kubevirtPool, volume))
			s.deletePod("new")
			s.remove(s.claim("new", "", "0"))
			s.gone(volume)
		}},
		step{"AnInlineVolumeLivesThroughARebootAndEndsWithItsPod", func(s *scene) {
			csi := pathOf(kubevirtPool) + "/csi"
			volume := inline(map[string]string{"storagePool": kubevirtPool, "size": "16Mi"})
			s.create(on(node, s.pod("inline", volume, appendLines()...)))
			s.running("inline")
			directory := s.onNode(node, "ls -d "+csi+"/csi-*")
			s.onNode(node, "rm "+csi+"/.hpp/volumes/csi-*.json") // kubevirt's driver made none
			s.growsAfterRestart(node, directory+"/lines")
			s.deletePod("inline")
			s.vanishes(node, directory)
			s.eventually("the records are those of two claims", func() (bool, string) {
				records := s.list(node, csi+"/.hpp/volumes")
				return len(records) == 2, strings.Join(records, " ")
			})
		}},
		step{"TheyAreDeletedAndNothingElse", func(s *scene) {
			for claim, volume := range map[string]string{"first": first, "second": second} {
				s.remove(s.claim(claim, "", "0"))
				s.gone(volume)
				s.vanishes(node, volumePath(kubevirtPool, volume))
			}
			if !s.exists(node, snapshots+"/file") {
				s.t.Error("a directory that is no volume was removed")
			}
			s.restoreRelease(kubevirtPool)
			s.onNode(node, "rm -rf "+pathOf(kubevirtPool))
		}},
	)
}
