package pool

import (
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// warnings are what somebody should know of a present pool. They name no volume that was deleted.
func (p *Pool) warnings(s state, lost, uncleared []string) []nodeapi.Warning {
	refused, uncounted := p.ledger.Troubled()
	why, wayOut := "the directory does not count to its volume's ID, because it was copied or restored, of: ",
		"; once no pod uses it: kubectl hpp enforce ID"
	if !s.backend.Enforces() {
		why, wayOut = "they were held to their sizes, and are not any more: ", "; "+s.backend.Reason
	}
	lacking := slices.DeleteFunc(slices.Clone(s.lacking), func(id string) bool {
		_, came := p.ledger.Get(id)
		return came
	})
	all := slices.Concat(
		about(nodeapi.WarningVolumeLost, "no directory for: ", lost, ""),
		about(nodeapi.WarningVolumeRefused, "the record or directory cannot be used of: ",
			append(refused, uncleared...), ""),
		about(nodeapi.WarningVolumeNotEnforced, why, uncounted, wayOut),
		about(nodeapi.WarningVolumesMissing,
			"adopted for its identity, without volumes that PersistentVolumes name: ", lacking, ""),
	)
	if s.remembersMissing {
		all = append(all, nodeapi.Warning{Reason: nodeapi.WarningPoolMountOptions, Message: p.spec.Path + " is " +
			"mounted without lookupcache=positive: this node remembers for up to a minute that a volume is not there " +
			"which another node has made since; add that mount option"})
	}
	return append(all, s.changes...)
}

// about is a warning about volumes, nothing where there are none.
func about(reason, says string, ids []string, wayOut string) []nodeapi.Warning {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return []nodeapi.Warning{{
		Reason: reason, Message: says + abridge.Names(ids) + wayOut, Volumes: ids[:min(len(ids), nodeapi.MaxWarned)],
	}}
}

// noteChange takes note of what the driver does to the filesystem.
func (p *Pool) noteChange(reason, message string) {
	p.update(func(s *state) {
		s.changes = append(slices.Clip(s.changes), nodeapi.Warning{Reason: reason, Message: message})
	})
}

// DropMissing ends the warning that a volume is missing: it was deleted.
func (s *Set) DropMissing(id string) {
	for _, p := range s.pools {
		p.update(func(s *state) { s.lacking = leaveOut(s.lacking, id) })
	}
}

// date says since when a status is what it is, and each warning what it was when it was shown last. It needs the lock.
func (p *Pool) date(st *nodeapi.PoolStatus) {
	before, now := p.shown, p.set.Now()
	if st.Since = before.Since; !isSame(*st, before) {
		st.Since = now
	}
	for i := range st.Warnings {
		w := &st.Warnings[i]
		w.Since = now
		for _, was := range before.Warnings {
			if was.Reason == w.Reason && slices.Equal(was.Volumes, w.Volumes) {
				w.Since = was.Since
			}
		}
	}
}

// isSame reports whether two statuses say the same, whatever they say of sizes and volumes.
func isSame(a, b nodeapi.PoolStatus) bool {
	return a.State == b.State && a.Reason == b.Reason && a.ID == b.ID && a.Enforcement == b.Enforcement &&
		a.EnforcementLost == b.EnforcementLost && a.ReadOnly == b.ReadOnly
}
