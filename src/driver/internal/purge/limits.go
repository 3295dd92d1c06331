package purge

import (
	"errors"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// whileBusy is how soon a limit is tried again to which the filesystem counts removed data, and busyTimeout after how
// long it is left for good: something else counts to it, or the kernel has lost it.
const whileBusy, busyTimeout = 5 * time.Second, 10 * time.Minute

// removeLimits removes the limit of a volume whose data is gone, and those of others that are gone and that it kept
// something charged to as their copy. What stays busy is left: something else counts to it.
func (w *Worker) removeLimits(j job, r store.Record) (done bool, err error) {
	ids := []quota.ID{r.QuotaID}
	for _, pin := range r.Pins {
		ids = append(ids, pin.ID)
	}
	done = true
	for _, id := range ids {
		if id == 0 || w.volumes.Uses(id) {
			done = done && w.volumes.Owner(id) != j.entry.ID // else its delete has yet to end
			continue
		}
		err := j.limits.Set("", id, quota.Limit{})
		if errors.Is(err, syscall.EBUSY) {
			var shared bool
			shared, err = sharedInTrash(j, id)
			done = done && shared
		}
		if err != nil {
			return false, err
		}
	}
	return done || w.tired(j.entry.Name, r), nil
}

// sharedInTrash reports whether another entry's purge removes the limit of an ID.
func sharedInTrash(j job, id quota.ID) (bool, error) {
	entries, err := store.ListTrash(j.disk)
	for _, e := range entries {
		if e.Name == j.entry.Name {
			continue
		}
		r, err := store.ReadTrashed(j.disk, e.Name)
		if err == nil && (r.QuotaID == id || quota.Pinned(r.Pins, id) > 0) {
			return true, nil
		}
	}
	return false, err
}

// tired reports whether a limit was busy for so long that it is left, and has it tried again before that.
func (w *Worker) tired(entry string, r store.Record) bool {
	boot := w.clock.boot()
	if _, ok := w.busy[entry]; !ok {
		w.busy[entry] = boot
	}
	if boot-w.busy[entry] < busyTimeout {
		w.waiting[entry] = boot + whileBusy
		return false
	}
	w.log.Warn("a purged volume's limit is left on the filesystem, because something else counts to its ID",
		logging.KeyID, r.ID, logging.KeyQuotaID, uint64(r.QuotaID))
	return true
}
