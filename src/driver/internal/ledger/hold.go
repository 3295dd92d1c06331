package ledger

import "github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"

// Limit is what may count to the volume's ID.
func (v Volume) Limit() quota.Limit { return quota.Limit{Bytes: v.Bytes + v.Held, Inodes: v.Inodes} }

// Pinned is the most that one copy keeps charged to an ID, in bytes; 0 where none keeps anything.
func (l *Ledger) Pinned(id quota.ID) (bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.volumes {
		bytes = max(bytes, quota.Pinned(v.Pins, id))
	}
	return bytes
}

// Uses reports whether a volume counts to an ID, or a copy keeps something charged to it.
func (l *Ledger) Uses(id quota.ID) bool { return l.Owner(id) != "" || l.Pinned(id) > 0 }

// Owner is the volume whose directory counts to an ID, "" where none does.
func (l *Ledger) Owner(id quota.ID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owners[id]
}

// CopyOf is a copy of a source that is not whole, "" where there is none.
func (l *Ledger) CopyOf(source string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.copies == 0 {
		return ""
	}
	for id, v := range l.volumes {
		if v.Filling == source {
			return id
		}
	}
	return ""
}
