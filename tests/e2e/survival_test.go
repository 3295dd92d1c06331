package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

func TestDataSurvives(t *testing.T) {
	node := world.workers[0]
	var sum, volume string
	var appending *corev1.Pod
	alone(t, "data survives pod deletion, a killed driver and a restarted node",
		step{"PodWritesAndIsDeleted", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "64Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
			s.deletePod("writer")
			s.output(s.pod("reader", claimed("data"), checkData(sum)...))
			s.deletePod("reader")
		}},
		step{"DriverIsKilled", func(s *scene) {
			s.create(s.pod("appending", claimed("data"), appendLines()...))
			appending = s.running("appending")
			before := s.driverPod(node)
			// Not by its pod: the process gets no chance to clean up.
			s.onNode(node, "pkill -KILL -x driver")
			s.eventually("the driver has been restarted", func() (bool, string) {
				now := s.driverPod(node)
				return restarts(now) > restarts(before), describe(now)
			})
		}},
		step{"RunningPodDidNotNotice", func(s *scene) {
			s.grows(node, volumePath(poolLocal, volume)+"/lines")
			s.untouched(appending)
		}},
		step{"RestartedDriverServesOldAndNew", func(s *scene) {
			s.output(on(node, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.deletePod("reader")
			s.create(s.claim("after", classOf(poolLocal), "16Mi"))
			s.output(on(node, s.pod("after", claimed("after"), writeData()...)))
		}},
		step{"NodeIsRestarted", func(s *scene) {
			lines := s.lines(node, volumePath(poolLocal, volume)+"/lines")
			s.must(s.cluster.RestartNode(s.ctx, node))
			s.eventually("the pod appends again, to the same file", func() (bool, string) {
				now := s.lines(node, volumePath(poolLocal, volume)+"/lines")
				return now > lines, fmt.Sprintf("%d lines before, %d now", lines, now)
			})
		}},
		step{"DataIsThereAfterTheRestart", func(s *scene) {
			s.driverPod(node)
			s.output(on(node, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.deletePod("reader")
		}},
		step{"VolumeCanBeDeletedAfterTheRestart", func(s *scene) {
			s.deletePod("appending")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
		}},
	)
}

func TestClaimsWhileDriversAreKilled(t *testing.T) {
	var claims int
	var volumes []string
	alone(t, "20 claims while the driver's pods are killed in the middle: all Bound, nothing left over",
		step{"DriverPodsAreKilledInTheMiddle", func(s *scene) { claims = s.killInTheMiddle() }},
		step{"AllAreBound", func(s *scene) {
			for i := range claims {
				volumes = append(volumes, s.bound(numbered("data", i)).Name)
			}
			slices.Sort(volumes)
		}},
		step{"NothingIsLeftInStaging", func(s *scene) {
			for _, node := range s.nodes {
				s.driverPod(node)
				s.eventually("staging on "+node+" is empty", func() (bool, string) {
					left := s.list(node, pathOf(poolBurst)+"/csi/.hpp/staging")
					return len(left) == 0, strings.Join(left, " ")
				})
			}
		}},
		step{"EachVolumeIsThereOnce", func(s *scene) {
			var found, records []string
			for _, node := range s.nodes {
				for _, name := range s.list(node, pathOf(poolBurst)+"/csi") {
					if name != ".hpp" {
						found = append(found, name)
					}
				}
				for _, name := range s.list(node, pathOf(poolBurst)+"/csi/.hpp/volumes") {
					records = append(records, strings.TrimSuffix(name, ".json"))
				}
			}
			slices.Sort(found)
			slices.Sort(records)
			if !slices.Equal(found, volumes) || !slices.Equal(records, volumes) {
				s.t.Errorf("directories, records and PersistentVolumes differ:\n%v\n%v\n%v", found, records, volumes)
			}
		}},
		step{"AllGoAgain", func(s *scene) {
			for i := range claims {
				s.remove(s.claim(numbered("data", i), "", "0"))
			}
			for _, volume := range volumes {
				s.gone(volume)
			}
			for _, node := range s.nodes {
				s.eventually("nothing but .hpp is left on "+node, func() (bool, string) {
					left := s.onNode(node, "cd "+pathOf(poolBurst)+"/csi; ls -A . .hpp/volumes .hpp/staging .hpp/trash")
					return !strings.Contains(left, "pvc-"), left
				})
			}
		}},
	)
}

// killInTheMiddle makes claims and kills the drivers when at least one of them and not all are Bound. A cluster that
// has bound all of them by then gets as many again. It returns how many there are.
func (s *scene) killInTheMiddle() (claims int) {
	s.t.Helper()
	const batch, attempts = 20, 5
	for range attempts {
		earlier := claims
		for range batch {
			s.create(s.claim(numbered("data", claims), classBurst, "16Mi"))
			claims++
		}
		var before int
		s.eventually("one of the new claims is Bound", func() (bool, string) {
			before = s.boundClaims()
			return before > earlier, fmt.Sprintf("%d of %d are, of which %d were earlier", before, claims, earlier)
		})
		s.killDrivers()
		if after := s.boundClaims(); after < claims {
			s.t.Logf("%d of %d claims were Bound just before the drivers were killed, %d just after", before, claims, after)
			return claims
		}
	}
	s.t.Fatalf("the drivers were killed %d times, and each time all claims were Bound: never in the middle", attempts)
	return 0
}

// killDrivers ends the drivers of all nodes at once, their pods and the sidecars with them.
func (s *scene) killDrivers() {
	s.t.Helper()
	for _, node := range s.nodes {
		s.onNode(node, "pkill -KILL -x driver || true")
	}
	s.kubectl("delete", "pods", "--namespace", namespace, "--selector", "app.kubernetes.io/component=csi-driver",
		"--grace-period=0", "--force", "--wait=false")
}

func (s *scene) boundClaims() (n int) {
	s.t.Helper()
	var list corev1.PersistentVolumeClaimList
	s.must(s.api.List(s.ctx, &list, resources.WithFieldSelector("metadata.namespace="+s.namespace)))
	for _, c := range list.Items {
		if c.Status.Phase == corev1.ClaimBound {
			n++
		}
	}
	return n
}
