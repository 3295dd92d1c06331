package pool

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// announceChanges tells what choosing the backend has changed on the filesystem.
func (p *Pool) announceChanges(found backend.Choice) {
	spec := p.spec
	if found.Enabled {
		p.set.Log.Warn("switched on the filesystem's quota; simple quota of btrfs keeps kernels before Linux 6.7 from mounting it",
			logging.KeyPool, spec.Name, logging.KeyPath, spec.Path, logging.KeyBackend, found.Name(), logging.KeyEnforcement, found.Enforcement())
		p.set.Events.Normal("QuotaEnabled", fmt.Sprintf("pool %s: %s quota was switched on at %s, as quota: required asks; enforcement: %s",
			spec.Name, found.Name(), spec.Path, found.Enforcement()))
	}
	for _, left := range found.Left {
		p.set.Log.Warn("took csi/, or directories of the driver in it, out of a project", logging.KeyPool, spec.Name, logging.KeyPath, spec.Path,
			logging.KeyProject, left.Number, logging.KeyBytes, left.Limit.Bytes, logging.KeyInodes, left.Limit.Inodes)
		if spec.Quota == poolspec.QuotaRequired {
			p.set.Events.Normal("ProjectLeft", fmt.Sprintf("pool %s: csi/ at %s, or a directory of the driver in it, was taken out of project %d (limits: %d bytes, %d inodes; 0 is none), as quota: required asks: volumes have limits of their own",
				spec.Name, spec.Path, left.Number, left.Limit.Bytes, left.Limit.Inodes))
		}
	}
}

// announceQuota tells that enforcement was lost, or is there again.
func (p *Pool) announceQuota(was, is quota) {
	if was.lost != is.lost {
		p.set.tellChanged()
	}
	switch {
	case is.lost && !was.lost:
		p.set.Log.Error("sizes are no longer enforced", logging.KeyPool, p.spec.Name, logging.KeyPath, p.spec.Path, logging.KeyReason, is.why)
		p.set.Events.Warning("EnforcementLost", fmt.Sprintf("pool %s: nothing keeps volumes to their size any more: %s", p.spec.Name, is.why))
	case was.lost && !is.lost:
		p.set.Log.Info("sizes are enforced again", logging.KeyPool, p.spec.Name, logging.KeyBackend, is.Name(), logging.KeyEnforcement, is.Enforcement())
		p.set.Events.Normal("EnforcementRestored", fmt.Sprintf("pool %s: enforcement of sizes: %s", p.spec.Name, is.Enforcement()))
	}
}
