package app

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func TestPoolHealth(t *testing.T) {
	lost := localPool(true, "", "")
	lost.EnforcementLost = true
	miscounted := localPool(true, "", "")
	miscounted.CountsWrong = true
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
		"qgroups have lost count":    {miscounted, volume.Degraded, "QuotaInconsistent"},
		"no volume can be made":      {localPool(true, pool.NoNewVolumes, "no room"), volume.Degraded, pool.NoNewVolumes},
		"no data, which comes first": {unusable, volume.Degraded, "VolumesUnusable"},
	} {
		if got := poolHealth(test.is); got.Condition != test.condition || got.Reason != test.reason {
			t.Errorf("%s: %+v, want %+v", name, got, test)
		}
	}
}
