package app

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func TestPoolHealth(t *testing.T) {
	lost := localPool(true, pool.EnforcementLost, "the driver may not set limits")
	closed := localPool(true, pool.NoNewVolumes, "quota is required and the driver may not set limits")
	lost.EnforcementLost, closed.EnforcementLost = true, true
	unusable := localPool(true, pool.NoNewVolumes, "no room")
	unusable.Lost = 1
	for name, test := range map[string]struct {
		is        pool.Status
		condition volume.Condition
		reason    string
	}{
		"present":                    {localPool(true, "", ""), volume.Healthy, "Healthy"},
		"absent":                     {localPool(false, "MarkerMissing", "no marker"), volume.Inaccessible, "MarkerMissing"},
		"enforcement lost":           {lost, volume.Degraded, "EnforcementLost"},
		"the same where required":    {closed, volume.Degraded, pool.NoNewVolumes},
		"read-only":                  {localPool(true, pool.ReadOnly, "read-only"), volume.Degraded, "ReadOnly"},
		"no volume can be made":      {localPool(true, pool.NoNewVolumes, "no room"), volume.Degraded, pool.NoNewVolumes},
		"not configured any more":    {localPool(true, pool.NotConfigured, "put it back"), volume.Healthy, "Healthy"},
		"no data, which comes first": {unusable, volume.Degraded, "VolumesUnusable"},
	} {
		got := poolHealth(test.is)
		if got.Condition != test.condition || got.Reason != test.reason {
			t.Errorf("%s: %+v, want %+v", name, got, test)
		}
		if test.reason == test.is.Reason && got.Message != test.is.Message {
			t.Errorf("%s: says %q, want what the pool says: %q", name, got.Message, test.is.Message)
		}
	}
}
