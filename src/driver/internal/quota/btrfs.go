package quota

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
)

const (
	// leastBtrfs is the smallest limit, in bytes, under which btrfs (nodes of 16 KiB) lets a file be made: each tree
	// that changes reserves several nodes beforehand.
	leastBtrfs = 128 << 10
	// IDs are random, so that a process in a pod, which may name any qgroup as that of a subvolume it makes, finds
	// nobody else's. New ones are in [1<<32, 1<<groupBits); earlier releases counted up from firstID.
	groupBits = 47
	maxGroup  = 1<<48 - 1
)

// btrfsLimits is a pool on btrfs with simple quota. Calls about qgroups go through csi/ itself: through a directory
// inside a volume that is full they would be EDQUOT.
type btrfsLimits struct{ d disk.FS }

func qgroupOf(id ID) btrfs.QgroupID { return btrfs.NewQgroupID(1, uint64(id)) }

// isOurs reports whether a qgroup can be a volume's.
func isOurs(q btrfs.QgroupID) bool { return q.Level() == 1 && q.ID() >= firstID }

func checkLimit(l Limit) error {
	if l.Inodes > 0 {
		return fmt.Errorf("%w: inodeLimit %d: btrfs does not limit the number of files; leave inodeLimit out or use a "+
			"pool on XFS or ext4", ErrUnsupported, l.Inodes)
	}
	if l.Bytes > 0 && l.Bytes < leastBtrfs {
		return fmt.Errorf("%w: %s is less than the %s that an empty subvolume of btrfs needs to take a file",
			ErrTooSmall, bytesize.Format(l.Bytes), bytesize.Format(leastBtrfs))
	}
	return nil
}

func (l btrfsLimits) Make(name string, mode fs.FileMode, limit Limit, claim func(ID) error) (ID, error) {
	if err := checkLimit(limit); err != nil {
		return 0, err
	}
	return l.limited(limit, claim, func(id ID) error {
		return l.place(name, func(parent *os.File, first string) error {
			if err := btrfs.CreateSubvolume(parent, first, qgroupOf(id)); err != nil {
				return err
			}
			return l.d.Own(path.Join(path.Dir(name), first), 0, 0, mode)
		})
	})
}

// Copy needs no more room than the metadata takes.
func (l btrfsLimits) Copy(from, name string, limit Limit, claim func(ID) error) (id ID, skipped int, err error) {
	if skipped, err = l.Nested(from); err != nil {
		return 0, 0, err
	}
	if limit == (Limit{}) {
		if err = claim(0); err == nil {
			err = l.snapshot(from, name, 0)
		}
		return 0, skipped, err
	}
	if err = checkLimit(limit); err == nil {
		id, err = l.limited(limit, claim, func(id ID) error { return l.snapshot(from, name, qgroupOf(id)) })
	}
	return id, skipped, err
}

// Nested implements Snapshots.
func (l btrfsLimits) Nested(name string) (n int, err error) {
	err = withDirectory(l.d, name, func(f *os.File) (err error) {
		n, err = btrfs.CountNested(f)
		return err
	})
	return n, err
}

func (l btrfsLimits) snapshot(from, name string, group btrfs.QgroupID) error {
	return withDirectory(l.d, from, func(source *os.File) error {
		if id, err := btrfs.SubvolumeID(source); err != nil {
			return err
		} else if id == 0 {
			return fmt.Errorf("%w: csi/%s is a directory, and btrfs makes snapshots of subvolumes only",
				ErrUnsupported, from)
		}
		return l.place(name, func(parent *os.File, first string) error {
			if err := btrfs.CreateSnapshot(parent, first, source, group); err != nil {
				return err
			}
			return l.d.Unlock(path.Join(path.Dir(name), first)) // a pod may have made the directory immutable
		})
	})
}

// limited makes a qgroup with a limit, and a subvolume in it. On error neither is left.
func (l btrfsLimits) limited(limit Limit, claim func(ID) error, build func(ID) error) (ID, error) {
	id, err := l.newID(claim)
	if err != nil {
		return 0, err
	}
	if err = l.limit(id, limit); err == nil {
		err = build(id)
	}
	if err != nil {
		return 0, errors.Join(err, l.remove(id))
	}
	return id, nil
}

// Flush is syncfs(2).
func (l btrfsLimits) Flush(name string) error {
	return withDirectory(l.d, name, func(dir *os.File) error {
		if err := unix.Syncfs(int(dir.Fd())); err != nil {
			return &fs.PathError{Op: "syncfs", Path: dir.Name(), Err: err}
		}
		return nil
	})
}

// Settled looks whether the kernel is still freeing what was destroyed.
func (l btrfsLimits) Settled() (settled bool, err error) {
	err = withDirectory(l.d, ".", func(top *os.File) error {
		removed, err := btrfs.HasRemoved(top)
		settled = !removed
		return err
	})
	return settled, err
}

// place makes a subvolume under another name, and renames it. btrfs keeps the order from there on. A transaction is on
// the disk as a whole or not at all; only an fsync can write something by itself, into a log that is replayed after a
// crash, and subvolumes cannot be logged. Making one does not end the log, renaming one does (btrfs_rename,
// fs/btrfs/inode.c), hence the two names: from there on every fsync on the filesystem is a commit until the next one.
// So nothing done later is on the disk without this, and Sync of the directory that the subvolume was moved to writes
// everything, limits too. The first name could be a volume's, so that recovery removes what a crash leaves in staging.
func (l btrfsLimits) place(name string, create func(parent *os.File, first string) error) error {
	dir, first := path.Dir(name), "new."+rand.Text()
	err := withDirectory(l.d, dir, func(parent *os.File) error { return create(parent, first) })
	if err == nil {
		err = l.d.Rename(path.Join(dir, first), name)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, withDirectory(l.d, dir, func(parent *os.File) error {
		err := btrfs.DestroySubvolume(parent, first)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}))
}

// newID makes the qgroup of an ID that nobody has.
func (l btrfsLimits) newID(claim func(ID) error) (ID, error) {
	for range maxTries {
		id := randomID()
		if err := claim(id); err != nil {
			return 0, err
		}
		err := withDirectory(l.d, ".", func(top *os.File) error { return btrfs.CreateQgroup(top, qgroupOf(id)) })
		if !errors.Is(err, fs.ErrExist) {
			return id, err
		}
	}
	return 0, ErrExhausted
}

func randomID() ID {
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<groupBits-1<<32)) // never fails
	return ID(n.Int64()) + 1<<32
}

func (l btrfsLimits) Set(name string, id ID, limit Limit) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	return set(l, maxGroup, name, id, limit)
}

func (l btrfsLimits) limit(id ID, limit Limit) error {
	return withDirectory(l.d, ".", func(top *os.File) error {
		return btrfs.SetQgroupLimit(top, qgroupOf(id), uint64(limit.Bytes))
	})
}

func (l btrfsLimits) remove(id ID) error {
	err := withDirectory(l.d, ".", func(top *os.File) error { return btrfs.RemoveQgroup(top, qgroupOf(id)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (l btrfsLimits) Check(name string, id ID) (s State, err error) {
	err = l.inspect(name, func(top *os.File, subvolume uint64, groups []btrfs.QgroupID) error {
		switch {
		case len(groups) == 0:
			return nil
		case slices.Contains(groups, qgroupOf(id)):
			if err := btrfs.Rejoin(top, subvolume, qgroupOf(id)); err != nil {
				return fmt.Errorf("make the subvolumes in csi/%s count to the volume's limit: %w", name, err)
			}
			s.ID, s.Ordered = id, true
		default:
			s.ID = ID(slices.Max(groups).ID())
		}
		q, err := btrfs.QgroupUsage(top, qgroupOf(s.ID))
		s.Limit.Bytes = int64(q.Limit)
		return err
	})
	return s, err
}

// inspect calls do with csi/, and with the volumes' qgroups that a subvolume is in. A directory that is none has ID 0.
func (l btrfsLimits) inspect(name string, do func(top *os.File, id uint64, groups []btrfs.QgroupID) error) error {
	var id uint64
	err := withDirectory(l.d, name, func(dir *os.File) (err error) {
		id, err = btrfs.SubvolumeID(dir)
		return err
	})
	if err != nil {
		return err
	}
	return withDirectory(l.d, ".", func(top *os.File) error {
		if id == 0 {
			return do(top, 0, nil)
		}
		groups, err := btrfs.Groups(top, btrfs.NewQgroupID(0, id))
		if err != nil {
			return err
		}
		return do(top, id, slices.DeleteFunc(groups, func(q btrfs.QgroupID) bool { return !isOurs(q) }))
	})
}

// Usage reads all qgroups between the least and the greatest ID: one call of the kernel gives some fifty of them.
func (l btrfsLimits) Usage(ids []ID) (map[ID]Use, error) {
	all := make(map[ID]Use, len(ids))
	if len(ids) == 0 {
		return all, nil
	}
	for _, id := range ids {
		all[id] = Use{}
	}
	err := withDirectory(l.d, ".", func(top *os.File) error {
		found, err := btrfs.Qgroups(top, qgroupOf(slices.Min(ids)), qgroupOf(slices.Max(ids)))
		for _, q := range found {
			if _, asked := all[ID(q.ID.ID())]; asked {
				all[ID(q.ID.ID())] = Use{Bytes: int64(q.Referenced)}
			}
		}
		return err
	})
	return all, err
}

func (l btrfsLimits) enforce(_ context.Context, t Tree, _ func(context.Context) error) error {
	if err := checkID(t.ID, maxGroup); err != nil {
		return err
	}
	return l.inspect(t.Name, func(top *os.File, subvolume uint64, groups []btrfs.QgroupID) error {
		if subvolume == 0 {
			return fmt.Errorf("%w: csi/%[2]s is a directory, and btrfs limits subvolumes only: in csi/ run `btrfs "+
				"subvolume create %[2]s.new && cp -a --reflink=never %[2]s/. %[2]s.new/ && mv %[2]s %[2]s.old && "+
				"mv %[2]s.new %[2]s`, and try again",
				ErrUnsupported, t.Name)
		}
		if err := btrfs.CreateQgroup(top, qgroupOf(t.ID)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		own := btrfs.NewQgroupID(0, subvolume)
		if err := btrfs.AssignQgroup(top, own, qgroupOf(t.ID)); err != nil {
			return err
		}
		for _, q := range groups { // a snapshot can be in that of the volume it was made of
			if q != qgroupOf(t.ID) {
				if err := btrfs.UnassignQgroup(top, own, q); err != nil {
					return err
				}
			}
		}
		return btrfs.Rejoin(top, subvolume, qgroupOf(t.ID))
	})
}
