package app

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// pools shows a set of pools to package csi.
type pools struct{ *pool.Set }

// Health is the health of every pool that this node uses or should use.
func (p pools) Health() []csi.PoolHealth {
	var all []csi.PoolHealth
	for _, s := range p.Status() {
		if s.Selected || s.Used { // the others are no business of this node
			all = append(all, csi.PoolHealth{Pool: s.Name, Health: poolHealth(s)})
		}
	}
	return all
}

func poolHealth(s pool.Status) volume.Health {
	switch {
	case !s.Present:
		return volume.Health{Condition: volume.Inaccessible, Reason: s.Reason, Message: s.Message}
	case s.Lost > 0 || s.Refused > 0:
		return volume.Health{
			Condition: volume.Degraded, Reason: "VolumesUnusable",
			Message: fmt.Sprintf("%d volumes have lost their data, %d have a record or directory that cannot be used or a "+
				"limit that cannot be removed; the driver's log names them", s.Lost, s.Refused),
		}
	case s.Reason != "":
		return volume.Health{Condition: volume.Degraded, Reason: s.Reason, Message: s.Message}
	default:
		return volume.Health{Condition: volume.Healthy, Reason: "Healthy"}
	}
}
