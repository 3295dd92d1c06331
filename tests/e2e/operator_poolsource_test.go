package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Pools whose claims are of other kinds than the seeds'.
const (
	poolStacked = "stacked"
	poolBlock   = "block"
	// blockClass is a name that two PersistentVolumes have; there is no such class.
	blockClass = "e2e-block"
	blockSize  = "512M"
	// precious is what one device has in its middle.
	precious = "precious"
	middle   = "268435456"
)

// classFor is a StorageClass for a pool of a HostPathProvisioner.
func (s *scene) classFor(pool string) string {
	s.t.Helper()
	s.apply("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: " + classOf(pool) +
		"}\nprovisioner: " +
		driverName + "\nvolumeBindingMode: WaitForFirstConsumer\nparameters: {storagePool: " + pool + "}\n")
	s.deleteWhenDone("storageclass", classOf(pool))
	return classOf(pool)
}

// addPool adds a pool with a template to the HostPathProvisioner.
func (s *scene) addPool(name string, template corev1.PersistentVolumeClaimSpec) {
	s.t.Helper()
	patch, err := json.Marshal([]map[string]any{{
		"op": "add", "path": "/spec/storagePools/-",
		"value": map[string]any{"name": name, "path": pathOf(name), "pvcTemplate": template},
	}})
	s.must(err)
	s.kubectl("patch", "hostpathprovisioner", customResource, "--type", "json", "--patch", string(patch))
}

// blockDevice makes a loop device on a node with some bytes in its middle, which no program knows, and a
// PersistentVolume of it that only one claim can have.
func (s *scene) blockDevice(node, bytes string) (device string) {
	s.t.Helper()
	image := disks + "/" + poolBlock + ".img"
	device = s.onNode(node, "rm -f "+image+"; truncate -s "+blockSize+" "+image+"\nprintf '"+bytes+"' | dd of="+image+
		" bs=1 seek="+middle+" conv=notrunc\nlosetup --find --show "+image)
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.NodeExec(ctx, node, "sh", "-ec", "losetup --detach "+device+"; rm "+image)
		return err
	})
	pv := "e2e-block-" + node
	s.apply(`apiVersion: v1
kind: PersistentVolume
metadata: {name: ` + pv + `}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: ` + blockSize + `}
  volumeMode: Block
  storageClassName: ` + blockClass + `
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: ` + namespace + `, name: ` + poolClaim(poolBlock, node) + `}
  local: {path: ` + device + `}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: kubernetes.io/hostname, operator: In, values: [` + node + `]}
`)
	s.deleteWhenDone("persistentvolume", pv)
	return device
}

func TestPoolsOnOtherClaims(t *testing.T) {
	nightly(t)
	holds, blank := world.workers[0], world.workers[1]
	var device, behind string
	replacing(t, "a pool has its claims from another pool, one has devices: blank ones are formatted, others refused",
		step{"APoolOnTheNodesDisk", func(s *scene) {
			device = s.blockDevice(holds, precious)
			s.blockDevice(blank, "")
			s.installOperator()
			s.admit(s.seed("pool-cr.yaml"))
			s.apply(s.seed("pool-storageclass.yaml"))
			s.deleteWhenDone("storageclass", seedClass)
			s.condition("Available", "True")
		}},
		step{"AnotherHasItsClaimsFromIt", func(s *scene) {
			s.addPool(poolStacked, s.claim("", seedClass, "1Gi").Spec)
			s.poolIs(poolStacked, "Ready", len(s.nodes))
			s.condition("Available", "True")
			var claim corev1.PersistentVolumeClaim
			s.must(s.api.Get(s.ctx, poolClaim(poolStacked, holds), namespace, &claim))
			behind = claim.Spec.VolumeName
		}},
		step{"APodWritesToTheUpperPool", func(s *scene) { s.writesThrough(holds, behind) }},
		step{"TheUpperPoolGoesWithItsClaims", func(s *scene) { s.upperPoolGoes(holds, behind) }},
		step{"ABlankDeviceIsServed", func(s *scene) {
			template := s.claim("", blockClass, blockSize).Spec
			mode := corev1.PersistentVolumeBlock
			template.VolumeMode = &mode
			s.addPool(poolBlock, template)
			s.mounter(poolBlock, blank)
			s.create(s.claim("block", s.classFor(poolBlock), "16Mi"))
			// the capacity alone places it
			sum := firstWord(s.output(s.pod("writer", claimed("block"), writeData()...)))
			s.deletePod("writer")
			if got := s.nodeOf(s.bound("block")); got != blank {
				s.t.Errorf("the volume is on %s, only %s has the pool", got, blank)
			}
			s.output(s.pod("reader", claimed("block"), checkData(sum)...))
			s.deletePod("reader")
			s.mountAt(blank, pathOf(poolBlock)+"/csi")
		}},
		step{"OneWithDataIsRefusedAndTheStatusSaysSo", func(s *scene) { s.refusesData(holds, device) }},
		step{"AClaimThatNeverBindsIsNamed", func(s *scene) {
			i := slices.IndexFunc(s.nodes, func(node string) bool { return node != holds && node != blank })
			s.claimOfPoolIs(poolBlock, s.nodes[i], corev1.ClaimPending)
			s.poolSays(poolBlock, 1, poolClaim(poolBlock, s.nodes[i]), "Pending")
		}},
		step{"FormattedAsTheLogSaysItIsServedToo", func(s *scene) {
			list, err := s.mounters(poolBlock, holds)
			s.must(err)
			s.kubectl("exec", "--namespace", namespace, list[0].Name, "--", "mkfs.xfs", "-f", "/dev/source")
			s.mounter(poolBlock, holds)
			s.create(s.claim("there", classOf(poolBlock), "16Mi"))
			s.output(on(holds, s.pod("there", claimed("there"), writeData()...)))
			s.deletePod("there")
			for _, claim := range []string{"block", "there"} {
				volume := s.bound(claim).Name
				s.remove(s.claim(claim, "", "0"))
				s.gone(volume)
			}
		}},
	)
}

// writesThrough checks that what a pod writes to the upper pool lies in the volume that the lower one gave it.
func (s *scene) writesThrough(node, behind string) {
	s.t.Helper()
	s.create(s.claim("data", s.classFor(poolStacked), "16Mi"))
	sum := firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
	s.deletePod("writer")
	file := seedPath + "/csi/" + behind + "/" + s.bound("data").Name + "/file"
	if got := s.sum(node, file); got != sum {
		s.t.Errorf("%s has sha256 %s, the pod wrote %s", file, got, sum)
	}
	s.output(s.pod("reader", claimed("data"), checkData(sum)...))
	s.deletePod("reader")
}

// upperPoolGoes takes the upper pool out of the resource, and then its claims, which nobody else removes.
func (s *scene) upperPoolGoes(node, behind string) {
	s.t.Helper()
	volume := s.bound("data").Name
	s.remove(s.claim("data", "", "0"))
	s.gone(volume)
	s.trashIsEmpty(node, pathOf(poolStacked))
	s.kubectl("patch", "hostpathprovisioner", customResource, "--type", "json",
		"--patch", `[{"op":"remove","path":"/spec/storagePools/1"}]`)
	s.noPodsOf(mounterComponent)
	for _, n := range s.nodes {
		s.notMounted(n, pathOf(poolStacked)+"/csi")
		s.poolClaimIs(poolStacked, n, corev1.ClaimBound)
		s.kubectl("delete", "persistentvolumeclaim", poolClaim(poolStacked, n), "--namespace", namespace)
	}
	s.gone(behind)
	s.vanishes(node, seedPath+"/csi/"+behind)
}

// refusesData checks that a device with unknown bytes stays as it is, and that log and status tell.
func (s *scene) refusesData(node, device string) {
	s.t.Helper()
	s.claimOfPoolIs(poolBlock, node, corev1.ClaimBound)
	var mounter string
	s.eventually("the mounter on "+node+" says why it does nothing", func() (bool, string) {
		list, err := s.mounters(poolBlock, node)
		if err != nil || len(list) != 1 {
			return false, fmt.Sprintf("%d pods, %v", len(list), err)
		}
		mounter = list[0].Name
		log, err := s.cluster.Kubectl(s.ctx, nil, "logs", "--namespace", namespace, mounter)
		return containsAll(log, []string{"not blank", middle, "mkfs.xfs -f"}), fmt.Sprintf("%s, %v", log, err)
	})
	s.poolSays(poolBlock, 1, node, mounter)
	s.notMounted(node, pathOf(poolBlock)+"/csi")
	if kept := s.onNode(node, "dd if="+device+" bs=1 skip="+middle+" count=8 status=none"); kept != precious {
		s.t.Errorf("the device holds %q now", kept)
	}
}
