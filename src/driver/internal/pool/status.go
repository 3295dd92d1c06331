package pool

import (
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
)

// Status is a pool as metrics, health and `driver status` show it, from memory: a pool that hangs keeps nobody waiting.
// Sizes are in bytes.
type Status struct {
	Name       string `json:"name"`
	Path       string `json:"path"`
	Present    bool   `json:"-"`
	Selected   bool   `json:"selected"` // this node makes new volumes in the pool
	Used       bool   `json:"used"`     // this node has used the pool before, whatever the configuration says now
	Configured bool   `json:"-"`
	Unchecked  bool   `json:"-"` // not looked at yet, since the driver started
	Aside      bool   `json:"-"` // not selected here, and never used before
	// Reason and Message say why the pool cannot be used, or, where it is present, what is wrong with it and what to do.
	Reason      string `json:"reason,omitempty"`
	Message     string `json:"message,omitempty"`
	ID          string `json:"id,omitempty"`
	Backend     string `json:"backend,omitempty"`
	Enforcement string `json:"enforcement,omitempty"`
	// EnforcementLost reports that volumes were made here while a quota was on that is off now.
	EnforcementLost bool `json:"enforcementLost,omitempty"`
	ReadOnly        bool `json:"readOnly,omitempty"`
	Inline          bool `json:"inline"`
	// WithOS reports whether the pool is on a filesystem of Config.OSPaths; nil where that cannot be seen.
	WithOS *bool `json:"withOS,omitempty"`
	// Seen is when the disk was last looked at.
	Seen time.Time `json:"seen,omitzero"`

	Size         int64     `json:"size"`
	Free         int64     `json:"free"`
	Promised     int64     `json:"promised"`
	Allocatable  int64     `json:"allocatable"` // largest new volume
	Volumes      int       `json:"volumes"`
	Lost         int       `json:"lost"`
	Refused      int       `json:"refused"`
	Uncounted    int       `json:"uncounted"`
	Orphans      int       `json:"orphans"`
	Elsewhere    int       `json:"elsewhere"`
	TrashEntries int       `json:"trash"`
	OldestTrash  time.Time `json:"oldestTrash,omitzero"`
}

// Reasons of a present pool that something is wrong with.
const (
	NoNewVolumes    = "NoNewVolumes"    // none can be made for now
	ReadOnly        = "ReadOnly"        // the filesystem is
	EnforcementLost = "EnforcementLost" // nothing keeps volumes to their size any more
)

// Status is the state of every pool, those that the configuration does not have last.
func (s *Set) Status() []Status {
	var all []Status
	for _, p := range s.pools {
		all = append(all, p.status())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, m := range s.memory {
		if !m.Forgotten {
			all = append(all, Status{
				Name: name, Path: m.Path, ID: m.ID, Used: true, Reason: "NotConfigured", Message: notConfigured(name),
			})
		}
	}
	return all
}

func (p *Pool) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Status{
		Name: p.spec.Name, Path: p.spec.Path, Present: p.id != "", Selected: p.ledger.Selected(), ID: p.id, Configured: true,
		Used:      p.memoryErr != nil || (p.remembered != nil && p.remembered.ID != ""),
		Unchecked: p.now.Reason == notChecked, Aside: p.now.Action == guard.StayAside,
		Reason: p.now.Reason, Message: p.now.Message, Inline: p.spec.Inline,
		Backend: p.backend.Name, Enforcement: string(p.backend.Enforcement), EnforcementLost: p.lost,
		Seen: p.seen.at, TrashEntries: p.seen.trash.Entries, OldestTrash: p.seen.trash.Oldest,
		Orphans: len(p.orphans.unnamed), Elsewhere: len(p.orphans.other),
	}
	if !st.Present {
		return st
	}
	st.Reason, st.Message = p.trouble()
	st.Size, st.Free, st.ReadOnly, st.WithOS = p.seen.space.Size, p.seen.space.Free, p.seen.space.ReadOnly, p.seen.withOS
	t := p.ledger.Totals(p.seen.space)
	st.Volumes, st.Promised, st.Allocatable, st.Uncounted = t.Volumes, t.Promised, t.Largest, t.Uncounted
	st.Lost, st.Refused = p.there(p.report.Lost), t.Refused+p.there(p.report.Uncleared)
	return st
}

// trouble says what is wrong with a present pool, the gravest first; "" where nothing is. It needs p.mu.
func (p *Pool) trouble() (reason, message string) {
	closed := p.ledger.Closed()
	switch {
	case p.seen.space.ReadOnly:
		return ReadOnly, "its filesystem is read-only: volumes can be read, and none can be made or deleted; find out why " +
			"in the node's kernel log"
	case closed != "":
		return NoNewVolumes, closed
	case p.lost:
		return EnforcementLost, "nothing keeps volumes to their size any more: " + p.backend.Reason
	default:
		return "", ""
	}
}

// there counts the volumes that recovery found in trouble and that were not deleted since. It needs p.mu.
func (p *Pool) there(ids []string) (n int) {
	for _, id := range ids {
		if _, ok := p.ledger.Get(id); ok {
			n++
		}
	}
	return n
}

// Capacity is the room in a pool, for growth too, and the largest volume that could be made there, in
// bytes. That is 0 where none can be made. Both are 0 where a quota that is required is off, because
// volumes do not grow there either, and where the pool is absent or unknown, because an error would leave
// an old figure standing in the cluster.
func (s *Set) Capacity(name string) (room, largest int64) {
	p := s.find(name)
	if p == nil {
		return 0, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == "" {
		return 0, 0
	}
	t := p.ledger.Totals(p.seen.space)
	if p.ledger.Closed() != "" && !p.backend.Enforces() {
		t.Room = 0
	}
	return t.Room, t.Largest
}

// Untracked gives the directories that no record names, by pool.
func (s *Set) Untracked() map[string][]string {
	found := map[string][]string{}
	for _, p := range s.pools {
		p.mu.Lock()
		if p.id != "" && len(p.report.Untracked) > 0 {
			found[p.spec.Name] = p.report.Untracked
		}
		p.mu.Unlock()
	}
	return found
}

// tracked takes a directory out of the report, which may be shared: it gets another list.
func (p *Pool) tracked(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Untracked = slices.DeleteFunc(
		slices.Clone(p.report.Untracked), func(other string) bool { return other == id },
	)
}
