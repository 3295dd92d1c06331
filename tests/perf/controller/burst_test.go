package controller_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// selectedNode is the annotation by which the scheduler says where a claim's volume is wanted.
const selectedNode = "volume.kubernetes.io/selected-node"

// burst makes claims for nodes all over the cluster, as the scheduler leaves them, and waits until all are bound. Once
// half of them are it does something else, too. Then each has one volume, on its node.
func (l *layout) burst(t *testing.T, name string, halfway func()) {
	t.Helper()
	labels := client.MatchingLabels{"burst": name}
	events, err := l.client.Watch(t.Context(), &corev1.PersistentVolumeClaimList{}, labels)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	each(t, 0, l.claims, func(i int) error {
		node := l.pods[i*len(l.pods)/l.claims%len(l.pods)].Name
		c := claim(fmt.Sprintf("%s-%d", name, i), class, map[string]string{selectedNode: node})
		c.Labels = maps.Clone(labels)
		return l.client.Create(t.Context(), c)
	})
	began, bound := time.Now(), map[string]string{} // volumes by claim
	for look := time.Tick(time.Second); len(bound) < l.claims; {
		select {
		case <-look:
			if err := l.running(t); err != nil || time.Since(began) > waitTimeout {
				t.Fatalf("%d of %d claims are bound after %s: %v", len(bound), l.claims, time.Since(began), err)
			}
		case event, ok := <-events.ResultChan():
			if !ok {
				t.Fatal("the watch of the burst's claims has ended")
			}
			if c, is := event.Object.(*corev1.PersistentVolumeClaim); is && c.Status.Phase == corev1.ClaimBound {
				bound[c.Name] = c.Spec.VolumeName
			}
			if len(bound) > l.claims/2 && halfway != nil {
				halfway()
				halfway = nil
			}
		}
	}
	l.checkPlaces(t, labels)
}

// checkPlaces holds the volumes of bound claims to one each, which is on the claim's node and on no other.
func (l *layout) checkPlaces(t *testing.T, labels client.MatchingLabels) {
	t.Helper()
	places := map[string][]string{} // of volumes
	for _, pod := range l.pods {
		list, err := dial(t, l.path("sockets", pod.Name+".sock")).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range list.GetEntries() {
			places[entry.GetVolume().GetVolumeId()] = append(places[entry.GetVolume().GetVolumeId()], pod.Name)
		}
	}
	var claims corev1.PersistentVolumeClaimList
	var volumes corev1.PersistentVolumeList
	if err := l.client.List(t.Context(), &claims, labels, client.InNamespace(harness.Namespace)); err != nil {
		t.Fatal(err)
	}
	if err := l.client.List(t.Context(), &volumes); err != nil {
		t.Fatal(err)
	}
	handles := map[string][]string{} // by claim
	for _, v := range volumes.Items {
		if v.Spec.CSI != nil && v.Spec.ClaimRef != nil {
			handles[v.Spec.ClaimRef.Name] = append(handles[v.Spec.ClaimRef.Name], v.Spec.CSI.VolumeHandle)
		}
	}
	for _, c := range claims.Items {
		want := c.Annotations[selectedNode]
		if got := handles[c.Name]; len(got) != 1 || len(places[got[0]]) != 1 || places[got[0]][0] != want {
			t.Errorf("claim %s has volumes %v, the first on nodes %v; want one, on %s alone", c.Name, got,
				places[got[0]], want)
		}
	}
	if len(claims.Items) != l.claims {
		t.Errorf("there are %d claims, want %d", len(claims.Items), l.claims)
	}
}
