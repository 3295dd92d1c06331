package poolfs

import (
	"context"
	"errors"
	"io/fs"
)

// Quota is what a filesystem has switched on that can hold a directory to a size.
type Quota string

// Kinds of quota.
const (
	QuotaOff     Quota = ""        // nothing, or nothing that enforces
	QuotaProject Quota = "project" // project quota of XFS or ext4, enforcing
	QuotaSimple  Quota = "simple"  // simple quota of btrfs
	QuotaFull    Quota = "qgroups" // full qgroups of btrfs
)

// FirstNumber is the least number of an account that can be a volume's: those below are the admin's and the kubelet's, which counts up from
// 1,048,577 for ephemeral storage.
const FirstNumber = 1 << 30

// Counts is how far what accounts show as used can be trusted.
type Counts string

// How a filesystem counts.
const (
	CountsRight Counts = "right"
	CountsWrong Counts = "wrong" // until Recount: the kernel counts nothing for any account, and no limit holds
	CountsAnew  Counts = "anew"  // everything is being counted again
)

// ErrNoQuota is what calls on accounts fail with where no quota is on (any more).
var ErrNoQuota = errors.New("no quota is switched on")

// Limit is what an account may hold, in bytes and inodes; 0 means no limit.
type Limit struct{ Bytes, Inodes int64 }

// Account is one line of a filesystem's quota by its number: a project, or on btrfs the qgroup 1/<number>.
type Account struct {
	Number uint32
	Limit
	// BytesUsed and InodesUsed count everything below the account's directories. btrfs counts no inodes, and bytes only as of its last
	// commit, which is up to 30 s ago.
	BytesUsed, InodesUsed int64
}

// QuotaSwitch tells what quota a filesystem has.
type QuotaSwitch interface {
	// Quota is what is on now; where nothing is, why says so for a person.
	Quota() (on Quota, why string, err error)
	// EnableQuota switches quota on: simple quota on btrfs, full qgroups where the kernel knows no other, and on ext4 the enforcement of what
	// is counted already. ErrNoQuota where that cannot be done to a mounted filesystem.
	EnableQuota() error
	// Counts is as of the filesystem's last commit. Only full qgroups of btrfs lose count, wherever somebody takes a snapshot for example.
	Counts() (Counts, error)
	// Recount starts a count of everything, in the background; where one is under way it does nothing.
	Recount() error
}

// Counter ties directories to accounts. Names are as in FS.
type Counter interface {
	// MkdirCounted makes a directory (on btrfs a subvolume) whose content counts to an account. On error nothing is left.
	//
	// btrfs keeps the order from here on. A transaction is on the disk as a whole or not at all; only an fsync can write something
	// by itself, into a log that is replayed after a crash, and subvolumes cannot be logged: where one was renamed, as MkdirCounted does
	// and moving it does again, every fsync on the filesystem is a commit until the next one. So nothing done later is on the disk
	// without this, and Sync of the directory that the subvolume was moved to writes everything, limits too.
	MkdirCounted(name string, mode fs.FileMode, number uint32) error
	// Count ties a directory that exists, on btrfs with all subvolumes in it; other content is not walked. 0 unties it (not on btrfs).
	// Nothing is written where nothing changes.
	Count(name string, number uint32) error
	// CountTree ties a directory with everything in it: the directory itself last, after the rest is on the disk, so that one which is
	// tied has nothing in it that counts elsewhere, wherever the work was interrupted. Links and special files, which cannot be
	// tied, and what is mounted inside are passed over. A file that is another account's under another name is an error.
	CountTree(ctx context.Context, name string, number uint32) error
	// CountedBy is the account that a directory is tied to, 0 where none.
	CountedBy(name string) (number uint32, err error)
}

// Accounts reads and changes accounts.
type Accounts interface {
	// Account is the zero account of that number where there is none.
	Account(number uint32) (Account, error)
	// InUse tells whether anything that is there counts to an account, as of now.
	InUse(number uint32) (bool, error)
	// SetLimit makes the account where there is none.
	SetLimit(number uint32, l Limit) error
	// RemoveAccount clears the limit and removes the account; none there is no error. EBUSY, and nothing changes, where data is still
	// counted to it, which may be so for a while after its removal.
	RemoveAccount(number uint32) error
	// Accounts lists those from first to last, in one pass.
	Accounts(first, last uint32) ([]Account, error)
}

// Quotas is an FS whose filesystem may have quota.
type Quotas interface {
	QuotaSwitch
	Counter
	Accounts
}

// Release lets whoever guards the pool of an open FS look at it again while slow work below one volume goes on. What the guard has
// promised holds no longer: the pool is to be opened anew for anything else.
func Release(disk FS) {
	if lent, ok := disk.(interface{ Release() }); ok {
		lent.Release()
	}
}

// QuotasOf gives the quota of an FS, also of one that is wrapped (Unwrap() FS); ok is false where it knows of none.
func QuotasOf(disk FS) (q Quotas, ok bool) {
	for {
		if q, ok := disk.(Quotas); ok {
			return q, true
		}
		wrapped, ok := disk.(interface{ Unwrap() FS })
		if !ok {
			return nil, false
		}
		disk = wrapped.Unwrap()
	}
}
