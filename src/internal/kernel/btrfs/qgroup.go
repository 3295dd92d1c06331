package btrfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// QgroupID names a qgroup. Those of level 0 have the id of their subvolume, and the kernel makes them with it.
type QgroupID uint64

// NewQgroupID is the name of a qgroup; id is less than 2^48.
func NewQgroupID(level uint16, id uint64) QgroupID {
	return QgroupID(uint64(level)<<levelShift | id&(1<<levelShift-1))
}

// Level is 0 for the qgroup of a subvolume.
func (q QgroupID) Level() uint16 { return uint16(q >> levelShift) }

// ID is the number within the level.
func (q QgroupID) ID() uint64 { return uint64(q) & (1<<levelShift - 1) }

func (q QgroupID) String() string { return fmt.Sprintf("%d/%d", q.Level(), q.ID()) }

// Mode is how a filesystem counts what belongs to whom.
type Mode int

// Modes of quota.
const (
	Off    Mode = iota
	Full        // an extent belongs to every subvolume that refers to it ("qgroups")
	Simple      // an extent belongs to the subvolume that wrote it first (Linux 6.7)
)

func (m Mode) String() string {
	switch m {
	case Full:
		return "full"
	case Simple:
		return "simple"
	case Off:
		return "off"
	default:
		return fmt.Sprintf("Mode(%d)", int(m))
	}
}

// Quota is the state of a filesystem's quota.
type Quota struct {
	Mode Mode
	// Inconsistent numbers are wrong until a Rescan: the kernel counts nothing any more, and no limit holds. Rescanning tells that one is
	// under way. Both are as of the last commit, and never so in mode Simple.
	Inconsistent, Rescanning bool
}

// Qgroup is a qgroup's limit and use, in bytes. Use is as of the last commit, at most some 30 seconds ago (mount option
// commit=); syncfs(2) brings it up to date.
type Qgroup struct {
	ID         QgroupID
	Referenced uint64 // all that its subvolumes hold, metadata too
	Exclusive  uint64 // of it, what no other subvolume refers to; in mode Simple the same
	Limit      uint64 // of Referenced; 0: none
}

// QuotaStatus reads the state of quota on f's filesystem.
func QuotaStatus(f *os.File) (Quota, error) {
	var quota Quota
	var flags uint64
	var short error
	found := false
	err := search(f, quotaTree, key{0, typeQgroupStatus, 0}, key{0, typeQgroupStatus, 0}, func(_ key, data []byte) {
		found = true
		flags, short = field(data, 16) // btrfs_qgroup_status_item: version, generation, flags
	})
	switch {
	case errors.Is(err, unix.ENOENT): // no quota tree
		return quota, nil
	case err != nil || short != nil:
		return quota, errors.Join(err, short)
	case !found || flags&statusOn == 0:
		return quota, nil
	}
	quota.Mode = Full
	if flags&statusSimple != 0 {
		quota.Mode = Simple
	}
	quota.Inconsistent = flags&statusInconsistent != 0
	quota.Rescanning = flags&statusRescan != 0
	return quota, nil
}

// EnableSimpleQuota switches simple quota on, durably and for good: it sets an incompatible feature bit in the superblock,
// and kernels before 6.7 refuse to mount the filesystem from then on. Where quota is on already it does nothing
// for simple quota and is EBUSY for full qgroups; a kernel that does not know it is errors.ErrUnsupported.
func EnableSimpleQuota(f *os.File) error {
	if err := enable(f, quotaEnableSimple); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%w: %w: simple quota needs Linux 6.7 or newer", errors.ErrUnsupported, err)
		}
		return err
	}
	quota, err := QuotaStatus(f)
	if err == nil && quota.Mode != Simple { // the kernel says yes and leaves what is on
		err = &fs.PathError{Op: "switch simple quota on", Path: f.Name(), Err: fmt.Errorf("%w: quota is on already, in mode %s; "+
			"to change that, switch it off with `btrfs quota disable`, which forgets all limits", unix.EBUSY, quota.Mode)}
	}
	return err
}

// EnableFullQuota switches full qgroups on and starts the count of what is there.
func EnableFullQuota(f *os.File) error { return enable(f, quotaEnable) }

func enable(f *os.File, command uint64) error { return quotaCtl(f, &quotaCtlArgs{command: command}) }

// Rescan starts the count of everything again, in the background (mode Full only). One that is under way is EINPROGRESS.
func Rescan(f *os.File) error { return quotaRescan(f, &quotaRescanArgs{}) }

// CreateQgroup makes a qgroup without limit and members; one that is there is fs.ErrExist. Where quota is off it is
// ENOTCONN.
func CreateQgroup(f *os.File, q QgroupID) error {
	return of(q, qgroupCreate(f, "create qgroup", &qgroupCreateArgs{create: 1, qgroup: q}))
}

// RemoveQgroup removes a qgroup; members that are left of destroyed subvolumes leave it first. One that is not there is fs.ErrNotExist. One
// with a subvolume that is there, or that the kernel has not finished removing, is EBUSY.
func RemoveQgroup(f *os.File, q QgroupID) error {
	members, err := members(f, q)
	if err != nil {
		return err
	}
	if there, err := anyLinked(f, members); err != nil || there {
		return errors.Join(err, of(q, unix.EBUSY))
	}
	for _, member := range members {
		if err := unassign(f, member, q); err != nil {
			return err
		}
	}
	return of(q, qgroupCreate(f, "remove qgroup", &qgroupCreateArgs{qgroup: q}))
}

// InUse tells whether a qgroup of level 1 has a subvolume that is there, as of now: what it uses is known only after a commit.
func InUse(f *os.File, q QgroupID) (bool, error) {
	members, err := members(f, q)
	if err != nil {
		return false, err
	}
	return anyLinked(f, members)
}

func anyLinked(f *os.File, members []QgroupID) (bool, error) {
	for _, member := range members {
		if there, err := linked(f, member); err != nil || there {
			return there, err
		}
	}
	return false, nil
}

func members(f *os.File, q QgroupID) ([]QgroupID, error) {
	return relations(f, q, func(other QgroupID) bool { return other.Level() < q.Level() })
}

// AssignQgroup makes a qgroup a member of another, of a higher level; one that is a member is fs.ErrExist. In mode
// Full assigning one that shares extents makes the numbers Inconsistent.
func AssignQgroup(f *os.File, member, group QgroupID) error {
	return of(member, qgroupAssign(f, "assign qgroup", &qgroupAssignArgs{assign: 1, member: member, group: group}))
}

// unassign ends a membership; one that ended already, as those of removed subvolumes do, is no error.
func unassign(f *os.File, member, group QgroupID) error {
	err := qgroupAssign(f, "unassign qgroup", &qgroupAssignArgs{member: member, group: group})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return of(member, err)
}

// SetQgroupLimit limits what the qgroup's subvolumes may hold together, in bytes; 0 is no limit. It applies at once, also
// below what is used: then nothing more can be written. It is on the disk after the next commit.
func SetQgroupLimit(f *os.File, q QgroupID, bytes uint64) error {
	if bytes == 0 {
		bytes = math.MaxUint64 // CLEAR_VALUE in fs/btrfs/qgroup.c: clears the flag as well
	}
	return of(q, qgroupSetLimit(f, &qgroupLimitArgs{qgroup: q, limit: qgroupLimit{flags: limitMaxReferenced, maxReferenced: bytes}}))
}

// QgroupUsage reads one qgroup; one that is not there, or quota that is off, is fs.ErrNotExist.
func QgroupUsage(f *os.File, q QgroupID) (Qgroup, error) {
	found, err := qgroups(f, q, q)
	if err == nil && len(found) == 0 {
		err = &fs.PathError{Op: "read qgroup", Path: f.Name(), Err: unix.ENOENT}
	}
	if err != nil {
		return Qgroup{}, of(q, err)
	}
	return found[0], nil
}

// Qgroups lists all qgroups of a level, by id. Quota that is off is fs.ErrNotExist.
func Qgroups(f *os.File, level uint16) ([]Qgroup, error) {
	return qgroups(f, NewQgroupID(level, 0), NewQgroupID(level, math.MaxUint64))
}

// Groups lists the qgroups that this one is a member of.
func Groups(f *os.File, member QgroupID) ([]QgroupID, error) {
	return relations(f, member, func(other QgroupID) bool { return other.Level() > member.Level() })
}

func relations(f *os.File, q QgroupID, want func(QgroupID) bool) ([]QgroupID, error) {
	var found []QgroupID
	first, last := key{uint64(q), typeQgroupRelation, 0}, key{uint64(q), typeQgroupRelation, math.MaxUint64}
	err := search(f, quotaTree, first, last, func(k key, _ []byte) {
		if other := QgroupID(k.offset); want(other) {
			found = append(found, other)
		}
	})
	return found, of(q, err)
}

// qgroups reads the information and limits of qgroups from first to last.
func qgroups(f *os.File, first, last QgroupID) ([]Qgroup, error) {
	var found []Qgroup
	var bad error
	at := map[QgroupID]int{}
	info := func(k key, data []byte) { // btrfs_qgroup_info_item: generation, rfer, rfer_cmpr, excl, excl_cmpr
		referenced, err1 := field(data, 8)
		exclusive, err2 := field(data, 24)
		bad = errors.Join(bad, err1, err2)
		at[QgroupID(k.offset)] = len(found)
		found = append(found, Qgroup{ID: QgroupID(k.offset), Referenced: referenced, Exclusive: exclusive})
	}
	limit := func(k key, data []byte) { // btrfs_qgroup_limit_item: flags, max_rfer, …
		flags, err1 := field(data, 0)
		most, err2 := field(data, 8)
		bad = errors.Join(bad, err1, err2)
		if i, ok := at[QgroupID(k.offset)]; ok && flags&limitMaxReferenced != 0 {
			found[i].Limit = most
		}
	}
	err := search(f, quotaTree, key{0, typeQgroupInfo, uint64(first)}, key{0, typeQgroupInfo, uint64(last)}, info)
	if err == nil {
		err = search(f, quotaTree, key{0, typeQgroupLimit, uint64(first)}, key{0, typeQgroupLimit, uint64(last)}, limit)
	}
	return found, errors.Join(err, bad)
}

// of says which qgroup an error is about.
func of(q QgroupID, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("qgroup %s: %w", q, err)
}
