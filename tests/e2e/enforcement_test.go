package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const mebibyte = 1 << 20

// fillData writes more than any volume of these features holds.
func fillData() []string { return []string{"fill", dataDir, "--bytes", strconv.Itoa(700 * mebibyte)} }

func TestEnforcedSize(t *testing.T) {
	first, second := world.workers[0], world.workers[1]
	class := classOf(poolEnforced)
	parallel(t, "a volume on btrfs is as big as it says, and its pool promises nothing twice",
		step{"DisksWithoutQuota", func(s *scene) {
			for _, node := range []string{first, second} {
				s.mountBtrfs(node, poolEnforced, "1G", pathOf(poolEnforced))
			}
			for _, node := range []string{first, second} {
				s.capacityBecomes(class, node, "more than 512 MiB", func(n int64) bool { return n > 512*mebibyte })
			}
		}},
		step{"MoreThanTheSizeIsRefused", func(s *scene) {
			s.create(s.claim("full", class, "128Mi"))
			fitted, why := s.filled(on(first, s.pod("full", claimed("full"), fillData()...)))
			if fitted > 128*mebibyte || fitted < 100*mebibyte || why == "all" {
				s.t.Errorf("%d bytes fitted into 128 MiB (%s); want nearly all of it, and an error then", fitted, why)
			}
			if got := s.bound("full").Spec.CSI.VolumeAttributes["enforcement"]; got != "strict" {
				s.t.Errorf("volume attribute enforcement is %q, want strict", got)
			}
		}},
		step{"KubeletTellsTheVolumesNumbers", func(s *scene) {
			s.create(on(first, s.pod("reader", claimed("full"), "sleep")))
			s.running("reader")
			s.volumeStat(first, "full", "capacity_bytes", func(n float64) bool { return n == 128*mebibyte })
			s.volumeStat(first, "full", "used_bytes",
				func(n float64) bool { return n > 100*mebibyte && n <= 128*mebibyte })
			s.deletePod("reader")
			s.typed("how-to/replace-a-disk.md", "kubectl hpp enforce", "ssd", poolEnforced, "NODE", first)
		}},
		step{"WhatWouldOversellGoesToTheOtherNode", func(s *scene) {
			s.create(s.claim("large", class, "512Mi"))
			s.output(on(first, s.pod("large", claimed("large"), writeData()...)))
			s.capacityBecomes(class, first, "less than 512 MiB", func(n int64) bool { return n < 512*mebibyte })
			s.create(s.claim("another", class, "512Mi"))
			s.output(s.pod("another", claimed("another"), writeData()...))
			if got := s.nodeOf(s.bound("another")); got != second {
				s.t.Errorf("the second 512 MiB are on %s, only %s has the room", got, second)
			}
		}},
		step{"VolumesGoBeforeTheirDisks", func(s *scene) {
			for _, name := range []string{"full", "large", "another"} {
				s.forget(name)
			}
		}},
	)
}

// filled runs a pod of fill, and returns how many bytes fitted and why no more did.
func (s *scene) filled(p *corev1.Pod) (bytes int64, why string) {
	s.t.Helper()
	words := strings.Fields(s.output(p))
	if len(words) < 2 {
		s.t.Fatalf("fill printed %q", words)
	}
	bytes, err := strconv.ParseInt(words[0], 10, 64)
	s.must(err)
	return bytes, words[1]
}

// volumeStat waits until a figure that the kubelet gives of a claim's volume is right. It asks
// the driver once a minute.
func (s *scene) volumeStat(node, claim, figure string, is func(float64) bool) {
	s.t.Helper()
	prefix := fmt.Sprintf("kubelet_volume_stats_%s{namespace=%q,persistentvolumeclaim=%q} ", figure, s.namespace, claim)
	s.eventually("the kubelet's figure is right: "+prefix, func() (bool, string) {
		for line := range strings.SplitSeq(s.raw("/api/v1/nodes/"+node+"/proxy/metrics"), "\n") {
			value, found := strings.CutPrefix(line, prefix)
			if !found {
				continue
			}
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && is(n), line
		}
		return false, "there is none"
	})
}

// forget deletes a claim and the pod of its name, and waits until the volume is gone.
func (s *scene) forget(name string) {
	s.t.Helper()
	volume := s.bound(name).Name
	s.deletePod(name)
	s.remove(s.claim(name, "", "0"))
	s.gone(volume)
}
