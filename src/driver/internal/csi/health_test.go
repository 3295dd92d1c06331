package csi

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func TestPoolHealth(t *testing.T) {
	in := func(state, reason, message string) nodeapi.PoolStatus {
		return nodeapi.PoolStatus{Name: "local", State: state, Selected: true, Reason: reason, Message: message}
	}
	present := func(reason, message string) nodeapi.PoolStatus { return in(nodeapi.StatePresent, reason, message) }
	absent := in(nodeapi.StateAbsent, "MarkerMissing", "no marker")
	left := in(nodeapi.StateNotConfigured, nodeapi.ReasonNotConfigured, "put it back")
	lost := present(nodeapi.ReasonEnforcementLost, "the driver may not set limits")
	closed := present(nodeapi.ReasonNoNewVolumes, "quota is required and the driver may not set limits")
	lost.EnforcementLost, closed.EnforcementLost = true, true
	unusable := present(nodeapi.ReasonNoNewVolumes, "no room")
	unusable.Lost = 1
	for name, test := range map[string]struct {
		is        nodeapi.PoolStatus
		condition volume.Condition
		reason    string
	}{
		"present":                    {present("", ""), volume.Healthy, "Healthy"},
		"absent":                     {absent, volume.Inaccessible, "MarkerMissing"},
		"enforcement lost":           {lost, volume.Degraded, "EnforcementLost"},
		"the same where required":    {closed, volume.Degraded, nodeapi.ReasonNoNewVolumes},
		"read-only":                  {present(nodeapi.ReasonReadOnly, "read-only"), volume.Degraded, "ReadOnly"},
		"no volume can be made":      {present(nodeapi.ReasonNoNewVolumes, "no room"), volume.Degraded, "NoNewVolumes"},
		"not configured any more":    {left, volume.Healthy, "Healthy"},
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
