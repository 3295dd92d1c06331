package pool

import (
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
	Shared          bool `json:"shared,omitempty"` // its volumes are on all nodes
	// Rooms are the other nodes that have something of their own in a shared pool.
	Rooms []string `json:"-"`
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
	Untracked    int       `json:"untracked"` // directories without a record
	TrashEntries int       `json:"trash"`
	OldestTrash  time.Time `json:"oldestTrash,omitzero"`
	TrashDue     time.Time `json:"trashDue,omitzero"` // since when a deleted volume should be gone and is not
	Reserve      int64     `json:"reserve"`           // bytes that volumes are never promised
}

// Status is the state of every pool, those that the configuration does not have last.
func (s *Set) Status() []Status {
	var all []Status
	for _, p := range s.pools {
		if !p.ended() {
			all = append(all, p.status())
		}
	}
	for name, m := range s.abandoned() {
		all = append(all, Status{
			Name: name, Path: m.Path, Used: true, Reason: NotConfigured, Message: notConfigured(name),
		})
	}
	return all
}

func (p *Pool) status() Status {
	s := p.known()
	st := Status{
		Name: p.spec.Name, Path: p.spec.Path, Present: s.id != "", Selected: p.ledger.Selected(), ID: s.id,
		Configured: !p.left,
		Used:       p.set.remembered(p.spec.Name).Used(), Unchecked: s.now.Reason == notChecked,
		Aside: s.now.Action == guard.StayAside, Reason: s.now.Reason, Message: p.why(s.now), Inline: p.spec.Inline,
		Shared: p.shared(), Rooms: s.rooms,
		Backend: s.backend.Name, Enforcement: string(s.backend.Enforcement), EnforcementLost: s.lost,
		Seen: s.seen, TrashEntries: s.trash.Entries, OldestTrash: s.trash.Oldest, TrashDue: s.trash.Due,
	}
	if !st.Present {
		return st
	}
	st.Size, st.Free, st.ReadOnly, st.WithOS = s.space.Size, s.space.Free, s.space.ReadOnly, s.withOS
	st.Reserve = p.spec.Reserve.Of(s.space.Size)
	t := p.ledger.Totals(s.space)
	if st.Reason, st.Message = s.trouble(t.Closed); st.Reason == "" && p.left {
		st.Reason, st.Message = NotConfigured, p.served()
	}
	st.Volumes, st.Promised, st.Allocatable, st.Uncounted = t.Volumes, t.Promised, t.Largest, t.Uncounted
	// Of what recovery found in trouble, that which was not deleted since.
	st.Lost, st.Refused = p.ledger.Count(s.report.Lost), t.Refused+p.ledger.Count(s.report.Uncleared)
	st.Untracked = len(s.report.Untracked)
	return st
}

// trouble says what is wrong with a present pool, the gravest first; "" where nothing is.
func (s state) trouble(closed string) (reason, message string) {
	switch {
	case s.space.ReadOnly:
		return ReadOnly, "its filesystem is read-only: volumes can be read, and none can be made or deleted; find out why " +
			"in the node's kernel log"
	case closed != "":
		return NoNewVolumes, closed
	case s.lost:
		return EnforcementLost, "nothing keeps volumes to their size any more: " + s.backend.Reason
	default:
		return "", ""
	}
}

// Capacity is the room in a pool, for growth too, and the largest volume that could be made there, in bytes. That is 0
// where none can be made. Both are 0 where a quota that is required is off, because volumes do not grow there either,
// and where the pool is absent or unknown, because an error would leave an old figure standing in the cluster.
func (s *Set) Capacity(name string) (room, largest int64) {
	if p := s.find(name); p != nil {
		if known := p.known(); known.id != "" {
			t := p.ledger.Totals(known.space)
			return t.Room, t.Largest
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
