package pool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// announce logs a change of a pool's state and reports it on the Node. Messages may differ in what an error says.
func (p *Pool) announce(before, now guard.Decision) {
	same := before.Action == now.Action && before.Reason == now.Reason
	if same || (before.Action <= guard.Create && now.Action <= guard.Create) {
		return
	}
	p.set.changed()
	switch now.Action {
	case guard.Refuse:
		p.log.Error("pool is absent", logging.KeyReason, now.Reason, logging.KeyMessage, now.Message)
		p.warning("PoolAbsent", "%s: %s", now.Reason, now.Message)
	case guard.StayAside:
		p.log.Info("pool is not selected on this node")
	default:
		p.announcePresent()
	}
}

func (p *Pool) announcePresent() {
	p.mu.Lock()
	b, report := p.backend, p.report
	p.mu.Unlock()
	because := ""
	if b.Reason != "" {
		because = ", because " + b.Reason
	}
	p.log.Info("pool is present", logging.KeyBackend, b.Name, logging.KeyEnforcement, b.Enforcement,
		logging.KeyMessage, b.Reason)
	p.normal("PoolPresent", "%s can be used; enforcement of sizes: %s%s", p.spec.Path, b.Enforcement, because)
	if len(report.Lost) > 0 {
		p.log.Error("volumes have lost their data", logging.KeyVolumes, report.Lost)
		p.warning("VolumeLost", "no directory for: %s", abridge(report.Lost))
	}
	if bad := slices.Concat(report.Refused, report.Uncleared); len(bad) > 0 {
		p.warning("VolumeRefused", "the record or directory cannot be used of: %s", abridge(bad))
	}
	if len(report.Uncounted) > 0 {
		p.log.Warn("volumes are not held to their sizes", logging.KeyVolumes, report.Uncounted)
		p.warning("VolumeNotEnforced", "the directory does not count to its volume's ID, because it was copied or restored, "+
			"of: %s; once no pod uses it: driver volume enforce ID", abridge(report.Uncounted))
	}
	if len(report.Untracked) > 0 {
		p.log.Info("untracked directories are left alone unless a PersistentVolume names them",
			logging.KeyCount, len(report.Untracked))
	}
}

// announceEnforcement reports that enforcement was lost, or is there again.
func (p *Pool) announceEnforcement(was, is quota.Backend, lost bool) {
	p.set.changed()
	if lost {
		p.log.Error("sizes are no longer enforced", logging.KeyBackend, was.Name, logging.KeyReason, is.Reason)
		p.warning("EnforcementLost", "nothing keeps volumes to their size any more: %s", is.Reason)
		return
	}
	p.log.Info("sizes are enforced again", logging.KeyBackend, is.Name, logging.KeyEnforcement, is.Enforcement)
	p.normal("EnforcementRestored", "enforcement of sizes: %s", is.Enforcement)
}

func (p *Pool) announceReadOnly(readOnly bool) {
	p.set.changed()
	if readOnly {
		p.log.Error("the pool's filesystem is read-only")
		p.warning("PoolReadOnly", "the filesystem at %s is read-only; find out why in the node's kernel log", p.spec.Path)
		return
	}
	p.log.Info("the pool's filesystem is writable")
	p.normal("PoolWritable", "the filesystem at %s can be written to", p.spec.Path)
}

func (p *Pool) setOrphans(found orphans) {
	p.mu.Lock()
	was := p.orphans
	p.orphans = found
	p.mu.Unlock()
	if len(found.unnamed) > len(was.unnamed) {
		p.log.Warn("volumes that nothing in the cluster names", logging.KeyVolumes, found.unnamed)
		p.warning("VolumesOrphaned", "no PersistentVolume, and for inline volumes no pod, names: %s", abridge(found.unnamed))
	}
	if len(found.other) > len(was.other) {
		p.log.Warn("volumes that belong to other nodes", logging.KeyVolumes, found.other)
		p.warning("VolumesOfOtherNodes", "the PersistentVolume names another node: %s", abridge(found.other))
	}
}

func (p *Pool) normal(reason, format string, args ...any) {
	p.set.Events.Normal(reason, "pool "+p.spec.Name+": "+fmt.Sprintf(format, args...))
}

func (p *Pool) warning(reason, format string, args ...any) {
	p.set.Events.Warning(reason, "pool "+p.spec.Name+": "+fmt.Sprintf(format, args...))
}

// abridge lists the first few names.
func abridge(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
