package volume

import (
	"context"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// Pool is what the manager needs of one pool at run time.
type Pool interface {
	Name() string
	// Open verifies the mount guard, recovers the pool if it just came back, and opens csi/ for one operation.
	// ErrPoolAbsent with the reason where the pool cannot be used.
	Open(ctx context.Context) (poolfs.FS, error)
	Ledger() Ledger
	Backend() Backend
	// Held takes note that a volume's limit is held, of which recovery may have reported the contrary (Report.Unheld).
	Held(id string)
}

// Ledger is a pool's in-memory account of its records and of the bytes promised to them.
type Ledger interface {
	// Reserve takes bytes for a volume that is about to be made: ErrNoSpace or ErrPoolNotHere if that cannot be promised,
	// ErrBusy if the id has a reservation.
	Reserve(id string, bytes int64, space poolfs.Space) (Reservation, error)
	// Grow takes what a volume's record lacks to a size in bytes: ErrNoSpace if that cannot be promised. release as in Reservation.
	Grow(id string, to int64, space poolfs.Space) (release func(), err error)
	// Owner is the volume whose number in the filesystem's quota it is, "" where no record has it.
	Owner(number uint32) (id string)
	// Gives tells whether the pool gives volumes numbers like this one.
	Gives(number uint32) bool
	// Disclaim notes that what counts to a number is none of the pool's volumes; Disclaimed tells so until the pool is recovered again.
	Disclaim(number uint32)
	Disclaimed(number uint32) bool
	// Shared tells whether something else than this volume has its number: another one, one in the trash, or what is not the pool's.
	Shared(number uint32, id string) bool
	// Free ends a volume's hold on its number, of which nothing on the disk counts to it any more.
	Free(number uint32, id string)
	Put(Record)
	// Drop takes a record out. Its number stays taken, for its data may be in the trash.
	Drop(id string)
	// IDs are those of all records, in no particular order.
	IDs() []string
	Get(id string) (Record, bool)
}

// Reservation is what a ledger gives a volume that is about to be made.
type Reservation struct {
	// Number is for the filesystem's quota, 0 where nothing is enforced. It stays taken until Ledger.Free.
	Number uint32
	// Release gives the bytes back; after Put of the record it does nothing.
	Release func()
}

// Pools finds the pools of this node.
type Pools interface {
	// Get is ErrPoolUnknown for a pool of no configuration, ErrPoolAbsent for one that the configuration no longer holds.
	Get(name string) (Pool, error)
	// All are the configured pools, by name.
	All() []Pool
	// TakenOut names the pools that this node remembers and the configuration no longer holds, each with the way out.
	TakenOut() []string
}

// Backend makes volumes' directories and holds them to their size.
type Backend interface {
	Holder
	Name() string
	Enforcement() Enforcement
	// Make makes an empty volume of the record's size under a name below csi/, with the final owner and mode.
	Make(disk poolfs.FS, name string, r Record) error
	// KeepsOrder tells of a directory that Make made that what is done in csi/ after it was made or moved is never on the disk without all that
	// was done there before, whoever syncs what; and that a sync of where it was moved to makes all of that durable.
	KeepsOrder(disk poolfs.FS, name string, r Record) bool
	// Stats is the use of a volume's directory.
	Stats(disk poolfs.FS, name string, r Record) (Stats, error)
}

// Holder keeps the limit on a volume that its record says. It does nothing for volumes that nothing is enforced on.
type Holder interface {
	// Hold makes the limit of a volume that of its record, whatever it is now. ErrBroken where the directory is another volume's
	// by the filesystem's quota.
	Hold(disk poolfs.FS, name string, r Record) error
	// Loose tells that a volume's directory, and what is in it, counts nowhere and should count to the volume.
	Loose(disk poolfs.FS, name string, r Record) (bool, error)
	// Gather makes it count, which can take its time. ErrNotCounted where that cannot be done.
	Gather(ctx context.Context, disk poolfs.FS, name string, r Record) error
	// Drop removes the limit of a volume whose directory is gone; none there is no error. EBUSY where the filesystem still removes it.
	Drop(disk poolfs.FS, r Record) error
}

// Records reads and writes the records of a pool.
type Records interface {
	// Prepare makes a record durable where nobody looks for records; Place puts it among them, durably after a sync of their directory.
	// Forget removes what was prepared and not placed; nothing there is no error.
	Prepare(disk poolfs.FS, r Record) error
	Place(disk poolfs.FS, id string) error
	Forget(disk poolfs.FS, id string) error
	// Add is all of that, durably.
	Add(disk poolfs.FS, r Record) error
	// Replace makes a record durable in the place of an older one. After an error either may be there.
	Replace(disk poolfs.FS, r Record) error
	Read(disk poolfs.FS, id string) (Record, error)
	Remove(disk poolfs.FS, id string) error
	// List gives the ids of every record file there is, usable or not.
	List(disk poolfs.FS) ([]string, error)
	// Unplaced gives the ids of what was prepared, or was to be added or to replace a record, and is not in place.
	Unplaced(disk poolfs.FS) ([]string, error)
}

// Bin is the trash of a pool.
type Bin interface {
	// Discard moves a volume's data and then its record into a new trash entry, durably. It syncs each step before the next, unless the
	// data keeps that order by itself.
	Discard(disk poolfs.FS, r Record, keepsOrder bool) error
	// Entries lists what is in the trash, of one volume or with an empty id of all.
	Entries(disk poolfs.FS, id string) ([]BinEntry, error)
	// Finish moves the record of an interrupted Discard after its data.
	Finish(disk poolfs.FS, entry, id string) error
	// RemoveEmpty removes an entry that holds nothing.
	RemoveEmpty(disk poolfs.FS, e BinEntry) error
}

// BinEntry is one directory in the trash: <id>.<n>.
type BinEntry struct {
	Name, ID string
	// Unfinished tells that the delete was interrupted after its data had been moved: the record is not here, or after a crash that
	// cut its move in half in both places.
	Unfinished bool
	// Empty tells that the entry holds nothing that could be anybody's data.
	Empty bool
}

// Mounter publishes directories below the kubelet's directory.
type Mounter interface {
	// Inspect tells what is mounted at target; the zero Mount where nothing is, or where target does not exist.
	Inspect(target string) (Mount, error)
	// Bind makes target if needed and mounts the directory there in one atomic step, then verifies it.
	Bind(source poolfs.Handle, target string, o MountOptions) error
	// Unmount unmounts until nothing is mounted at target, then removes the empty directory. No target is no error.
	Unmount(target string) error
	// Published lists the targets below the kubelet's directory by the last name of the mounted directory on its
	// filesystem; one read of the mount table, for start-up.
	Published() (map[string][]string, error)
}

// Mount is what is mounted at a path.
type Mount struct {
	Mounted  bool
	Dev, Ino uint64
	MountOptions
}

// Cluster is what the manager asks Kubernetes.
type Cluster interface {
	// Volume finds the PersistentVolume of this driver whose volumeHandle is id, by name first. ErrClusterUnknown where the API
	// does not answer; ok is false where there is none.
	Volume(ctx context.Context, id string) (pv PersistentVolume, ok bool, err error)
	// Volumes lists the PersistentVolumes of this driver on this node.
	Volumes(ctx context.Context) ([]PersistentVolume, error)
	// Tell tells the owner of a claim something, on the claim.
	Tell(claim Claim, reason, message string)
}
