package btrfs

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"unsafe"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
)

// Rejoin makes every subvolume below this one a member of group and of no other. A process that may write there can
// leave the group, by naming other qgroups, or none, when it makes a subvolume (BTRFS_SUBVOL_QGROUP_INHERIT). f must be
// outside of what group limits: a full one would make it EDQUOT. It costs one system call where there are none below;
// else it reads what all subvolumes of the filesystem are, some 1 ms for a thousand of them, and changes only strays.
func Rejoin(f *os.File, id uint64, group QgroupID) error {
	if child, err := firstNested(f, id); err != nil || child == 0 {
		return err
	}
	below, err := nested(f, id)
	if err != nil || len(below) == 0 {
		return err
	}
	strays, err := straysOf(f, below, group)
	if err != nil {
		return err
	}
	for _, id := range strays {
		err := joinQgroup(f, NewQgroupID(0, id), group)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // not there: destroyed meanwhile
			return err
		}
	}
	return nil
}

// nested lists the ids of all subvolumes below this one, each after those that it holds itself. f is any directory of
// the filesystem. One made later can hold one made earlier, so all of the filesystem are looked at.
func nested(f *os.File, id uint64) ([]uint64, error) {
	children := map[uint64][]uint64{}
	err := scan(f, span{rootTree, typeRootRef, firstFree, maxID}, func(parent, child uint64) {
		children[parent] = append(children[parent], child)
	})
	if err != nil {
		return nil, err
	}
	found := children[id]
	for i := 0; i < len(found); i++ { // breadth first: a subvolume comes before what it holds
		found = append(found, children[found[i]]...)
	}
	slices.Reverse(found)
	return found, nil
}

// straysOf are those subvolumes that are not in group, or in others too.
func straysOf(f *os.File, subvolumes []uint64, group QgroupID) ([]uint64, error) {
	joined, elsewhere := make(map[uint64]bool, len(subvolumes)), map[uint64]bool{}
	for _, id := range subvolumes {
		joined[id] = false
	}
	all := span{quotaTree, typeQgroupRelation, slices.Min(subvolumes), slices.Max(subvolumes)} // of level 0
	err := scan(f, all, func(member, of uint64) {
		if _, ours := joined[member]; !ours {
			return
		}
		if QgroupID(of) == group {
			joined[member] = true
		} else {
			elsewhere[member] = true
		}
	})
	strays := slices.DeleteFunc(slices.Clone(subvolumes), func(id uint64) bool { return joined[id] && !elsewhere[id] })
	return strays, err
}

// maxID is the greatest id that a subvolume can have with qgroups.
const maxID = 1<<levelShift - 1

// span names the items of a kind of all objects in a btrfs tree from first to last.
type span struct {
	tree        uint64
	kind        uint32
	first, last uint64
}

// scan visits the items of a span in the order of their keys. The kernel gives the items of all kinds that lie between
// them too.
func scan(f *os.File, of span, visit func(object, offset uint64)) error {
	args := &searchArgsV2{size: uint64(len(searchArgsV2{}.buf))}
	request := ioctl.RW(magic, 17, unsafe.Offsetof(args.buf))
	next := key{of.first, of.kind, 0}
	for {
		args.key = searchKey{
			tree:      of.tree,
			minObject: next.object, minType: next.kind, minOffset: next.offset,
			maxObject: of.last, maxType: of.kind, maxOffset: math.MaxUint64,
			maxTransid: math.MaxUint64, items: math.MaxUint32,
		}
		if err := ioctl.Do(f, "search trees", request, args); err != nil || args.key.items == 0 {
			return err
		}
		last, err := read(args.buf[:], args.key.items, 0, func(at key, _ []byte) {
			if at.kind == of.kind {
				visit(at.object, at.offset)
			}
		})
		if err != nil {
			return failed(f, err)
		}
		next = last.next()
	}
}
