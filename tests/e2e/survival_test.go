package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
			s.killDriver(node)
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
			s.growsAfterRestart(node, volumePath(poolLocal, volume)+"/lines")
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
