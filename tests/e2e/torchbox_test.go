package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

const (
	// torchboxPath is where the storage of this feature is mounted, and torchboxDir the pvDir below it.
	torchboxPath   = sharedPath + "-torchbox"
	torchboxDir    = torchboxPath + "/pvs"
	networkFSClass = "e2e-torchbox"
	// networkFSProvisioner is the Deployment's component, and the end of its name.
	networkFSProvisioner = "shared-torchbox-com-hostpath"
)

// installNetworkFS applies deploy/network-filesystem-provisioner.yaml as its first lines say, on one node.
func (s *scene) installNetworkFS(node string) {
	s.t.Helper()
	s.deploy("network-filesystem-provisioner.yaml", map[string]string{
		`/ceph"`:                  torchboxPath + `"`,
		"kubernetes.io/os: linux": corev1.LabelHostname + ": " + node,
	})
	s.networkFSPod()
}

// networkFSPod is the provisioner's pod, ready.
func (s *scene) networkFSPod() *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	s.eventually("the provisioner for a network filesystem is ready", func() (bool, string) {
		var list corev1.PodList
		err := s.api.List(s.ctx, &list, resources.WithLabelSelector(componentLabel+"="+networkFSProvisioner))
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprintf("%d pods, %v", len(list.Items), err)
		}
		found = &list.Items[0]
		return found.DeletionTimestamp == nil && isReady(found), describe(found)
	})
	return found
}

// networkFSClaim is a claim as torchbox prints it.
func (s *scene) networkFSClaim(name string) {
	s.t.Helper()
	claim := s.claim(name, networkFSClass, "50Gi")
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	s.create(claim)
}

// copied writes a file on one node and reads it on another.
func (s *scene) copied(claim, from, to string) {
	s.t.Helper()
	file := dataDir + "/from-" + from
	sum := firstWord(s.output(on(from, s.pod("writer", claimed(claim), "write", file, "--bytes", "65536"))))
	s.output(on(to, s.pod("reader", claimed(claim), "checksum", file, "--want", sum)))
	s.deletePod("writer")
	s.deletePod("reader")
}

func TestNetworkFilesystemAsTorchboxs(t *testing.T) {
	first, second := world.workers[0], world.workers[1]
	var disk sharedDisk
	var kept string
	parallel(t, "one provisioner makes volumes that every node has, on storage that all have mounted",
		step{"Install", func(s *scene) {
			disk = s.shareDisk("shared", "128M", torchboxPath)
			s.installNetworkFS(first)
			immediate := storagev1.VolumeBindingImmediate
			s.create(&storagev1.StorageClass{
				ObjectMeta:  metav1.ObjectMeta{Name: networkFSClass},
				Provisioner: "torchbox.com/hostpath", Parameters: map[string]string{"pvDir": torchboxDir},
				VolumeBindingMode: &immediate,
			})
			s.deleteWhenDone("storageclass", networkFSClass)
		}},
		step{"PodsOnTwoNodesShareAVolume", func(s *scene) {
			s.networkFSClaim("data")
			pv := s.bound("data")
			kept = pv.Name
			if pv.Spec.HostPath == nil || pv.Spec.HostPath.Path != torchboxDir+"/"+kept ||
				pv.Spec.NodeAffinity != nil ||
				pv.Spec.Capacity.Storage().String() != "50Gi" {
				s.t.Errorf("PersistentVolume %+v", pv.Spec)
			}
			s.copied("data", first, second)
			s.copied("data", second, first)
			for i, node := range []string{first, second} {
				s.create(on(node, s.pod(numbered("together", i), claimed("data"), "append-loop", dataDir+"/"+node)))
			}
			for i, node := range []string{first, second} {
				s.running(numbered("together", i))
				s.grows(s.otherThan(node)[0], torchboxDir+"/"+kept+"/"+node)
				s.grows(node, torchboxDir+"/"+kept+"/"+node)
			}
			s.deletePod(numbered("together", 0))
			s.deletePod(numbered("together", 1))
		}},
		step{"AVolumeInATenantsVolumeIsRefused", func(s *scene) {
			// What a pod may do in its own volume: make a directory, and later put a link to the node's files in it.
			inside := torchboxDir + "/" + kept + "/d"
			s.onNode(first, "mkdir "+inside)
			s.create(&storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: networkFSClass + "-inside"}, Provisioner: "torchbox.com/hostpath",
				Parameters: map[string]string{"pvDir": inside},
			})
			s.deleteWhenDone("storageclass", networkFSClass+"-inside")
			s.create(s.claim("inside", networkFSClass+"-inside", "1Mi"))
			s.said("PersistentVolumeClaim", "inside", "ProvisioningFailed", inside+" is or lies in a directory that "+
				"is named like a volume's ("+kept+
				"), and what is in a volume its pods can exchange for a link to anything on the node")
			s.isPending("inside")
			if left := s.list(first, inside); len(left) > 0 {
				s.t.Errorf("%s has %v", inside, left)
			}
			s.remove(s.claim("inside", "", "0"))
			s.onNode(first, "rmdir "+inside)
		}},
		step{"AClaimThatWaitsForItsPod", func(s *scene) {
			waits := storagev1.VolumeBindingWaitForFirstConsumer
			s.create(&storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: networkFSClass + "-waits"}, Provisioner: "torchbox.com/hostpath",
				Parameters: map[string]string{"PVDIR": torchboxDir}, VolumeBindingMode: &waits,
			})
			s.deleteWhenDone("storageclass", networkFSClass+"-waits")
			s.create(s.claim("waits", networkFSClass+"-waits", "1Mi"))
			s.said("PersistentVolumeClaim", "waits", "WaitForFirstConsumer")
			s.isPending("waits")
			s.copied("waits", second, first)
			volume := s.bound("waits").Name
			s.remove(s.claim("waits", "", "0"))
			s.gone(volume)
		}},
		step{"WithTheClaimTheDirectoryGoes", func(s *scene) {
			s.networkFSClaim("short")
			volume := s.bound("short").Name
			s.output(on(second, s.pod("short", claimed("short"), writeData()...)))
			s.deletePod("short")
			s.remove(s.claim("short", "", "0"))
			s.gone(volume)
			for _, node := range s.nodes {
				if left := strings.Join(s.list(node, torchboxDir), " "); left != kept {
					s.t.Errorf("%s sees %q in %s, want %s alone", node, left, torchboxDir, kept)
				}
			}
		}},
		step{"UnmountedOnTheProvisionersNode", func(s *scene) {
			s.unmountDisk(first, torchboxPath)
			s.networkFSClaim("unmounted")
			s.said("PersistentVolumeClaim", "unmounted", "ProvisioningFailed",
				torchboxDir+" is not mounted on the node any more, and nothing is made or removed until it is")
			// A pod that starts now sees the node's own directory.
			s.remove(s.networkFSPod())
			s.networkFSPod()
			s.said("PersistentVolumeClaim", "unmounted", "ProvisioningFailed",
				torchboxDir+" is not there, and "+torchboxPath+
					" is on the filesystem of the node's ", ": the storage is not mounted there")
			s.isPending("unmounted")
			if left := s.list(first, torchboxPath); len(left) > 0 {
				s.t.Errorf("%s has %v on its own disk", first, left)
			}
		}},
		step{"ANodeWithoutItRefusesThePod", func(s *scene) {
			s.create(on(first, s.pod("refused", claimed("data"), appendLines()...)))
			s.said("Pod", "refused", "FailedMount", "hostPath type check failed",
				torchboxDir+"/"+kept+" is not a directory")
			if left := s.list(first, torchboxPath); len(left) > 0 {
				s.t.Errorf("%s has %v on its own disk", first, left)
			}
		}},
		step{"MountedAgain", func(s *scene) {
			pod := s.networkFSPod()
			s.mountShared(disk, first)
			volume := s.bound("unmounted").Name
			s.existsOn(second, torchboxDir+"/"+volume)
			s.running("refused")
			s.deletePod("refused")
			if now := s.networkFSPod(); now.UID != pod.UID || restarts(now) != restarts(pod) {
				s.t.Error("the provisioner had to start anew to see it")
			}
			for _, claim := range []string{"unmounted", "data"} {
				gone := s.bound(claim).Name
				s.remove(s.claim(claim, "", "0"))
				s.gone(gone)
			}
			for _, node := range s.nodes {
				if left := s.list(node, torchboxDir); len(left) > 0 {
					s.t.Errorf("%s sees %v in %s", node, left, torchboxDir)
				}
			}
		}},
		step{"OtherStorageThanThePodWasGiven", func(s *scene) {
			// The pod keeps what the node had mounted when it started, and has to start anew.
			s.remove(s.networkFSPod())
			pod := s.networkFSPod()
			s.unmountDisk(first, torchboxPath)
			s.onNode(first, "mount -t tmpfs exchanged "+torchboxPath)
			s.eventually("the container starts anew", func() (bool, string) {
				now := s.networkFSPod()
				return now.UID == pod.UID && restarts(now) > restarts(pod), describe(now)
			})
			s.networkFSClaim("exchanged")
			volume := s.bound("exchanged").Name
			s.existsOnlyOn(first, torchboxDir+"/"+volume)
			s.remove(s.claim("exchanged", "", "0"))
			s.gone(volume)
		}},
	)
}

// existsOn checks that a path is there on a node.
func (s *scene) existsOn(node, path string) {
	s.t.Helper()
	if !s.exists(node, path) {
		s.t.Errorf("%s has no %s", node, path)
	}
}
