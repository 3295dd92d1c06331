package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNonRootPods(t *testing.T) {
	node := world.workers[0]
	user, group, yes := int64(1000), int64(2000), true
	owner := func(s *scene, claim string) string {
		return s.onNode(node, "stat -c '%u:%g' "+volumePath(poolLocal, s.bound(claim).Name)+"/file")
	}
	parallel(t, "pods that do not run as root can write, with and without fsGroup",
		step{"WithoutFSGroup", func(s *scene) {
			s.create(s.claim("plain", classOf(poolLocal), "16Mi"))
			p := on(node, s.pod("plain", claimed("plain"), writeData()...))
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes}
			s.output(p)
			if got := owner(s, "plain"); got != "1000:1000" {
				s.t.Errorf("file belongs to %s, want 1000:1000", got)
			}
		}},
		step{"WithFSGroup", func(s *scene) {
			s.create(s.claim("grouped", classOf(poolLocal), "16Mi"))
			p := on(node, s.pod("grouped", claimed("grouped"), writeData()...))
			p.Spec.SecurityContext = &corev1.PodSecurityContext{
				RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, FSGroup: &group,
			}
			s.output(p)
			if got := owner(s, "grouped"); got != "1000:2000" {
				s.t.Errorf("file belongs to %s, want 1000:2000", got)
			}
		}},
	)
}

func TestMountOptionsAndOwner(t *testing.T) {
	node := world.workers[0]
	parallel(t, "a class chooses mount options, owner and mode, and a pod may mount read-only",
		step{"VolumeHasOwnerAndMode", func(s *scene) {
			s.create(s.claim("data", classOptions, "16Mi"))
			user := int64(1000)
			p := on(node, s.pod("holder", claimed("data"), appendLines()...))
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user}
			s.create(p)
			s.running("holder")
			if got := s.onNode(node,
				"stat -c '%a %u:%g' "+volumePath(poolLocal, s.bound("data").Name)); got != "750 1000:3000" {
				s.t.Errorf("mode and owner are %s, want 750 1000:3000", got)
			}
		}},
		step{"MountHasItsOptions", func(s *scene) {
			s.mountedWith(node, "holder", "data", "rw", "noexec", "nosuid", "noatime")
		}},
		step{"ReadOnlyVolumeIsMountedReadOnly", func(s *scene) {
			p := on(node, s.pod("reader", claimed("data"), "sleep"))
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
			s.create(p)
			s.mountedWith(node, "reader", "data", "ro", "noexec", "nosuid", "noatime")
		}},
		step{"ReadOnlyVolumeCannotBeWritten", func(s *scene) {
			p := on(node, s.pod("intruder", claimed("data"), "write", dataDir+"/other"))
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
			s.create(p)
			s.phase("intruder", corev1.PodFailed)
			if log := s.logs(s.namespace, "intruder"); !strings.Contains(
				log, "read-only file system",
			) {
				s.t.Errorf("the pod failed with: %s", log)
			}
		}},
	)
}

// mountedWith checks the options of a claim's mount for a running pod, as the
// node has it: what the container sees, its runtime may have made so.
func (s *scene) mountedWith(node, pod, claim string, want ...string) {
	s.t.Helper()
	target := "/var/lib/kubelet/pods/" + string(s.running(pod).UID) + "/volumes/kubernetes.io~csi/" +
		s.bound(claim).Name +
		"/mount"
	options := strings.Split(s.onNode(node, "findmnt -n -o VFS-OPTIONS -M "+target), ",")
	for _, w := range want {
		if !slices.Contains(options, w) {
			s.t.Errorf("options of the mount for pod %s are %v, %s is missing", pod, options, w)
		}
	}
}

func TestReadWriteOncePod(t *testing.T) {
	parallel(t, "ReadWriteOncePod admits one pod",
		step{"FirstPodRuns", func(s *scene) {
			c := s.claim("data", classOf(poolLocal), "16Mi")
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			s.create(c)
			s.create(s.pod("first", claimed("data"), appendLines()...))
			s.running("first")
		}},
		step{"SecondPodWaits", func(s *scene) {
			s.create(s.pod("second", claimed("data"), appendLines()...))
			s.said("Pod", "second", "FailedScheduling", "ReadWriteOncePod")
		}},
		step{"PastTheSchedulerItIsRefusedToo", func(s *scene) {
			p := s.pod("smuggled", claimed("data"), appendLines()...)
			p.Spec.NodeName = s.nodeOf(s.bound("data"))
			s.create(p)
			s.said("Pod", "smuggled", "FailedMount")
			s.deletePod("smuggled")
		}},
		step{"SecondPodRunsAfterTheFirst", func(s *scene) {
			s.deletePod("first")
			s.running("second")
		}},
	)
}

func TestInlineEphemeralVolume(t *testing.T) {
	node := world.workers[1]
	parallel(t, "an inline volume lives as long as its pod",
		step{"PodWrites", func(s *scene) {
			volume := inline(map[string]string{"storagePool": poolInline, "size": "16Mi"})
			s.create(on(node, s.pod("inline", volume, appendLines()...)))
			s.running("inline")
		}},
		step{"VolumeIsInItsPool", func(s *scene) {
			s.eventually("the pool holds one volume with lines in it", func() (bool, string) {
				found := s.onNode(node, "ls -d "+pathOf(poolInline)+"/csi/csi-*/lines || true")
				return len(strings.Fields(found)) == 1, found
			})
			record := s.onNode(node, "cat "+pathOf(poolInline)+"/csi/.hpp/volumes/*.json")
			if !strings.Contains(record, `"ephemeral": true`) {
				s.t.Errorf("record does not say ephemeral: %s", record)
			}
		}},
		step{"VolumeGoesWithThePod", func(s *scene) {
			s.deletePod("inline")
			s.eventually("no volume is left", func() (bool, string) {
				left := s.list(node, pathOf(poolInline)+"/csi")
				return len(left) == 1 && left[0] == ".hpp", strings.Join(left, " ")
			})
			s.eventually("no record is left", func() (bool, string) {
				left := s.list(node, pathOf(poolInline)+"/csi/.hpp/volumes")
				return len(left) == 0, strings.Join(left, " ")
			})
		}},
		step{"PoolThatDoesNotAllowItRefuses", func(s *scene) {
			s.create(on(node, s.pod("refused", inline(map[string]string{"storagePool": poolLocal}), appendLines()...)))
			s.said("Pod", "refused", "FailedMount", "storagePool", poolLocal, "inline: true")
		}},
		step{"UnknownAttributeIsRefused", func(s *scene) {
			s.create(
				on(node, s.pod("misspelt", inline(map[string]string{"storagePool": poolInline, "sizze": "1Gi"}),
					appendLines()...)),
			)
			s.said("Pod", "misspelt", "FailedMount", "sizze")
		}},
	)
}

func TestReadWriteManyOnOneNode(t *testing.T) {
	first, second := world.workers[0], world.workers[1]
	sum := ""
	many := func(s *scene, name string) *corev1.PersistentVolumeClaim {
		c := s.claim(name, classOf(poolOfOne), "16Mi")
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		return c
	}
	label := func(s *scene, node string) {
		s.kubectl("label", "--overwrite", "node", node, ofOneLabel+"=yes")
		s.whenDone(func(ctx context.Context) error {
			_, err := s.cluster.Kubectl(ctx, nil, "label", "node", node, ofOneLabel+"-")
			return err
		})
		s.capacityBecomes(classOf(poolOfOne), node, "more than 0", some)
	}
	parallel(t, "pods of one node share a ReadWriteMany volume, as long as its pool is selected there alone",
		step{"PodsShareFiles", func(s *scene) {
			label(s, first)
			s.create(many(s, "data"))
			s.create(on(first, s.pod("holder", claimed("data"), appendLines()...)))
			s.running("holder")
			sum = firstWord(s.output(on(first, s.pod("writer", claimed("data"), writeData()...))))
			s.output(on(first, s.pod("reader", claimed("data"), checkData(sum)...)))
			s.grows(first, volumePath(poolOfOne, s.bound("data").Name)+"/lines")
		}},
		step{"TheVolumeIsOfThatNode", func(s *scene) {
			pv := s.bound("data")
			if got := s.nodeOf(pv); got != first || len(pv.Spec.AccessModes) != 1 ||
				pv.Spec.AccessModes[0] != corev1.ReadWriteMany {
				s.t.Errorf("the volume is on %s with %v, want %s, ReadWriteMany", got, pv.Spec.AccessModes, first)
			}
			s.existsOnlyOn(first, volumePath(poolOfOne, pv.Name))
		}},
		step{"WithASecondNodeTheNextClaimIsRefused", func(s *scene) {
			label(s, second)
			s.create(many(s, "late"))
			s.create(on(first, s.pod("late", claimed("late"), writeData()...)))
			s.said("PersistentVolumeClaim", "late", "ProvisioningFailed", "pool "+poolOfOne+", which has sharedAccess",
				"2 nodes are selected: "+first+", "+second, "nodeSelector", "ask for ReadWriteOnce")
		}},
		step{"TheFirstKeepsWorking", func(s *scene) {
			s.grows(first, volumePath(poolOfOne, s.bound("data").Name)+"/lines")
			s.output(on(first, s.pod("reader-again", claimed("data"), checkData(sum)...)))
		}},
		step{"ReadWriteOnceGoesToBothNodes", func(s *scene) {
			for _, node := range []string{first, second} {
				s.create(s.claim(node, classOf(poolOfOne), "16Mi"))
				s.output(on(node, s.pod(node, claimed(node), writeData()...)))
			}
		}},
		// the refused one too, after csi-provisioner's five minutes
		step{"WithOneNodeAgainClaimsAreServed", func(s *scene) {
			s.kubectl("label", "node", second, ofOneLabel+"-")
			s.create(many(s, "again"))
			s.output(on(first, s.pod("again", claimed("again"), writeData()...)))
		}},
	)
}
