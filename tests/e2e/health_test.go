package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// healthGate is the feature gate with which kubelets ask for the health of volumes (KEP-1432).
	healthGate = "CSIVolumeHealth"
	// healthSince is the first Kubernetes whose kubelet has the RPCs of CSI 1.13; before, the gate meant another thing.
	healthSince = "1.37.0"
	// healthTimeout is three times the kubelet's period, which is its volumeStatsAggPeriod of a minute.
	healthTimeout = 3 * time.Minute
	healthAsked   = `grpc_server_handled_total{grpc_code="OK",grpc_method="NodeGetVolumeHealth",` +
		`grpc_service="csi.v1.Node",grpc_type="unary"}`
)

func TestKubeletAsksForVolumeHealth(t *testing.T) {
	node := world.workers[1]
	parallel(t, "the kubelet asks for the health of a volume in use, and is answered",
		step{"VolumeIsInUse", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "16Mi"))
			s.create(on(node, s.pod("user", claimed("data"), "sleep")))
			s.running("user")
		}},
		step{"KubeletAsks", func(s *scene) {
			before, ok := s.metric(node, healthAsked)
			if !ok {
				s.t.Fatalf("the driver on %s has no metric %s", node, healthAsked)
			}
			if has := s.kubeletVersion(node); !has.AtLeast(version.MustParseGeneric(healthSince)) {
				s.t.Logf("kubelet %s on %s does not ask; those from %s on do", has, node, healthSince)
				if before != 0 {
					s.t.Errorf("it asked %g times: healthSince is wrong", before)
				}
				return
			}
			if !s.kubeletGates(node)[healthGate] {
				s.t.Fatalf(
					"the gate %s of the kubelet on %s is off; tests/cluster/kindcluster is to make clusters with it on",
					healthGate, node)
			}
			// Pods of other features may have been asked about already: one more call than now is the proof.
			s.within(healthTimeout, fmt.Sprintf("the kubelet on %s has asked more than %g times", node, before),
				func() (bool, string) {
					now, _ := s.metric(node, healthAsked)
					return now > before, fmt.Sprintf("%g times", now)
				})
		}},
	)
}

func (s *scene) kubeletVersion(node string) *version.Version {
	s.t.Helper()
	var n corev1.Node
	s.must(s.api.Get(s.ctx, node, "", &n))
	v, err := version.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
	s.must(err)
	return v
}

// kubeletGates are the feature gates that a kubelet's configuration sets.
func (s *scene) kubeletGates(node string) map[string]bool {
	s.t.Helper()
	var served struct {
		Config struct {
			FeatureGates map[string]bool `json:"featureGates"`
		} `json:"kubeletconfig"`
	}
	s.must(json.Unmarshal([]byte(s.raw("/api/v1/nodes/"+node+"/proxy/configz")), &served))
	return served.Config.FeatureGates
}
