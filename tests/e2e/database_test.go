package e2e

import (
	"strings"
	"testing"
)

// TestDatabase runs the StatefulSet of docs/how-to/databases.md, without a database in it.
func TestDatabase(t *testing.T) {
	const page = "how-to/databases.md"
	parallel(t, "the replicas of a StatefulSet have volumes on nodes of their own, and one gives its volume up",
		step{"ReplicasAreSpread", func(s *scene) {
			set := strings.NewReplacer(
				"replicas: 3", "replicas: 2", "…", s.image("selftest")+"\n          args: [sleep]",
				"fast", classOf(poolLocal), "100Gi", "16Mi",
			).Replace(s.fenced(page, "yaml")[0])
			s.bash("kubectl apply -f - <<'EOF'\n" + set + "EOF\n")
			if first, second := s.running("pg-0").Spec.NodeName, s.running("pg-1").Spec.NodeName; first == second {
				s.t.Errorf("both replicas are on %s", first)
			}
		}},
		step{"AReplicaGivesItsVolumeUp", func(s *scene) {
			volume := s.bound("data-pg-1").Name
			s.typed(page, "delete pvc data-pg-1")
			s.gone(volume)
			s.running("pg-1")
			if now := s.bound("data-pg-1").Name; now == volume {
				s.t.Errorf("the replica has volume %s again", now)
			}
		}},
	)
}
