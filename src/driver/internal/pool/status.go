package pool

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Status is the state of every pool, those that the configuration does not have last.
func (s *Set) Status() []nodeapi.PoolStatus {
	var all []nodeapi.PoolStatus
	for _, p := range s.pools {
		if !p.ended() {
			all = append(all, p.status())
		}
	}
	for name, m := range s.abandoned() {
		all = append(all, nodeapi.PoolStatus{
			Name: name, Path: m.Path, State: nodeapi.StateAbsent, Used: true, Reason: nodeapi.ReasonNotConfigured,
			Message: notConfigured(name), Since: s.started,
		})
	}
	return all
}

// status is what the pool is now, and since when.
func (p *Pool) status() nodeapi.PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.describe(p.state)
	p.date(&st)
	p.shown = st
	return st
}

// describe is status without the times of changes.
func (p *Pool) describe(s state) nodeapi.PoolStatus {
	st := nodeapi.PoolStatus{
		Name: p.spec.Name, Path: p.spec.Path, Selected: p.ledger.Selected(), ID: s.id, Configured: !p.left,
		Used: p.set.remembered(p.spec.Name).Used(), Reason: s.now.Reason, Message: p.why(s.now), Inline: p.spec.Inline,
		Shared: p.shared(), Waiting: s.now.Reason == guard.IdentityUnknown, NodeDirs: s.otherNodes,
		Backend: s.backend.Name, Enforcement: string(s.backend.Enforcement), EnforcementLost: s.lost,
		EnforcementReason: s.backend.Reason,
		Seen:              s.seen, TrashEntries: s.trash.Entries, OldestTrash: s.trash.Oldest, TrashDue: s.trash.Due,
	}
	st.State = stateOf(st)
	if !st.Served() {
		return st
	}
	st.Size, st.Free, st.ReadOnly, st.WithOS = s.space.Size, s.space.Free, s.space.ReadOnly, s.withOS
	st.Reserve = p.spec.Reserve.Of(s.space.Size)
	t := p.ledger.Totals(s.space)
	if st.Reason, st.Message = s.trouble(t.Closed); st.Reason == "" && p.left {
		st.Reason, st.Message = nodeapi.ReasonNotConfigured, p.served()
	}
	st.Volumes, st.Promised, st.Uncounted = t.Volumes, t.Promised, t.Uncounted
	st.Growable, st.Allocatable = t.Growable, t.Largest
	// Of what recovery found in trouble, that which was not deleted since.
	lost, uncleared := p.ledger.Known(s.report.Lost), p.ledger.Known(s.report.Uncleared)
	st.Lost, st.Refused, st.Untracked = len(lost), t.Refused+len(uncleared), len(s.report.Untracked)
	st.Warnings = p.warnings(s, lost, uncleared)
	return st
}

// stateOf is what a pool is, in a word or two.
func stateOf(p nodeapi.PoolStatus) string {
	switch {
	case p.ID != "" && !p.Configured:
		return nodeapi.StateNotConfigured
	case p.ID != "":
		return nodeapi.StatePresent
	case !p.Selected && !p.Used:
		return nodeapi.StateNotSelected
	default:
		return nodeapi.StateAbsent
	}
}

// trouble says what is wrong with a present pool, the gravest first; "" where nothing is.
func (s state) trouble(closed string) (reason, message string) {
	switch {
	case s.space.ReadOnly:
		return nodeapi.ReasonReadOnly, "its filesystem is read-only: volumes can be read, and none can be made or " +
			"deleted; find out why in the node's kernel log"
	case closed != "":
		return nodeapi.ReasonNoNewVolumes, closed
	case s.lost:
		return nodeapi.ReasonEnforcementLost, "nothing keeps volumes to their size any more: " + s.backend.Reason
	default:
		return "", ""
	}
}

// Capacity is what volumes of a pool may grow by, and the largest volume that could be made there, in bytes. That is 0
// where none can be made. Both are 0 where a quota that is required is off, because volumes do not grow there either,
// and where the pool is absent or unknown, because an error would leave an old figure standing in the cluster.
func (s *Set) Capacity(name string) (growable, largest int64) {
	if p := s.find(name); p != nil && !p.hangs() {
		if known := p.known(); known.id != "" {
			t := p.ledger.Totals(known.space)
			return t.Growable, t.Largest
		}
	}
	return 0, 0
}

// Untracked gives the directories that no record names, by pool.
func (s *Set) Untracked() map[string][]string {
	found := map[string][]string{}
	for _, p := range s.pools {
		if known := p.known(); known.id != "" && len(known.report.Untracked) > 0 {
			found[p.spec.Name] = known.report.Untracked
		}
	}
	return found
}
