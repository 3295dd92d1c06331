package btrfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxBusy is how often DestroyTree starts again because somebody made a subvolume below while it worked.
const maxBusy = 10

// CreateSubvolume makes an empty subvolume (0777 less the umask, owned by the caller) in parent and returns its id.
// It is a member of group from the beginning; with 0 it inherits what the kernel decides: under simple quota the groups
// of the subvolume that parent is in, else none. The subvolume, its membership and whatever was changed before it
// are on the disk after an fsync of parent, or at once before Linux 6.6.
func CreateSubvolume(parent *os.File, name string, group QgroupID) (uint64, error) {
	if err := check("create subvolume", parent, name); err != nil {
		return 0, err
	}
	args := &volArgsV2{}
	copy(args.name[:], name)
	if group != 0 {
		args.flags = subvolumeQgroupInherit
		args.inherit = &qgroupInherit{qgroups: 1, qgroup: [1]QgroupID{group}}
		args.size = uint64(unsafe.Sizeof(*args.inherit))
	}
	if err := subvolumeCreateV2(parent, args); err != nil {
		return 0, named(err, name)
	}
	id, err := idOf(parent, name)
	if err != nil {
		return 0, errors.Join(err, DestroySubvolume(parent, name))
	}
	return id, nil
}

// DestroySubvolume removes a subvolume whatever files it holds; the kernel frees their space in the background. One
// that holds other subvolumes is ENOTEMPTY, a directory that is none EINVAL. The name is gone from the disk afterwards.
func DestroySubvolume(parent *os.File, name string) error {
	if err := check("destroy subvolume", parent, name); err != nil {
		return err
	}
	args := &volArgs{}
	copy(args.name[:], name)
	return named(snapDestroy(parent, args), name)
}

// DestroyTree is DestroySubvolume for one that may hold others, at any depth and read-only ones too; they are destroyed
// first, deepest first. pause, which may be nil, is called before each. Where there are others, the limits of those of the
// subvolume's groups that are ours, and that no other subvolume is in, are lifted, and it leaves the rest: removing a name from a subvolume
// that is full would be EDQUOT.
func DestroyTree(ctx context.Context, parent *os.File, name string, ours func(QgroupID) bool, pause func(context.Context) error) error {
	if pause == nil {
		pause = func(ctx context.Context) error { return ctx.Err() }
	}
	for tries := 0; ; tries++ {
		if err := destroyNested(ctx, parent, name, ours, pause); err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
		err := DestroySubvolume(parent, name)
		if !errors.Is(err, unix.ENOTEMPTY) || tries == maxBusy {
			return err
		}
	}
}

func destroyNested(ctx context.Context, parent *os.File, name string, ours func(QgroupID) bool, pause func(context.Context) error) error {
	top, err := idOf(parent, name)
	if err != nil {
		return err
	}
	nested, err := Nested(parent, top)
	if err != nil || len(nested) == 0 {
		return err
	}
	if err := liftLimits(parent, top, nested, ours); err != nil {
		return err
	}
	for _, id := range nested {
		if err := pause(ctx); err != nil {
			return err
		}
		args := &volArgsV2{flags: subvolumeSpecByID}
		binary.NativeEndian.PutUint64(args.name[:], id)
		err := snapDestroyV2(parent, args)
		// ENOENT: somebody else was quicker. ENOTEMPTY: somebody made another one inside; the caller starts again.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("destroy nested subvolume %d: %w", id, err)
		}
	}
	return nil
}

// liftLimits clears what limits a subvolume. Groups that are somebody else's, or limit somebody else too, keep their limits: the subvolume, and
// those nested in it, leave them instead.
func liftLimits(f *os.File, top uint64, nested []uint64, ours func(QgroupID) bool) error {
	all := make([]QgroupID, 0, len(nested)+1)
	for _, id := range append([]uint64{top}, nested...) {
		all = append(all, NewQgroupID(0, id))
	}
	groups, err := Groups(f, all[0])
	if errors.Is(err, fs.ErrNotExist) { // quota is off
		return nil
	}
	lifted := all[:1:1]
	for _, q := range groups {
		others, membersErr := inUseBesides(f, q, all)
		err = errors.Join(err, membersErr)
		if ours(q) && !others {
			lifted = append(lifted, q)
		}
	}
	for _, q := range lifted {
		if cleared := SetQgroupLimit(f, q, 0); cleared != nil && !errors.Is(cleared, fs.ErrNotExist) {
			err = errors.Join(err, cleared)
		}
	}
	for _, member := range all {
		err = errors.Join(err, leaveOthers(f, member, lifted))
	}
	return err
}

// inUseBesides tells whether a qgroup has other subvolumes than these; in doubt it has.
func inUseBesides(f *os.File, q QgroupID, these []QgroupID) (bool, error) {
	members, err := members(f, q)
	if err != nil {
		return true, err
	}
	others, err := anyLinked(f, slices.DeleteFunc(members, func(member QgroupID) bool { return slices.Contains(these, member) }))
	return others || err != nil, err
}

// leaveOthers ends a qgroup's membership in all others but these.
func leaveOthers(f *os.File, member QgroupID, stay []QgroupID) error {
	groups, err := Groups(f, member)
	for _, q := range groups {
		if !slices.Contains(stay, q) {
			err = errors.Join(err, unassign(f, member, q))
		}
	}
	return err
}

// IsSubvolume tells whether f is the root of a subvolume: on btrfs those, and nothing else, have the inode number 256.
func IsSubvolume(f *os.File) (bool, error) {
	is, err := Is(f)
	if err != nil || !is {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return st.Ino == firstFree, nil
}

// SubvolumeID is the id of the subvolume that f is in. Ids are never used again.
func SubvolumeID(f *os.File) (uint64, error) {
	args := &inoLookupArgs{object: firstFree} // tree 0: the one that f is in
	if err := inoLookup(f, args); err != nil {
		return 0, err
	}
	return args.tree, nil
}

// Nested lists the ids of all subvolumes below this one, each after those that it holds itself. f is any directory of
// the filesystem. It costs one system call where there are none, and one for each that there is.
func Nested(f *os.File, id uint64) ([]uint64, error) {
	found := []uint64{id}
	for i := 0; i < len(found); i++ { // breadth first: a subvolume comes before what it holds
		children, err := children(f, found[i])
		if err != nil {
			return nil, err
		}
		found = append(found, children...)
	}
	found = found[1:]
	slices.Reverse(found)
	return found, nil
}

// Rejoin makes every subvolume below this one a member of group and of no other, and lists those that were not. A process
// that may write there can leave the group: under simple quota by naming other qgroups, or none, when it makes a
// subvolume (BTRFS_SUBVOL_QGROUP_INHERIT), under full qgroups by making one at all. In mode Full the numbers become
// Inconsistent where a member shares extents. f must be outside of what group limits: a full one would make it EDQUOT.
func Rejoin(f *os.File, id uint64, group QgroupID) ([]uint64, error) {
	nested, err := Nested(f, id)
	if err != nil {
		return nil, err
	}
	var joined []uint64
	for _, id := range nested {
		changed, err := join(f, NewQgroupID(0, id), group)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // not there: destroyed meanwhile
			return joined, err
		}
		if changed {
			joined = append(joined, id)
		}
	}
	return joined, nil
}

// join makes a qgroup a member of just one other.
func join(f *os.File, member, group QgroupID) (changed bool, err error) {
	groups, err := Groups(f, member)
	if err != nil || slices.Equal(groups, []QgroupID{group}) {
		return false, err
	}
	if err := leaveOthers(f, member, []QgroupID{group}); err != nil {
		return false, err
	}
	if slices.Contains(groups, group) {
		return true, nil
	}
	return true, AssignQgroup(f, member, group)
}

func children(f *os.File, id uint64) ([]uint64, error) {
	var ids []uint64
	err := search(f, rootTree, key{id, typeRootRef, 0}, key{id, typeRootRef, math.MaxUint64}, func(k key, _ []byte) {
		ids = append(ids, k.offset)
	})
	return ids, err
}

// linked tells whether the subvolume that a qgroup of level 0 counts lies in a directory, or is the filesystem's own. One that was destroyed does
// not, long before the kernel has finished removing it.
func linked(f *os.File, q QgroupID) (bool, error) {
	id := q.ID()
	there := id == topLevel
	err := search(f, rootTree, key{id, typeRootBackref, 0}, key{id, typeRootBackref, math.MaxUint64}, func(key, []byte) { there = true })
	return there, err
}

// idOf is the id of the subvolume that the directory name in parent is in; a link is ELOOP or ENOTDIR.
func idOf(parent *os.File, name string) (uint64, error) {
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: parent.Name() + "/" + name, Err: err}
	}
	f := os.NewFile(uintptr(fd), parent.Name()+"/"+name)
	defer f.Close()
	return SubvolumeID(f)
}

// check refuses what is not one name; the kernel would cut it at a NUL.
func check(op string, parent *os.File, name string) error {
	var err error
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		err = fs.ErrInvalid
	case len(name) > maxName:
		err = unix.ENAMETOOLONG
	default:
		return nil
	}
	return &fs.PathError{Op: op, Path: parent.Name() + "/" + name, Err: err}
}

// named puts the name into a *fs.PathError about its directory.
func named(err error, name string) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		path.Path += "/" + name
	}
	return err
}
