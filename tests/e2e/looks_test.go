package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// bound waits until a claim is bound, and returns its volume.
func (s *scene) bound(claim string) *corev1.PersistentVolume {
	s.t.Helper()
	var pvc corev1.PersistentVolumeClaim
	s.eventually("claim "+claim+" is Bound", func() (bool, string) {
		if err := s.api.Get(s.ctx, claim, s.namespace, &pvc); err != nil {
			return false, err.Error()
		}
		return pvc.Status.Phase == corev1.ClaimBound, string(pvc.Status.Phase)
	})
	var pv corev1.PersistentVolume
	s.must(s.api.Get(s.ctx, pvc.Spec.VolumeName, "", &pv))
	return &pv
}

// isPending checks that a claim waits. Call it after the event that says why: nobody says that nothing will happen.
func (s *scene) isPending(claim string) {
	s.t.Helper()
	var pvc corev1.PersistentVolumeClaim
	s.must(s.api.Get(s.ctx, claim, s.namespace, &pvc))
	if pvc.Status.Phase != corev1.ClaimPending {
		s.t.Errorf("claim %s is %s, want Pending", claim, pvc.Status.Phase)
	}
}

// nodeOf is the node that a volume belongs to.
func (s *scene) nodeOf(pv *corev1.PersistentVolume) string {
	s.t.Helper()
	if pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil {
		for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if e.Key == topologyKey && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
					return e.Values[0]
				}
			}
		}
	}
	s.t.Fatalf("PersistentVolume %s has no affinity on %s: %+v", pv.Name, topologyKey, pv.Spec.NodeAffinity)
	return ""
}

// gone waits until a PersistentVolume is deleted.
func (s *scene) gone(pv string) {
	s.t.Helper()
	s.eventually("PersistentVolume "+pv+" is gone", func() (bool, string) {
		var v corev1.PersistentVolume
		err := s.api.Get(s.ctx, pv, "", &v)
		return apierrors.IsNotFound(err), fmt.Sprintf("%s, %v", v.Status.Phase, err)
	})
}

// running waits until a pod runs, and returns it.
func (s *scene) running(name string) *corev1.Pod {
	s.t.Helper()
	return s.phase(name, corev1.PodRunning)
}

// output runs a pod once to its good end, and returns what it printed.
func (s *scene) output(p *corev1.Pod) string {
	s.t.Helper()
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.create(p)
	s.phase(p.Name, corev1.PodSucceeded)
	return s.logs(s.namespace, p.Name)
}

// logs are what a pod with one container has printed, without the last line's end.
func (s *scene) logs(namespace, pod string) string {
	s.t.Helper()
	var text []byte
	s.eventually("the kubelet gives the log of pod "+pod, func() (bool, string) {
		var err error
		text, err = s.calls.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(s.ctx)
		return err == nil, fmt.Sprint(err)
	})
	return strings.TrimSuffix(string(text), "\n")
}

// raw is what the API server answers at a path.
func (s *scene) raw(path string) string {
	s.t.Helper()
	text, err := s.calls.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(s.ctx)
	s.must(err)
	return string(text)
}

// phase waits for a pod's phase; a pod that failed never gets there, unless it is replaced by one of its name.
func (s *scene) phase(name string, want corev1.PodPhase) *corev1.Pod {
	s.t.Helper()
	var p corev1.Pod
	s.eventually(fmt.Sprintf("pod %s is %s", name, want), func() (bool, string) {
		if err := s.api.Get(s.ctx, name, s.namespace, &p); err != nil {
			return false, err.Error()
		}
		if p.Status.Phase == corev1.PodFailed && want != corev1.PodFailed && p.DeletionTimestamp == nil {
			s.t.Fatalf("pod %s failed: %s", name, s.logs(s.namespace, name))
		}
		return p.Status.Phase == want, describe(&p)
	})
	return &p
}

func describe(p *corev1.Pod) string {
	words := []string{string(p.Status.Phase)}
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			words = append(words, c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			words = append(words, c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	return strings.Join(words, "; ")
}

// deletePod deletes a pod and waits until the kubelet is done with it.
func (s *scene) deletePod(name string) {
	s.t.Helper()
	p := s.pod(name, corev1.VolumeSource{})
	s.remove(p)
	s.eventually("pod "+name+" is gone", func() (bool, string) {
		err := s.api.Get(s.ctx, name, s.namespace, p)
		return apierrors.IsNotFound(err), fmt.Sprintf("%s, %v", p.Status.Phase, err)
	})
}

// said waits for an event about an object that contains all the words.
func (s *scene) said(kind, name, reason string, words ...string) string {
	s.t.Helper()
	selector := "involvedObject.kind=" + kind + ",involvedObject.name=" + name
	if kind != "Node" && kind != "PersistentVolume" {
		selector += ",involvedObject.namespace=" + s.namespace // others have pods of the same name
	}
	var found string
	s.eventually(fmt.Sprintf("event %s on %s %s says %q", reason, kind, name, words), func() (bool, string) {
		var list corev1.EventList
		err := s.api.List(s.ctx, &list, resources.WithFieldSelector(selector))
		if err != nil {
			return false, err.Error()
		}
		var heard []string
		for _, e := range list.Items {
			last := e.LastTimestamp.Time
			if last.Before(e.EventTime.Time) {
				last = e.EventTime.Time
			}
			heard = append(heard, e.Reason+": "+e.Message)
			if e.Reason == reason && !last.Before(s.since) && containsAll(e.Message, words) {
				found = e.Message
				return true, ""
			}
		}
		return false, strings.Join(heard, " | ")
	})
	return found
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// capacities lists what the scheduler goes by for a class, in bytes by node: the largest volume that can be made. A
// node with two objects for the class is an error.
func (s *scene) capacities(class string) (map[string]int64, error) {
	var list storagev1.CSIStorageCapacityList
	if err := s.api.List(s.ctx, &list); err != nil {
		return nil, err
	}
	byNode := map[string]int64{}
	for _, c := range list.Items {
		if c.StorageClassName != class || c.NodeTopology == nil {
			continue
		}
		node, ours := c.NodeTopology.MatchLabels[topologyKey]
		if _, twice := byNode[node]; twice || !ours {
			return nil, fmt.Errorf("CSIStorageCapacity %s: node %q has another one for class %s, or none", c.Name, node,
				class)
		}
		byNode[node] = -1
		if c.MaximumVolumeSize != nil {
			byNode[node] = c.MaximumVolumeSize.Value()
		}
	}
	return byNode, nil
}

// capacityBecomes waits until the capacity of a class on a node is as wanted.
func (s *scene) capacityBecomes(class, node, want string, is func(bytes int64) bool) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("capacity of class %s on %s is %s", class, node, want), func() (bool, string) {
		all, err := s.capacities(class)
		if err != nil {
			return false, err.Error()
		}
		bytes, published := all[node]
		return published && is(bytes), fmt.Sprintf("%d bytes, published: %t", bytes, published)
	})
}

func none(bytes int64) bool { return bytes == 0 }

func some(bytes int64) bool { return bytes > 0 }

// metric reads a metric of the driver on a node; ok is false where it has none like that.
func (s *scene) metric(node, series string) (value float64, ok bool) {
	s.t.Helper()
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:9898/proxy/metrics", namespace, s.driverPod(node).Name)
	for line := range strings.Lines(s.raw(path)) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), series+" "); found {
			value, err := strconv.ParseFloat(text, 64)
			s.must(err)
			return value, true
		}
	}
	return 0, false
}
