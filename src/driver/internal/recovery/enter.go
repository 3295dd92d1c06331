package recovery

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Fill empties a ledger and fills it with what recovery found. It closes the ledger where no volume may be made.
func (r Result) Fill(l *ledger.Ledger, spec poolspec.Pool, b quota.Backend) {
	l.Reset(b.Enforces())
	closed := ""
	if spec.Quota == poolspec.QuotaRequired && !b.Enforces() {
		closed = "quota is required and sizes cannot be enforced: " + b.Reason
	}
	if len(r.Unknown) > 0 && (b.Enforces() || spec.Overcommit > 0) {
		closed = fmt.Sprintf("nobody knows what was promised to volumes whose records cannot be used: %s; restore the "+
			"records or move the volumes away", guard.Abridge(r.Unknown))
	}
	for id, v := range r.Volumes {
		l.Put(id, v)
	}
	l.Close(closed)
}

// Enter takes one volume into a ledger as it is on the disk now, and sees that its limit is that of its record. What
// was promised to it stays promised after an error.
func Enter(l *ledger.Ledger, limits quota.Limits, b quota.Backend, r records.Record) (ledger.Volume, error) {
	v := Volume(r)
	var err error
	if r.QuotaID != 0 && b.Enforces() && r.Backend == b.Name {
		var state quota.State
		state, err = limits.Check(r.ID, r.QuotaID)
		owner := l.Owner(r.QuotaID)
		v.Counted = err == nil && state.ID == r.QuotaID && (owner == "" || owner == r.ID)
		v.Doubtful = err != nil
		if v.Counted && state.Limit != r.Limit() {
			err = limits.Set(r.ID, r.QuotaID, r.Limit())
		}
	}
	l.Put(r.ID, v)
	return v, err
}
