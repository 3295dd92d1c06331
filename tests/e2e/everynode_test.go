package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// everyNodeBase, everyNodeClass, everyNodeClaim and everyNodePod are what kubeboost prints.
	everyNodeBase  = "/var/kubernetes"
	everyNodeClass = "hostpath-multihost"
	everyNodeClaim = "hostpath-multihost-test-claim"
	everyNodePod   = "hostpath-multihost-test-pod"
	everyNode      = fullName + "-every-node"
	// everyNodeWaits is the annotation of a deleted volume with the nodes that it waits for.
	everyNodeWaits = "kubeboost.github.com/hostpath-multihost-provisioner-waits-for"
	everyNodeReuse = "kubeboost.github.com/hostpath-multihost-provisioner-reuse-policy"
)

// everyNodeVolume is a volume that is a directory on each node, and the worker that dies.
type everyNodeVolume struct {
	name, path string
	victim     string
	dead       bool
}

func TestVolumesOnEveryNodeAsKubeboosts(t *testing.T) {
	var v everyNodeVolume
	alone(t, "a claim is a directory on every node, and goes from each of them, also from one that was down",
		step{"Install", func(s *scene) { s.installEveryNode() }},
		step{"AsItIsPrinted", func(s *scene) { v.asPrinted(s) }},
		step{"ADaemonSetHasOneClaimOnAllNodes", func(s *scene) { v.everywhere(s) }},
		step{"ANodeIsDownDuringTheDeletion", func(s *scene) { v.deletedWithoutIt(s) }},
		step{"ItCleansUpWhenItReturns", func(s *scene) {
			s.must(s.cluster.RestartNode(s.ctx, v.victim))
			v.dead = false
			s.gone(v.name)
			for _, node := range s.nodes {
				s.vanishes(node, v.path)
			}
		}},
		step{"RetainedVolumesAndTheirNextClaim", func(s *scene) { v.retained(s) }},
	)
}

// installEveryNode applies the manifests as they are in deploy/, with this run's image.
func (s *scene) installEveryNode() {
	s.t.Helper()
	s.deploy("every-node-provisioner.yaml", nil)
	s.deploy("storageclass-every-node.yaml", nil)
	s.daemonSet("-every-node-manager")
	s.eventually("Deployment "+everyNode+" is available", func() (bool, string) {
		var d appsv1.Deployment
		err := s.api.Get(s.ctx, everyNode, namespace, &d)
		return err == nil && d.Status.AvailableReplicas == 1, fmt.Sprintf("%+v, %v", d.Status, err)
	})
}

// everyNodeClaim describes a claim as kubeboost prints it, of a class.
func (s *scene) everyNodeClaim(class string) *corev1.PersistentVolumeClaim {
	c := s.claim(everyNodeClaim, class, "1Mi")
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	return c
}

// asPrinted goes through kubeboost's README: a claim, a pod, and `ls` on the hosts before and after their deletion.
func (v *everyNodeVolume) asPrinted(s *scene) {
	s.t.Helper()
	s.namespace = corev1.NamespaceDefault
	look := "ls -la " + everyNodeBase + "/default-" + everyNodeClaim + "-pvc-*/"
	s.create(s.everyNodeClaim(everyNodeClass))
	pv := s.bound(everyNodeClaim)
	for _, node := range s.nodes {
		s.onNode(node, look)
	}
	s.output(s.pod(everyNodePod, claimed(everyNodeClaim), writeData()...))
	s.existsOnlyOn(s.phase(everyNodePod, corev1.PodSucceeded).Spec.NodeName, pv.Spec.HostPath.Path+"/file")
	s.deletePod(everyNodePod)
	s.remove(s.everyNodeClaim(""))
	s.gone(pv.Name)
	for _, node := range s.nodes {
		if out, err := s.cluster.NodeExec(s.ctx, node, "sh", "-c", look); err == nil {
			s.t.Errorf("%s still has a directory:\n%s", node, out)
		}
	}
}

// everywhere runs a pod of one DaemonSet on each node. Each writes to the disk of its own node.
func (v *everyNodeVolume) everywhere(s *scene) {
	s.t.Helper()
	s.create(s.everyNodeClaim(everyNodeClass))
	pv := s.bound(everyNodeClaim)
	v.name, v.path = pv.Name, pv.Spec.HostPath.Path
	p := anywhere(s.pod("all", claimed(everyNodeClaim), "append-loop", dataDir+"/lines"))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.create(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "all", Namespace: s.namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec},
		},
	})
	for _, node := range s.nodes {
		s.eventually("the pod on "+node+" writes there", func() (bool, string) {
			return s.exists(node, v.path+"/lines"), "it has written nothing"
		})
		s.grows(node, v.path+"/lines")
	}
	s.kubectl("delete", "daemonset", "--namespace", s.namespace, "all", "--cascade=foreground")
}

// deletedWithoutIt deletes the claim while a worker is down: the claim goes, and the volume waits for that node alone.
func (v *everyNodeVolume) deletedWithoutIt(s *scene) {
	s.t.Helper()
	s.whenDone(func(ctx context.Context) error {
		if !v.dead {
			return nil
		}
		return s.cluster.RestartNode(ctx, v.victim)
	})
	v.victim, v.dead = s.awayFromController(), true
	s.must(s.cluster.KillNode(s.ctx, v.victim))
	s.remove(s.everyNodeClaim(""))
	s.eventually("the claim is gone", func() (bool, string) {
		err := s.api.Get(s.ctx, everyNodeClaim, s.namespace, &corev1.PersistentVolumeClaim{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	for _, node := range s.otherThan(v.victim) {
		s.vanishes(node, v.path)
	}
	s.said("PersistentVolume", v.name, "VolumeFailedDelete",
		"the volume's directory is not yet removed on 1 of its nodes: node "+v.victim+": ")
	s.eventually("the volume waits for "+v.victim, func() (bool, string) {
		var pv corev1.PersistentVolume
		err := s.api.Get(s.ctx, v.name, "", &pv)
		return err == nil && pv.Annotations[everyNodeWaits] == string(pv.Spec.ClaimRef.UID)+":"+v.victim,
			fmt.Sprintf("%v, %v", pv.Annotations, err)
	})
}

// retained keeps a volume and its data when its claim goes, and gives it to the next claim of the same name.
func (v *everyNodeVolume) retained(s *scene) {
	s.t.Helper()
	retain, immediate := corev1.PersistentVolumeReclaimRetain, storagev1.VolumeBindingImmediate
	s.create(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "e2e-retained", Annotations: map[string]string{everyNodeReuse: "SamePVCName"},
		},
		Provisioner: "kubeboost.github.com/hostpath-multihost-provisioner", ReclaimPolicy: &retain,
		VolumeBindingMode: &immediate,
	})
	s.deleteWhenDone("storageclass", "e2e-retained")
	s.create(s.everyNodeClaim("e2e-retained"))
	pv := s.bound(everyNodeClaim)
	sum := firstWord(s.output(on(v.victim, s.pod("writer", claimed(everyNodeClaim), writeData()...))))
	s.deletePod("writer")
	s.remove(s.everyNodeClaim(""))
	s.eventually("the volume is for the next claim", func() (bool, string) {
		var now corev1.PersistentVolume
		err := s.api.Get(s.ctx, pv.Name, "", &now)
		return err == nil && now.Status.Phase == corev1.VolumeAvailable, fmt.Sprintf("%s, %v", now.Status.Phase, err)
	})
	for _, node := range s.nodes {
		s.existsOn(node, pv.Spec.HostPath.Path)
	}
	s.create(s.everyNodeClaim("e2e-retained"))
	if again := s.bound(everyNodeClaim); again.Name != pv.Name {
		s.t.Errorf("the next claim of the name has got %s, want %s", again.Name, pv.Name)
	}
	s.output(on(v.victim, s.pod("reader", claimed(everyNodeClaim), checkData(sum)...)))
	s.deletePod("reader")
	s.kubectl("patch", "persistentvolume", pv.Name, "--patch", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	s.remove(s.everyNodeClaim(""))
	s.gone(pv.Name)
	for _, node := range s.nodes {
		if left := s.list(node, everyNodeBase); len(left) > 0 {
			s.t.Errorf("%s has %v in %s", node, left, everyNodeBase)
		}
	}
}
