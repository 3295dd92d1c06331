package volume

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// withInodes gives a record the inode limit that its size is worth, where its class names none. An inline volume gets
// no more than that, whatever its pod says: the class is the admin's.
func withInodes(b quota.Backend, r store.Record, space disk.Space) store.Record {
	most := b.Inodes(r.Bytes, space)
	if r.Ephemeral && most > 0 && (r.Inodes == 0 || r.Inodes > most) {
		r.InodesFrom = store.Derived
	}
	if r.InodesFrom == store.Derived {
		r.Inodes = most
	}
	if r.Inodes == 0 {
		r.InodesFrom = store.FromClass
	}
	return r
}

// setInodes makes n the inode limit of a volume, in the record first: recovery sets what that says.
func setInodes(o *pool.Open, r store.Record, n int64) (store.Record, error) {
	usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
	switch used := usage[r.QuotaID].Inodes; {
	case err != nil:
		return r, err
	case n < 0:
		return r, fmt.Errorf("%w: inodes: %d: want a whole number, 0 for no limit", ErrInvalid, n)
	case n > 0 && o.Backend.Inodes(r.Bytes, disk.Space{}) == 0:
		return r, fmt.Errorf("%w: %s does not limit the number of files", ErrUnsupported, o.Backend.Name)
	case n > 0 && n < used:
		return r, fmt.Errorf("%w: inodes: %d: it has %d files and directories", ErrBelowUse, n, used)
	}
	r.Inodes, r.InodesFrom = n, store.FromAdmin
	if err := store.Replace(o.Disk, r); err != nil {
		return r, err
	}
	if _, err = o.Enter(r); err == nil {
		o.Log.Info("an admin has set the inode limit of a volume", logging.KeyID, r.ID)
	}
	return r, err
}

// enough raises a derived inode limit to what a restored directory has, and a quarter more.
func enough(o *pool.Open, r store.Record) (store.Record, error) {
	if r.InodesFrom != store.Derived {
		return r, nil
	}
	usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
	if err != nil {
		return r, err
	}
	space, err := o.Disk.Space()
	if err != nil {
		return r, fmt.Errorf("read the filesystem's size: %w", err)
	}
	was := r
	if r.Inodes = o.Backend.Inodes(r.Bytes, space); r.Inodes > 0 {
		used := usage[r.QuotaID].Inodes
		r.Inodes = max(r.Inodes, was.Inodes, used+(used+3)/4)
	}
	if r.Inodes == was.Inodes {
		return r, nil
	}
	return r, store.Replace(o.Disk, r)
}

// hold sets the limit of a volume whose directory counts to its ID again.
func hold(o *pool.Open, r store.Record) error {
	r, err := enough(o, r)
	if err == nil {
		err = o.Limits.Set(r.ID, r.QuotaID, r.Limit())
	}
	if err == nil {
		_, err = o.Enter(r)
	}
	return err
}
