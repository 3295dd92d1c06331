package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kubevirtsCluster is a cluster in which kubevirt's operator runs, and what is asked of its pods and volumes later.
type kubevirtsCluster struct {
	node          string
	claims        bool              // a pool of the resource has a pvcTemplate
	plain, backed *corev1.Pod       // they write all the time: to a volume in a directory, and on a pool's claim
	volumes       map[string]string // by claim
	mounted       string            // the mount at the path of the pool with a claim
}

// takeoverPage is what an administrator goes by.
const takeoverPage = "how-to/take-over-from-kubevirt.md"

// kubevirtCapacity is what kubevirt's external-provisioner on a node has published. By default it is its DaemonSet's,
// with which the garbage collector removes it.
const kubevirtCapacity = `apiVersion: storage.k8s.io/v1
kind: CSIStorageCapacity
metadata:
  name: csisc-kubevirt
  namespace: ${NAMESPACE}
  labels:
    csi.storage.k8s.io/drivername: kubevirt.io.hostpath-provisioner
    csi.storage.k8s.io/managed-by: external-provisioner-${NODE}
  ownerReferences:
  - {apiVersion: apps/v1, kind: DaemonSet, name: ${OWNER}, uid: ${UID}, controller: true}
nodeTopology: {matchLabels: {topology.hostpath.csi/node: ${NODE}}}
storageClassName: e2e-hostpath-csi
capacity: 79Gi
`

func TestTakeoverFromKubevirtsOperator(t *testing.T) {
	k := kubevirtsCluster{node: world.workers[1], claims: true, volumes: map[string]string{}}
	replacing(t, "a cluster that runs kubevirt's operator moves here while pods write",
		step{"KubevirtsOperatorRuns", func(s *scene) { k.begin(s) }},
		step{"PodsWriteToItsVolumes", func(s *scene) { k.use(s) }},
		step{"OurOperatorWaits", func(s *scene) {
			s.must(s.install(s.ctx, s.operated()))
			s.resourceSays("NotServed", "KubevirtOperatorRuns", namespace,
				"kubectl scale deployment --namespace="+namespace+" "+kubevirtOperator+" --replicas=0")
			if said := s.typed(takeoverPage, "NotServed"); !strings.HasPrefix(said, "KubevirtOperatorRuns: ") {
				s.t.Errorf("the page's command prints %s", said)
			}
			ours := s.names("daemonset", fullName+"-csi") + s.names("deployment", controllerService)
			theirs := s.names("daemonset", kubevirtsDaemonSet) + s.names("deployment", poolClaim(claimedPool, k.node))
			if ours != "" || strings.Count(theirs, "/") != 2 {
				s.t.Errorf("ours: %q, kubevirt's: %q; want nothing deployed and nothing taken", ours, theirs)
			}
			k.goOn(s)
		}},
		step{"ItsOperatorIsScaledDownAndTheRestGoesByItself", func(s *scene) {
			// Not before: while kubevirt's operator runs its webhook lets patches pass, and what sleeps here in its
			// place would not answer.
			s.apply(s.kubevirts(kubevirtsObjects+"/webhook.yaml", k.node))
			s.typed(takeoverPage, "--replicas=0")
			s.typed(takeoverPage, "observedVersion") // the chart's
			s.condition("Available", "True")
			s.condition("Degraded", "False")
			s.daemonSet("-csi")
			for _, kind := range []string{
				"validatingwebhookconfiguration/" + kubevirtWebhook, "daemonset/" + kubevirtsDaemonSet,
			} {
				s.absentObject(kind)
			}
			k.goOn(s)
		}},
		step{"VolumesAreAdopted", func(s *scene) {
			s.adopted(k.node, kubevirtPool, 2)
			s.adopted(k.node, claimedPool, 1)
		}},
		step{"ADeletedClaimGoesThroughOurTrash", func(s *scene) {
			// What is mounted in it keeps the trash from being purged.
			id := k.volumes["doomed"]
			volume := volumePath(kubevirtPool, id)
			s.onNode(k.node, "mkdir "+volume+"/mounted; mount -t tmpfs none "+volume+"/mounted")
			s.remove(s.claim("doomed", "", "0"))
			s.gone(id)
			s.vanishes(k.node, volume)
			unmount := `umount "$(find ` + pathOf(kubevirtPool) + "/csi/.hpp/trash -path '*" + id + `*' -name mounted)"`
			s.eventually("the trash keeps what is mounted in the volume", func() (bool, string) {
				_, err := s.cluster.NodeExec(s.ctx, k.node, "sh", "-ec", unmount) // its purge renames it meanwhile
				return err == nil, fmt.Sprint(err)
			})
		}},
		step{"WhatNobodyUsesIsGone", func(s *scene) { k.nothingIsLeft(s) }},
		step{"ItsAdministratorChecksAndRemovesTheOperator", func(s *scene) {
			said := s.typed(takeoverPage, "kubectl hpp get pools")
			if !containsAll(said, []string{"Available", k.node, kubevirtPool, claimedPool}) {
				s.t.Errorf("the page's checks print %s", said)
			}
			k.removeOperator(s)
		}},
		step{"OldAndNewVolumesWork", func(s *scene) { k.serves(s) }},
		step{"TheResourceGoesCleanly", func(s *scene) {
			for claim, volume := range k.volumes {
				if claim != "doomed" {
					s.remove(s.claim(claim, "", "0"))
					s.gone(volume)
				}
			}
			s.deleteResource()
			s.nothingIsOwned()
			s.poolClaimIs(claimedPool, k.node, corev1.ClaimBound)
		}},
	)
}

// removeOperator types what removes kubevirt's operator; cert-manager has made nothing for it here.
func (k *kubevirtsCluster) removeOperator(s *scene) {
	s.t.Helper()
	s.typed(takeoverPage, "hostpath-provisioner-operator-lock",
		"kubectl --namespace "+namespace+" delete --ignore-not-found \\\n  certificate", "echo there is no certificate")
	if left := s.names("deployment", kubevirtOperator); left != "" {
		s.t.Errorf("%s is left", left)
	}
}

// use lets pods write to volumes of both pools, and takes away what the stand-in has put beside them that kubevirt's
// driver would not.
func (k *kubevirtsCluster) use(s *scene) {
	s.t.Helper()
	s.apply(kubevirtClass)
	s.deleteWhenDone("storageclass", "e2e-hostpath-csi")
	k.volumes["plain"] = s.kubevirtMade(k.node, kubevirtPool, "plain")
	k.volumes["doomed"] = s.kubevirtMade(k.node, kubevirtPool, "doomed")
	k.volumes["backed"] = s.kubevirtMade(k.node, claimedPool, "backed")
	for _, claim := range []string{"plain", "backed"} {
		s.create(s.pod(claim, claimed(claim), appendLines()...)) // the affinity alone places it
	}
	k.plain, k.backed = s.running("plain"), s.running("backed")
	for _, pool := range []string{kubevirtPool, claimedPool} {
		s.onNode(k.node, "rm -rf "+pathOf(pool)+"/csi/.hpp; chmod 755 "+pathOf(pool)+"/csi")
	}
	s.onNode(k.node, "mkdir "+k.snapshots()+"; echo precious >"+k.snapshots()+"/file")
	owner := s.kubectl("get", "daemonset", kubevirtsDaemonSet, "--namespace", namespace, "--output",
		"jsonpath={.metadata.uid}")
	s.apply(strings.NewReplacer("${NAMESPACE}", namespace, "${NODE}", k.node, "${OWNER}", kubevirtsDaemonSet,
		"${UID}", owner).Replace(kubevirtCapacity))
	k.goOn(s)
}

// snapshots is a directory in a pool that is no volume.
func (k *kubevirtsCluster) snapshots() string { return pathOf(kubevirtPool) + "/csi/snapshots" }

// goOn checks that both pods have never stopped, and still write to where their volumes are.
func (k *kubevirtsCluster) goOn(s *scene) {
	s.t.Helper()
	s.grows(k.node, volumePath(kubevirtPool, k.volumes["plain"])+"/lines")
	s.grows(k.node, volumePath(claimedPool, k.volumes["backed"])+"/lines")
	s.untouched(k.plain)
	s.untouched(k.backed)
	if now := s.mountAt(k.node, pathOf(claimedPool)+"/csi"); now != k.mounted {
		s.t.Errorf("mount %s at the pool's path is now %s", k.mounted, now)
	}
}

// nothingIsLeft checks that kubevirt's objects are gone, but for its operator, which its administrator removes.
func (k *kubevirtsCluster) nothingIsLeft(s *scene) {
	s.t.Helper()
	s.mounter(claimedPool, k.node)
	for _, object := range []string{
		"deployment/" + poolClaim(claimedPool, k.node), "service/hpp-prometheus-metrics",
		"serviceaccount/hostpath-provisioner-admin-csi", "clusterrole/hostpath-provisioner-admin-csi",
		"clusterrolebinding/hostpath-provisioner-admin-csi", "role/hostpath-provisioner-admin-csi",
		"rolebinding/hostpath-provisioner-admin-csi", "csistoragecapacity/csisc-kubevirt",
	} {
		s.absentObject(object)
	}
	if !s.exists(k.node, k.snapshots()+"/file") {
		s.t.Error("a directory that is no volume was removed")
	}
	if s.names("deployment", kubevirtOperator) == "" {
		s.t.Error("kubevirt's operator was removed, which is its administrator's")
	}
	u, err := s.resource()
	s.must(err)
	if finalizers := strings.Join(u.GetFinalizers(), " "); finalizers != "hostpathprovisioner.kubevirt.io/volumes" {
		s.t.Errorf("the resource has the finalizers %q", finalizers)
	}
	k.goOn(s)
}

// serves checks that what was written is read, and that both pools make new volumes.
func (k *kubevirtsCluster) serves(s *scene) {
	s.t.Helper()
	for _, claim := range []string{"plain", "backed"} {
		s.deletePod(claim)
		s.output(s.pod("reader", claimed(claim), "read", dataDir+"/lines"))
		s.deletePod("reader")
	}
	for _, pool := range []string{kubevirtPool, claimedPool} {
		name := "new-" + pool
		s.create(s.claim(name, s.classFor(pool), "16Mi"))
		s.output(on(k.node, s.pod(name, claimed(name), writeData()...)))
		s.deletePod(name)
		k.volumes[name] = s.bound(name).Name
		s.existsOnlyOn(k.node, volumePath(pool, k.volumes[name])+"/file")
	}
}

// resourceSays waits for a condition of the HostPathProvisioner, also where its definition is kubevirt's: that keeps no
// observedGeneration.
func (s *scene) resourceSays(kind, reason string, words ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the HostPathProvisioner says %s because of %s", kind, reason), func() (bool, string) {
		u, err := s.resource()
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, entry := range conditions {
			if c, _ := entry.(map[string]any); c["type"] == kind && c["reason"] == reason {
				return containsAll(fmt.Sprint(c["message"]), words), fmt.Sprint(conditions)
			}
		}
		return false, fmt.Sprintf("%v, %v", conditions, err)
	})
}

// names lists the objects of a kind with a name in the release's namespace, or in none.
func (s *scene) names(kind, name string) string {
	s.t.Helper()
	return s.kubectl("get", kind, name, "--namespace", namespace, "--ignore-not-found", "--output", "name")
}

// absentObject waits until an object is not there: "daemonset/name".
func (s *scene) absentObject(object string) {
	s.t.Helper()
	kind, name, _ := strings.Cut(object, "/")
	s.eventually(object+" is gone", func() (bool, string) {
		there := s.names(kind, name)
		return there == "", there
	})
}
