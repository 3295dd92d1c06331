package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const (
	// lastTag is the tag of the driver's image of the release that the next one is to follow (testdata/README.md).
	lastTag = "0.1.9-e2e"
	// rollingStateDir and the pool are of this upgrade alone: a driver must not find what a newer one has written.
	rollingStateDir = "/var/lib/hpp-e2e-rolling-state"
	poolRolling     = "rolling"
)

// rollingUpgrade is a pod that writes through an upgrade.
type rollingUpgrade struct {
	node          string // of the pod
	other         string
	writer        *corev1.Pod
	lines, volume string
	before        map[string]*corev1.Pod // the driver's, by node
}

// TestRollingUpgrade is before all features that want the usual release: it has to remove what is there.
func TestRollingUpgrade(t *testing.T) {
	r := rollingUpgrade{node: world.workers[0], other: world.workers[1], before: map[string]*corev1.Pod{}}
	replacing(t, "the last release is upgraded, first the controller and then node by node, under a pod that writes",
		step{"TheLastReleaseServesAVolume", func(s *scene) { r.begin(s) }},
		step{"ANewControllerAndOldNodes", func(s *scene) { r.skew(s) }},
		step{"NodeByNode", func(s *scene) { r.roll(s) }},
		step{"ItsVolumeIsDeleted", func(s *scene) {
			s.deletePod("writer")
			s.remove(s.claim("data", "", "0"))
			s.gone(r.volume)
			s.vanishes(r.node, volumePath(poolRolling, r.volume))
		}},
	)
}

// rollingValues are those of both releases, but for the controller's image. What else only the newer chart knows has no
// place here.
func (s *suite) rollingValues(driver map[string]any) map[string]any {
	values := s.values("info")
	values["storagePools"] = []pool{{Name: poolRolling, Path: pathOf(poolRolling)}}
	values["storageClasses"] = []class{{Name: classOf(poolRolling), StoragePool: poolRolling}}
	has, _ := values["driver"].(map[string]any)
	has["stateDir"] = rollingStateDir
	maps.Copy(has, driver)
	return values
}

// withoutControllerImage makes values fit an earlier chart, in which the controller is the driver's image.
func withoutControllerImage(values map[string]any) {
	controller, _ := values["controller"].(map[string]any)
	delete(controller, "image")
}

func (r *rollingUpgrade) begin(s *scene) {
	s.t.Helper()
	s.whenDone(func(ctx context.Context) error {
		return errors.Join(s.plain(ctx), s.onEveryNode(ctx, "rm -rf "+pathOf(poolRolling)+" "+rollingStateDir))
	})
	tree, images := s.earlier("last-release.tar.gz", lastTag, "driver")
	s.must(s.bare(s.ctx))
	values := s.rollingValues(map[string]any{"image": images["driver"]})
	withoutControllerImage(values)
	s.must(s.installChart(s.ctx, filepath.Join(tree, chartFolder), values))
	s.allConnected()
	for _, node := range s.nodes {
		r.before[node] = s.driverPod(node)
	}
	s.create(s.claim("data", classOf(poolRolling), "16Mi"))
	s.create(on(r.node, s.pod("writer", claimed("data"), appendLines()...)))
	r.writer = s.running("writer")
	r.volume = s.bound("data").Name
	r.lines = volumePath(poolRolling, r.volume) + "/lines"
}

// skew upgrades the controller alone. With the old nodes it makes, grows and deletes volumes. Those write events and
// conditions themselves, for which they have lost the rights: that is only in their log.
func (r *rollingUpgrade) skew(s *scene) {
	s.t.Helper()
	values := s.rollingValues(map[string]any{"updateStrategy": map[string]any{
		"type":          "OnDelete",
		"rollingUpdate": nil,
	}})
	// Helm would wait for the nodes too.
	s.must(s.upgrade(s.ctx, filepath.Join(s.root, chartFolder), values, "hookOnly"))
	s.eventually("the controller is the new one", func() (bool, string) {
		pods := s.controllers()
		for _, p := range pods {
			if !isReady(&p) || !strings.Contains(fmt.Sprint(p.Spec.Containers), s.digests["controller"]) {
				return false, p.Name + ": " + describe(&p)
			}
		}
		return len(pods) == 1, fmt.Sprintf("%d pods", len(pods))
	})
	s.allConnected()
	for _, node := range s.nodes {
		if now := s.driverPod(node); now.UID != r.before[node].UID {
			s.t.Errorf("the driver on %s was replaced: it is to be the old one", node)
		}
	}
	s.growTo("data", "32Mi")
	s.recorded(r.node, poolRolling, "data", 32*mebibyte)
	s.create(s.claim("skewed", classOf(poolRolling), "16Mi"))
	s.output(on(r.other, s.pod("skewed", claimed("skewed"), writeData()...)))
	s.forget("skewed")
	s.grows(r.node, r.lines)
}

// roll upgrades the nodes while a claim for each of them waits or is served.
func (r *rollingUpgrade) roll(s *scene) {
	s.t.Helper()
	for _, node := range s.nodes {
		s.create(s.claim(node, classOf(poolRolling), "16Mi"))
		s.create(on(node, s.pod(node, claimed(node), writeData()...)))
	}
	s.must(s.install(s.ctx, s.rollingValues(map[string]any{"updateStrategy": map[string]any{
		"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": 1},
	}})))
	s.daemonSet("-csi")
	for _, node := range s.nodes {
		if now := s.driverPod(node); now.UID == r.before[node].UID {
			s.t.Errorf("the driver on %s is the old one", node)
		}
	}
	s.allConnected()
	for _, node := range s.nodes {
		s.phase(node, corev1.PodSucceeded)
		s.forget(node)
	}
	s.untouched(r.writer)
	s.grows(r.node, r.lines)
}
