package btrfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
)

// QgroupID names a qgroup. Those of level 0 have the id of their subvolume, and the kernel makes them with it.
type QgroupID uint64

// NewQgroupID is the name of a qgroup; id is less than 2^48.
func NewQgroupID(level uint16, id uint64) QgroupID {
	return QgroupID(uint64(level)<<levelShift | id&(1<<levelShift-1))
}

// Level is 0 for the qgroup of a subvolume.
func (q QgroupID) Level() uint16 { return uint16(q >> levelShift) }

// ID is what names the qgroup within its level.
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

// Qgroup is a qgroup's limit and use, in bytes. Use is as of the last commit, at most some 30 seconds ago (mount option
// commit=); syncfs(2) brings it up to date.
type Qgroup struct {
	ID         QgroupID
	Referenced uint64 // what counts to it, metadata too
	Limit      uint64 // of Referenced; 0: none
}

// QuotaMode reads how f's filesystem counts.
func QuotaMode(f *os.File) (Mode, error) {
	var flags uint64
	status := items{tree: quotaTree, kind: typeQgroupStatus, least: 24} // btrfs_qgroup_status_item
	err := search(f, status, func(_ uint64, data []byte) { flags = binary.LittleEndian.Uint64(data[16:]) })
	switch {
	case errors.Is(err, unix.ENOENT): // no quota tree
		return Off, nil
	case err != nil || flags&statusOn == 0:
		return Off, err
	case flags&statusSimple != 0:
		return Simple, nil
	default:
		return Full, nil
	}
}

// EnableSimpleQuota switches simple quota on, durably and for good: it sets an incompatible feature bit in the
// superblock, and kernels before 6.7 refuse to mount the filesystem from then on. Where quota is on it does nothing for
// simple quota and is EBUSY for full qgroups.
func EnableSimpleQuota(f *os.File) error {
	args := &quotaCtlArgs{command: quotaEnableSimple}
	err := do(f, "switch simple quota on", ioctl.RW, 40, args)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: simple quota needs Linux 6.7 or newer", err)
	}
	if err != nil {
		return err
	}
	mode, err := QuotaMode(f)
	if err == nil && mode != Simple { // the kernel reports success and leaves what is on
		err = &fs.PathError{Op: "switch simple quota on", Path: f.Name(), Err: unix.EBUSY}
	}
	return err
}

// CreateQgroup makes a qgroup without limit and members; fs.ErrExist if it is there, ENOTCONN where quota is off.
func CreateQgroup(f *os.File, q QgroupID) error {
	return do(f, "create qgroup "+q.String(), ioctl.W, 42, &qgroupCreateArgs{create: 1, qgroup: q})
}

// RemoveQgroup removes a qgroup; members that are left of destroyed subvolumes leave it first. One that is not there is
// fs.ErrNotExist. One with a subvolume that is there is EBUSY, and so is one of level 0 that the kernel has not
// finished removing.
func RemoveQgroup(f *os.File, q QgroupID) error {
	members, _, err := relations(f, q)
	if err != nil {
		return err
	}
	for _, member := range members {
		there, err := linked(f, member)
		if err != nil {
			return err
		}
		if there {
			return fmt.Errorf("subvolume %d is in qgroup %s: %w", member.ID(), q, unix.EBUSY)
		}
	}
	for _, member := range members {
		if err := UnassignQgroup(f, member, q); err != nil {
			return err
		}
	}
	return do(f, "remove qgroup "+q.String(), ioctl.W, 42, &qgroupCreateArgs{qgroup: q})
}

// AssignQgroup makes a qgroup a member of another, of a higher level; one that is a member already is no error.
func AssignQgroup(f *os.File, member, group QgroupID) error {
	err := do(f, "assign qgroup "+member.String(), ioctl.W, 41,
		&qgroupAssignArgs{assign: 1, member: member, group: group})
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// UnassignQgroup ends a membership; one that ended already, as those of removed subvolumes do, is no error.
func UnassignQgroup(f *os.File, member, group QgroupID) error {
	err := do(f, "unassign qgroup "+member.String(), ioctl.W, 41, &qgroupAssignArgs{member: member, group: group})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// SetQgroupLimit limits what may count to a qgroup, in bytes; 0 is no limit. It applies at once, also below what is
// used: then nothing more can be written. It is on the disk after the next commit.
func SetQgroupLimit(f *os.File, q QgroupID, bytes uint64) error {
	if bytes == 0 {
		bytes = math.MaxUint64 // CLEAR_VALUE in fs/btrfs/qgroup.c: clears the flag as well
	}
	args := &qgroupLimitArgs{qgroup: q, limit: qgroupLimit{flags: limitMaxReferenced, maxReferenced: bytes}}
	return do(f, "limit qgroup "+q.String(), ioctl.R, 43, args)
}

// QgroupUsage reads one qgroup; one that is not there, or quota that is off, is fs.ErrNotExist.
func QgroupUsage(f *os.File, q QgroupID) (Qgroup, error) {
	found, err := Qgroups(f, q, q)
	if err == nil && len(found) == 0 {
		err = &fs.PathError{Op: "read qgroup " + q.String(), Path: f.Name(), Err: unix.ENOENT}
	}
	if err != nil {
		return Qgroup{}, err
	}
	return found[0], nil
}

// Qgroups lists the qgroups from first to last, in order. Quota that is off is fs.ErrNotExist.
func Qgroups(f *os.File, first, last QgroupID) ([]Qgroup, error) {
	var found []Qgroup
	at := map[uint64]int{}
	want := items{tree: quotaTree, kind: typeQgroupInfo, first: uint64(first), last: uint64(last), least: 16}
	err := search(f, want, func(id uint64, data []byte) { // btrfs_qgroup_info_item: generation, rfer, …
		at[id] = len(found)
		found = append(found, Qgroup{ID: QgroupID(id), Referenced: binary.LittleEndian.Uint64(data[8:])})
	})
	if err != nil {
		return nil, err
	}
	want.kind = typeQgroupLimit
	err = search(f, want, func(id uint64, data []byte) { // btrfs_qgroup_limit_item: flags, max_rfer, …
		if i, ok := at[id]; ok && binary.LittleEndian.Uint64(data)&limitMaxReferenced != 0 {
			found[i].Limit = binary.LittleEndian.Uint64(data[8:])
		}
	})
	return found, err
}

// Groups lists the qgroups that this one is a member of. Quota that is off is fs.ErrNotExist.
func Groups(f *os.File, member QgroupID) ([]QgroupID, error) {
	_, groups, err := relations(f, member)
	return groups, err
}

// relations lists the members of a qgroup, and the groups that it is a member of.
func relations(f *os.File, q QgroupID) (members, groups []QgroupID, err error) {
	err = search(f, allItems(quotaTree, uint64(q), typeQgroupRelation), func(offset uint64, _ []byte) {
		if other := QgroupID(offset); other.Level() > q.Level() {
			groups = append(groups, other)
		} else {
			members = append(members, other)
		}
	})
	return members, groups, err
}
