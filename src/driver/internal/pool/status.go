package pool

import (
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Status is a pool as metrics, health and `driver status` show it. Sizes are in bytes.
type Status struct {
	Name, Path string
	Present    bool
	Selected   bool
	Remembered bool // by this node only: the configuration no longer holds the pool
	Unchecked  bool // not looked at yet, since the driver started
	Aside      bool // not selected here, and never used before
	// Reason and Message say why the pool cannot be used, or, where it is present, what is wrong with it and what to do; else "".
	Reason      string
	Message     string
	ID          string
	Backend     string
	Enforcement string
	// EnforcementLost tells that volumes were made here while a quota was on that is off now.
	EnforcementLost bool
	// CountsWrong tells that the filesystem's quota has lost count, or is being counted again: sizes may not be enforced meanwhile.
	CountsWrong bool
	Inline      bool
	// SharedWithOS tells whether the pool is on a filesystem of Config.OSPaths; nil where that cannot be seen.
	SharedWithOS *bool

	Size, Free, Promised            int64
	Available                       int64 // for one new volume
	Volumes, Orphans, Lost, Refused int
	TrashEntries                    int
	OldestTrash                     time.Time
}

// Status is the state of every pool, those that only this node remembers last.
func (s *Set) Status() []Status {
	var all []Status
	for _, p := range s.pools {
		all = append(all, p.status())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, m := range s.memory {
		all = append(all, Status{Name: name, Path: m.Path, ID: m.ID, Remembered: true, Reason: "NotConfigured", Message: takenOut(name)})
	}
	return all
}

func (p *Pool) status() Status {
	st := p.glance()
	disk := p.open()
	if disk == nil {
		return st
	}
	defer func() { _ = disk.Close() }()
	space, err := disk.Space()
	if err != nil {
		p.set.Log.Warn("cannot read a pool's free space", logging.KeyPool, p.spec.Name, logging.KeyError, err)
		return st
	}
	st.SharedWithOS = p.sharedWithOS(disk)
	st.Size, st.Free = space.Size, space.Free
	t := p.ledger.totals(space)
	st.Volumes, st.Promised, st.Available = t.volumes, t.promised, t.largest
	return st
}

// sharedWithOS looks anew each time: a disk may be mounted over the kubelet's directory as well as over the pool's.
func (p *Pool) sharedWithOS(disk poolfs.FS) *bool {
	info, err := disk.Stat(".")
	var shared bool
	if err == nil {
		shared, err = p.set.isOn(info.Dev, p.set.OSPaths)
	}
	if err != nil {
		p.set.Log.Warn("cannot see whether a pool shares its filesystem with the operating system", logging.KeyPool, p.spec.Name, logging.KeyError, err)
		return nil
	}
	return &shared
}

// Glance is the state of every configured pool, without sizes and without a look at any disk: one that hangs holds up nobody.
func (s *Set) Glance() []Status {
	all := make([]Status, 0, len(s.pools))
	for _, p := range s.pools {
		all = append(all, p.glance())
	}
	return all
}

// Changed receives when Glance has something new to tell. It has one listener.
func (s *Set) Changed() <-chan struct{} { return s.changed }

// Reasons of a present pool that something is wrong with.
const (
	NoNewVolumes      = "NoNewVolumes"      // none can be made for now
	EnforcementLost   = "EnforcementLost"   // nothing keeps volumes to their size any more
	QuotaInconsistent = "QuotaInconsistent" // nothing does until the filesystem has counted again
)

// glance is the status without a look at the disk.
func (p *Pool) glance() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Status{
		Name: p.spec.Name, Path: p.spec.Path, Present: p.id != "", Selected: p.ledger.isSelected(), ID: p.id,
		Unchecked: p.now.reason == notChecked, Aside: p.now.action == stayAside,
		Reason: p.now.reason, Message: p.now.message, Inline: p.spec.Inline,
		Backend: p.quota.Name(), Enforcement: string(p.quota.Enforcement()), EnforcementLost: p.quota.lost,
		CountsWrong: p.miscounts(),
		Orphans:     len(p.orphans), Lost: p.still(p.report.Lost), Refused: len(p.report.Refused) + p.still(p.report.Unheld) + p.still(p.report.Uncleared),
	}
	st.TrashEntries, st.OldestTrash = p.trash.Entries, p.trash.Oldest
	if st.Present {
		st.Reason, st.Message = p.ailment()
	}
	return st
}

// ailment says what is wrong with a present pool, the gravest first; "" where nothing is. p.mu is held.
func (p *Pool) ailment() (reason, message string) {
	closed := p.ledger.whyClosed() // holds why enforcement was lost, where that is the reason
	switch {
	case closed != "":
		return NoNewVolumes, closed
	case p.quota.lost:
		return EnforcementLost, "nothing keeps volumes to their size any more: " + p.quota.why
	case p.miscounts():
		return QuotaInconsistent, "the filesystem's quota has lost count and is counted again: nothing keeps volumes to their size meanwhile; " +
			"use simple quota, which does not lose count"
	default:
		return "", ""
	}
}

// still counts the volumes that recovery found in trouble and that were not deleted since. p.mu is held.
func (p *Pool) still(ids []string) (n int) {
	for _, id := range ids {
		if _, ok := p.ledger.Get(id); ok {
			n++
		}
	}
	return n
}
