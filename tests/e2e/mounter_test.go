package e2e

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// mounter is the pod that puts a pool's claim at its path on a node, ready.
func (s *scene) mounter(pool, node string) *corev1.Pod {
	s.t.Helper()
	var p *corev1.Pod
	s.eventually("one mounter of pool "+pool+" on "+node+" is ready", func() (bool, string) {
		list, err := s.mounters(pool, node)
		if err != nil || len(list) != 1 {
			return false, fmt.Sprintf("%d pods, %v", len(list), err)
		}
		p = &list[0]
		return isReady(p), describe(p)
	})
	return p
}

// mounters are those pods that are not being deleted.
func (s *scene) mounters(pool, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := s.api.List(s.ctx, &list, resources.WithLabelSelector(componentLabel+"="+mounterComponent+","+
		poolOfMounter+"="+pool), resources.WithFieldSelector("spec.nodeName="+node))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), err
}

// replaceMounter replaces it as an upgrade does, and wants one to be ready at every moment: a claim that no pod uses
// may be detached.
func (s *scene) replaceMounter(pool, node string) {
	s.t.Helper()
	before := s.mounter(pool, node)
	s.kubectl("rollout", "restart", "deployment", "--namespace", namespace, "--selector",
		componentLabel+"="+mounterComponent+","+poolOfMounter+"="+pool)
	s.eventually("the mounter is another one", func() (bool, string) {
		list, err := s.mounters(pool, node)
		s.must(err)
		if !slices.ContainsFunc(list, func(p corev1.Pod) bool { return isReady(&p) }) {
			s.t.Fatalf("none of %d mounters of pool %s on %s is ready", len(list), pool, node)
		}
		return len(list) == 1 && list[0].UID != before.UID, fmt.Sprintf("%d mounters", len(list))
	})
}

// mountAt is the number that the kernel gave to the one mount at a path of a node; another mount has another.
func (s *scene) mountAt(node, path string) string {
	s.t.Helper()
	ids := s.onNode(node, "findmnt --noheadings --output ID --mountpoint "+path)
	if len(strings.Fields(ids)) != 1 {
		s.t.Fatalf("%s has these mounts at %s: %q, want one", node, path, ids)
	}
	return ids
}

// notMounted waits until nothing is mounted at a path of a node any more.
func (s *scene) notMounted(node, path string) {
	s.t.Helper()
	s.eventually("nothing is mounted at "+path+" of "+node, func() (bool, string) {
		there := s.onNode(node, "findmnt --mountpoint "+path+" || true")
		return there == "", there
	})
}
