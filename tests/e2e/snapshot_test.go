package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// snapshotGroup is the API of VolumeSnapshots, and the others are the chart's classes.
const (
	snapshotGroup = "snapshot.storage.k8s.io"
	pointInTime   = "hostpath-point-in-time"
	bestEffort    = "hostpath-best-effort"
)

// TestSnapshots goes through docs/how-to/snapshots.md.
func TestSnapshots(t *testing.T) {
	node, class := world.workers[0], classOf(poolCopied)
	var volume, sum, later string
	parallel(t, "a snapshot keeps what its volume had, costs it no room, and becomes a volume again",
		step{"AVolumeIsNearlyFull", func(s *scene) {
			for _, name := range world.workers {
				s.mountBtrfs(name, poolCopied, "1G", pathOf(poolCopied))
			}
			s.capacityBecomes(class, node, "more than 512 MiB", func(n int64) bool { return n > 512*mebibyte })
			s.create(s.claim("data", class, "128Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), write(100*mebibyte)...))))
			volume = s.bound("data").Name
		}},
		step{"ASnapshotIsMadeWhileAPodHasIt", func(s *scene) {
			s.create(on(node, s.pod("user", claimed("data"), "sleep")))
			s.running("user")
			s.typed("how-to/snapshots.md", "readyToUse", "before-upgrade", "before")
			s.snapshotIs("before", "{.status.restoreSize}", "128Mi")
			if listed := s.driver(node, "volume", "list"); !strings.Contains(listed, "HELD") {
				s.t.Errorf("driver volume list says nothing of what is held:\n%s", listed)
			}
		}},
		step{"EverythingIsOverwrittenTwice", func(s *scene) {
			for i := range 2 {
				name := fmt.Sprint("again", i)
				later = firstWord(s.output(on(node, s.pod(name, claimed("data"), write(100*mebibyte+1+i)...))))
				s.deletePod(name)
			}
		}},
		step{"ItIsRestoredAndCloned", func(s *scene) {
			s.typed("how-to/snapshots.md", "data-restored", "data-restored", "restored", "before-upgrade", "before",
				"fast", class, "10Gi", "128Mi")
			s.create(from(s.claim("cloned", class, "128Mi"), "PersistentVolumeClaim", "data"))
			s.output(on(node, s.pod("restored", claimed("restored"), checkData(sum)...)))
			s.output(s.pod("cloned", claimed("cloned"), checkData(later)...))
			for _, name := range []string{"restored", "cloned"} {
				if got := s.nodeOf(s.bound(name)); got != node {
					s.t.Errorf("%s is on %s, its source on %s", name, got, node)
				}
			}
		}},
		step{"WithoutRoomTheSnapshotSaysSoAndGoes", func(s *scene) {
			s.create(s.claim("large", class, fmt.Sprintf("%dMi", s.allocatable(node, poolCopied)/mebibyte-16)))
			s.output(on(node, s.pod("large", claimed("large"), writeData()...)))
			s.snapshot("refused", pointInTime, "data")
			s.snapshotIs("refused", "{.status.error.message}", "has room for")
			s.deleteSnapshots("refused")
		}},
		step{"TheSourceGoesFirst", func(s *scene) {
			s.deletePod("user")
			s.deletePod("writer")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.create(from(s.claim("late", class, "128Mi"), "VolumeSnapshot", "before"))
			s.output(on(node, s.pod("late", claimed("late"), checkData(sum)...)))
		}},
		step{"AllGoBeforeTheDisks", func(s *scene) {
			handle := s.kubectl("get", "volumesnapshotcontent", "-o",
				"jsonpath={.items[?(@.spec.volumeSnapshotRef.namespace=='"+s.namespace+"')].status.snapshotHandle}")
			said := s.typed("how-to/snapshots.md", "delete volumesnapshot", "before-upgrade", "before")
			if !strings.Contains(said, handle) {
				s.t.Errorf("no snapshot %s is listed:\n%s", handle, said)
			}
			s.vanishes(node, volumePath(poolCopied, handle))
			for _, name := range []string{"restored", "cloned", "large", "late"} {
				s.forget(name)
			}
		}},
	)
}

// TestSnapshotsByFile: in a pool on a plain directory the data is copied.
func TestSnapshotsByFile(t *testing.T) {
	node, other, class := world.workers[0], world.workers[1], classOf(poolLocal)
	var sum, later string
	parallel(t, "a snapshot of a plain directory is a copy, of a volume that no pod writes to or by best effort",
		step{"AMountedVolumeIsRefused", func(s *scene) {
			s.create(s.claim("data", class, "64Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), write(40*mebibyte)...))))
			s.deletePod("writer")
			s.create(on(node, s.pod("user", claimed("data"), "sleep")))
			s.running("user")
			s.snapshot("refused", pointInTime, "data")
			s.snapshotIs("refused", "{.status.error.message}", "is mounted at")
			s.deleteSnapshots("refused")
		}},
		step{"BestEffortIsMade", func(s *scene) {
			s.snapshot("running", bestEffort, "data")
			s.snapshotIs("running", "{.status.readyToUse} {.status.restoreSize}", "true 64Mi")
		}},
		step{"WithoutAPodItIsMadeAndRestoredOnEitherNode", func(s *scene) {
			s.deletePod("user")
			s.snapshot("quiet", pointInTime, "data")
			s.snapshotIs("quiet", "{.status.readyToUse} {.status.restoreSize}", "true 64Mi")
			later = firstWord(s.output(on(node, s.pod("overwriter", claimed("data"), write(40*mebibyte+1)...))))
			s.deletePod("overwriter")
			for name, where := range map[string]string{"running": node, "quiet": other} {
				s.isCopied(where, from(s.claim("from-"+name, class, "64Mi"), "VolumeSnapshot", name), sum)
			}
		}},
		step{"AVolumeWithoutAPodIsClonedOnTheOtherNode", func(s *scene) {
			s.isCopied(other, from(s.claim("cloned", class, "64Mi"), "PersistentVolumeClaim", "data"), later)
		}},
		step{"NothingIsLeft", func(s *scene) {
			handles := strings.Fields(s.kubectl("get", "volumesnapshotcontent", "-o",
				"jsonpath={.items[?(@.spec.volumeSnapshotRef.namespace=='"+s.namespace+"')].status.snapshotHandle}"))
			s.deleteSnapshots("running", "quiet")
			if len(handles) != 2 {
				s.t.Errorf("snapshots %q", handles)
			}
			for _, handle := range handles {
				s.vanishes(node, volumePath(poolLocal, handle))
			}
		}},
	)
}

// isCopied wants a copy on the node of its pod, with a checksum.
func (s *scene) isCopied(node string, claim *corev1.PersistentVolumeClaim, sum string) {
	s.t.Helper()
	s.create(claim)
	s.output(on(node, s.pod(claim.Name, claimed(claim.Name), checkData(sum)...)))
	if got := s.nodeOf(s.bound(claim.Name)); got != node {
		s.t.Errorf("%s is on %s, its pod on %s", claim.Name, got, node)
	}
}

// allocatable is how many bytes the largest new volume of a pool may have on a node.
func (s *scene) allocatable(node, pool string) (bytes int64) {
	s.t.Helper()
	var status struct {
		Pools []struct {
			Name        string `json:"name"`
			Allocatable int64  `json:"allocatable"`
		} `json:"pools"`
	}
	s.must(json.Unmarshal([]byte(s.driver(node, "status", "-o", "json")), &status))
	for _, p := range status.Pools {
		if p.Name == pool {
			bytes = p.Allocatable
		}
	}
	return bytes
}

// write are the arguments of a pod that writes so many bytes into the file that checkData reads.
func write(bytes int) []string {
	return []string{"write", dataDir + "/file", "--bytes", fmt.Sprint(bytes)}
}

// from gives a claim a source of its own namespace.
func from(claim *corev1.PersistentVolumeClaim, kind, name string) *corev1.PersistentVolumeClaim {
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
	if group := snapshotGroup; kind == "VolumeSnapshot" {
		claim.Spec.DataSource.APIGroup = &group
	}
	return claim
}

// snapshot asks for a snapshot of a claim.
func (s *scene) snapshot(name, class, claim string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`{apiVersion: %s/v1, kind: VolumeSnapshot, metadata: {name: %s, namespace: %s},
spec: {volumeSnapshotClassName: %s, source: {persistentVolumeClaimName: %s}}}`,
		snapshotGroup, name, s.namespace, class, claim))
}

// deleteSnapshots deletes VolumeSnapshots, and waits until they are gone.
func (s *scene) deleteSnapshots(names ...string) {
	s.t.Helper()
	args := append([]string{"delete", "volumesnapshot"}, names...)
	s.kubectl(append(args, "--namespace", s.namespace, "--timeout", waitTimeout.String())...)
}

// snapshotIs waits until a VolumeSnapshot shows something.
func (s *scene) snapshotIs(name, jsonpath, want string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the VolumeSnapshot %s shows %q", name, want), func() (bool, string) {
		got := s.kubectl("get", "volumesnapshot", name, "--namespace", s.namespace, "-o", "jsonpath="+jsonpath)
		return strings.Contains(got, want), got
	})
}
