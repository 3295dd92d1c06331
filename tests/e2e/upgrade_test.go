package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// restoreRelease brings the release back to what the other features expect,
// and lets the nodes forget a pool that only this feature had.
func (s *scene) restoreRelease(extra string) {
	s.t.Helper()
	s.must(s.install(s.ctx, s.values("info")))
	for _, node := range s.nodes {
		s.driver(node, "pool", "forget", extra)
	}
}

func TestUpgradeAndReinstall(t *testing.T) {
	const added = "added"
	node := world.workers[0]
	extra := pool{Name: added, Path: pathOf(added)}
	var sum, volume, taken string
	var appending *corev1.Pod
	alone(t, "volumes outlive helm upgrade, helm uninstall and reinstall",
		step{"VolumesAreInUse", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "64Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
			s.deletePod("writer")
			s.create(on(node, s.pod("appending", claimed("data"), appendLines()...)))
			appending = s.running("appending")
		}},
		step{"UpgradeWithNewValues", func(s *scene) {
			before := map[string]*corev1.Pod{}
			for _, n := range s.nodes {
				before[n] = s.driverPod(n)
			}
			s.must(s.install(s.ctx, s.values("debug", extra)))
			for _, n := range s.nodes {
				if now := s.driverPod(n); now.UID == before[n].UID {
					s.t.Errorf("the driver's pod on %s was not replaced: it does not have the new pools", n)
				}
			}
		}},
		step{"OldVolumesAndNewPoolWork", func(s *scene) {
			s.untouched(appending)
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
			s.output(on(node, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.deletePod("reader")
			s.create(s.claim("taken", classOf(added), "16Mi"))
			s.output(on(node, s.pod("taken", claimed("taken"), writeData()...)))
			taken = s.bound("taken").Name
			s.deletePod("taken")
		}},
		step{"Uninstall", func(s *scene) {
			s.must(s.uninstall(s.ctx))
			s.eventually("the driver's pods are gone", func() (bool, string) {
				var list corev1.PodList
				err := s.api.List(s.ctx, &list, resources.WithLabelSelector("app.kubernetes.io/component=csi-driver"))
				return err == nil && len(list.Items) == 0, "they are there"
			})
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
			s.untouched(appending)
			if !s.exists(node, volumePath(added, taken)+"/file") {
				s.t.Error("uninstall removed data")
			}
		}},
		step{"ReinstallServesOldVolumes", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info")))
			s.output(on(node, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.deletePod("reader")
			s.untouched(appending)
			s.deletePod("appending")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
		}},
		step{"PoolTakenOutOfTheValuesKeepsItsVolumes", func(s *scene) {
			s.remove(s.claim("taken", "", "0"))
			s.said("PersistentVolume", taken, "VolumeFailedDelete", added)
			if !s.exists(node, volumePath(added, taken)+"/file") {
				s.t.Error("a volume was removed whose pool is in no configuration")
			}
			if status := s.driver(node, "status"); !strings.Contains(status, added) {
				s.t.Errorf("driver status does not mention the pool that was taken out: %s", status)
			}
		}},
		step{"PutBackItsVolumesCanBeDeleted", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info", extra)))
			s.gone(taken)
			s.vanishes(node, volumePath(added, taken))
			s.restoreRelease(added)
		}},
	)
}

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
      storagePool: kubevirt
      overlayCSI: "true"
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: topology.hostpath.csi/node, operator: In, values: [${NODE}]}
  persistentVolumeReclaimPolicy: Delete
  storageClassName: e2e-hostpath-csi
  volumeMode: Filesystem
`

// kubevirtMade makes a claim, its volume and its directory as kubevirt's
// driver would have, and returns the volume's name.
func (s *scene) kubevirtMade(node, claim string) string {
	s.t.Helper()
	c := s.claim(claim, "e2e-hostpath-csi", "1Gi")
	s.create(c)
	volume := "pvc-" + string(c.UID)
	s.onNode(node, "mkdir -p "+volumePath(kubevirtPool, volume)+"; chmod 755 "+pathOf(kubevirtPool)+
		"/csi; echo written by kubevirt in "+claim+
		" >"+volumePath(kubevirtPool, volume)+"/file")
	s.apply(strings.NewReplacer("${VOLUME}", volume, "${CLAIM}", claim, "${NAMESPACE}", s.namespace,
		"${UID}", string(c.UID), "${NODE}", node).Replace(kubevirtVolume))
	return volume
}

func TestTakeoverFromKubevirt(t *testing.T) {
	node := world.workers[1]
	extra := pool{Name: kubevirtPool, Path: pathOf(kubevirtPool)}
	snapshots := pathOf(kubevirtPool) + "/csi/snapshots"
	var first, second string
	alone(t, "volumes that kubevirt's driver made are served and deleted properly",
		step{"KubevirtLeavesVolumes", func(s *scene) {
			s.apply(kubevirtClass)
			s.deleteWhenDone("storageclass", "e2e-hostpath-csi")
			first, second = s.kubevirtMade(node, "first"), s.kubevirtMade(node, "second")
			s.onNode(node, "mkdir -p "+snapshots+"; echo precious >"+snapshots+"/file")
			for _, claim := range []string{"first", "second"} {
				s.bound(claim)
			}
		}},
		step{"TheyAreAdopted", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info", extra)))
			s.eventually("both volumes have records", func() (bool, string) {
				records := s.onNode(node, "cat "+pathOf(kubevirtPool)+"/csi/.hpp/volumes/*.json || true")
				return strings.Count(records, `"adopted": true`) == 2, records
			})
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
