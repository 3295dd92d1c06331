package volume

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Two records with one number in the filesystem's quota are what is left of a volume that was copied by hand, or restored beside itself. The
// number, and the limit with it, is one volume's: what the other does must not change it.

// owns is nil where a volume's number is its own, or nothing is enforced on it; else it says whose the number is (ErrBroken).
func owns(p Pool, r Record) error {
	if !limited(p, r) {
		return nil
	}
	owner := p.Ledger().Owner(r.ProjectID)
	switch {
	case p.Ledger().Disclaimed(r.ProjectID):
		return fmt.Errorf("%w: volume %s has the number %d in the filesystem's quota, which pool %s does not give and to which other data counts: its record was "+
			"copied from another pool; copy the data of %s into a new volume and delete it", ErrBroken, r.ID, r.ProjectID, p.Name(), r.ID)
	case owner == "" || owner == r.ID:
		return nil
	}
	return fmt.Errorf("%w: volume %s has the number %d in the filesystem's quota, which is volume %s's: one was copied from the other; "+
		"copy the data of %s into a new volume and delete it", ErrBroken, r.ID, r.ProjectID, owner, r.ID)
}

// proves is owns after a look at the disk, where the pool does not give such numbers. It may have had another range once, or the volume was
// moved here: then its directory counts to the number, or nothing does. Otherwise the number is another pool's on the same filesystem.
func proves(p Pool, disk poolfs.FS, r Record) error {
	if err := owns(p, r); err != nil || !strange(p, r) {
		return err
	}
	quotas, ok := poolfs.QuotasOf(disk)
	if !ok {
		return nil
	}
	number, err := quotas.CountedBy(r.ID)
	if err != nil || number == r.ProjectID {
		return err
	}
	used, err := quotas.InUse(r.ProjectID)
	if err != nil {
		return fmt.Errorf("see what counts to number %d: %w", r.ProjectID, err)
	}
	if !used {
		return nil
	}
	p.Ledger().Disclaim(r.ProjectID)
	return owns(p, r)
}

// limited tells whether a volume is held to its size by the quota that its pool has on.
func limited(p Pool, r Record) bool {
	return r.ProjectID != 0 && r.Backend == p.Backend().Name() && p.Backend().Enforcement() != None
}

// strange tells whether such a volume has a number that the pool does not give.
func strange(p Pool, r Record) bool { return limited(p, r) && !p.Ledger().Gives(r.ProjectID) }

// DropLimit ends what the quota knows of a volume that is gone, so that its number can go to another. A limit that is another's as well stays.
// EBUSY where the filesystem is not done with it yet.
func DropLimit(p Pool, disk poolfs.FS, r Record) error {
	others := p.Ledger().Shared(r.ProjectID, r.ID)
	if quotas, ok := poolfs.QuotasOf(disk); ok && !others && strange(p, r) { // in doubt it is what is still being removed of this one, which needs no limit
		var err error
		if others, err = quotas.InUse(r.ProjectID); err != nil {
			return fmt.Errorf("see what counts to number %d: %w", r.ProjectID, err)
		}
	}
	if !others {
		if err := p.Backend().Drop(disk, r); err != nil {
			return err
		}
	}
	p.Ledger().Free(r.ProjectID, r.ID)
	return nil
}

// enrol takes a volume into the ledger that was not there when the pool was recovered: somebody has put it there since.
func enrol(l located) {
	if _, known := l.pool.Ledger().Get(l.ID); !known {
		l.pool.Ledger().Put(l.Record)
	}
}

// hold makes the limit of a volume what its record says, where that is its own to say.
func hold(p Pool, disk poolfs.FS, r Record) error {
	if err := proves(p, disk, r); err != nil {
		return err
	}
	return p.Backend().Hold(disk, r.ID, r)
}

// HoldOwner sets the limit of the volume whose number it is, where there is none any more: one that has another may be growing. What cannot be
// held at all is left to recovery and Publish, which say what to do about it.
func HoldOwner(p Pool, disk poolfs.FS, number uint32) error {
	r, ok := p.Ledger().Get(p.Ledger().Owner(number))
	quotas, hasQuota := poolfs.QuotasOf(disk)
	if !ok || !hasQuota || !limited(p, r) {
		return nil
	}
	if a, err := quotas.Account(number); err != nil || a.Limit != (poolfs.Limit{}) {
		return err
	}
	err := hold(p, disk, r)
	if errors.Is(err, ErrBroken) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// takeIn puts volumes that have data into a pool's ledger, and sees to the limits of those that are in no trouble already.
func (m *Manager) takeIn(p Pool, disk poolfs.FS, records []Record, report *Report) {
	ranked(disk, records)
	for _, r := range records {
		p.Ledger().Put(r)
	}
	for _, r := range records {
		if slices.Contains(report.Uncleared, r.ID) {
			continue
		}
		if err := hold(p, disk, r); err != nil {
			m.Log.Error("a volume's limit cannot be held", logging.KeyID, r.ID, logging.KeyPool, p.Name(), logging.KeyError, err)
			report.Unheld = append(report.Unheld, r.ID)
		}
	}
}

// ranked sorts records so that of those with one number that volume comes first whose directory counts to it. Where that is true of
// several or of none, the older one is the original.
func ranked(disk poolfs.FS, records []Record) {
	byNumber := map[uint32]int{}
	for _, r := range records {
		byNumber[r.ProjectID]++
	}
	quotas, hasQuota := poolfs.QuotasOf(disk)
	strays := map[string]int{}
	for _, r := range records {
		if r.ProjectID == 0 || byNumber[r.ProjectID] == 1 || !hasQuota {
			continue
		}
		if number, err := quotas.CountedBy(r.ID); err != nil || number != r.ProjectID {
			strays[r.ID] = 1
		}
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(strays[a.ID]-strays[b.ID], a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}
