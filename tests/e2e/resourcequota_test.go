package e2e

import (
	"strings"
	"testing"
)

// TestResourceQuota applies what docs/how-to/resource-quota.md prints.
func TestResourceQuota(t *testing.T) {
	limited, excluded := classOf(poolLocal), classOf(poolBurst)
	parallel(t, "a namespace claims no more than its ResourceQuota and its LimitRange let it",
		step{"Claims", func(s *scene) {
			limits := strings.NewReplacer(
				"team-a", s.namespace, "fast", limited, "class `bulk`", "class", "bulk", excluded,
				"100Gi", "32Mi", "50Gi", "24Mi", `snapshot.storage.k8s.io: "20"`, `snapshot.storage.k8s.io: "0"`,
			).Replace(s.fenced("how-to/resource-quota.md", "yaml")[0])
			s.apply(limits)
			s.eventually("the quota is known", func() (bool, string) {
				used := s.kubectl("get", "resourcequota", "storage", "--namespace", s.namespace,
					"-o", "jsonpath={.status.used}")
				return used != "", used
			})
			s.create(s.claim("first", limited, "16Mi"))
			for _, claim := range []struct{ class, size, why string }{
				{limited, "24Mi", "exceeded quota"},
				{excluded, "16Mi", "exceeded quota"},
				{limited, "8Mi", "minimum storage"},
				{limited, "48Mi", "maximum storage"},
			} {
				err := s.api.Create(s.ctx, s.claim("second", claim.class, claim.size))
				if err == nil || !strings.Contains(err.Error(), claim.why) {
					s.t.Errorf("%s of %s: %v, want %q", claim.size, claim.class, err, claim.why)
				}
			}
			s.create(s.claim("second", limited, "16Mi"))
		}},
		step{"Snapshots", func(s *scene) {
			said := s.bash(`kubectl apply --filename - 2>&1 <<-EOF || true
				{apiVersion: ` + snapshotGroup + `/v1, kind: VolumeSnapshot, metadata: {name: first},
				spec: {source: {persistentVolumeClaimName: first}}}
				EOF`)
			if !strings.Contains(said, "exceeded quota") {
				s.t.Errorf("a snapshot was made past its quota: %s", said)
			}
		}},
		step{"Growth", func(s *scene) {
			s.output(s.pod("writer", claimed("first"), writeData()...))
			said := s.bash(`kubectl patch pvc first 2>&1 \
				--patch '{"spec":{"resources":{"requests":{"storage":"20Mi"}}}}' || true`)
			if !strings.Contains(said, "exceeded quota") {
				s.t.Errorf("a claim grew past its quota: %s", said)
			}
		}},
	)
}
