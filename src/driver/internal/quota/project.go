package quota

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
)

// maxTries is how many IDs Make tries where each turns out to be somebody else's.
const maxTries = 100

// projectLimits is a pool on XFS or ext4.
type projectLimits struct {
	d disk.FS
	q *Quotas
}

func (l projectLimits) Make(name string, mode fs.FileMode, limit Limit, claim func(ID) error) (ID, error) {
	for range maxTries {
		id, err := l.newID(claim)
		if err != nil {
			return 0, err
		}
		alone, err := l.mkdir(name, mode, id, limit)
		if err != nil {
			return 0, err
		}
		if alone {
			return id, nil
		}
	}
	return 0, ErrExhausted
}

func (l projectLimits) newID(claim func(ID) error) (ID, error) {
	h, err := l.d.Open(".")
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.Close() }() // nothing was written through it
	id, err := l.q.filesystem(h.Dev).unused(h.File)
	if err != nil {
		return 0, err
	}
	return ID(id), claim(ID(id))
}

// mkdir makes a directory that counts to an ID, alone: else there is none, and the ID has no limit.
func (l projectLimits) mkdir(name string, mode fs.FileMode, id ID, limit Limit) (alone bool, err error) {
	if err := l.limit(id, limit); err != nil {
		return false, err
	}
	if err = l.d.Mkdir(name, mode); err == nil {
		alone, err = l.tag(name, uint32(id))
	}
	if !alone {
		err = errors.Join(err, l.limit(id, Limit{}))
	}
	return alone, err
}

// tag makes a new directory count to an ID; where anything else does too, the directory is removed.
func (l projectLimits) tag(name string, id uint32) (alone bool, err error) {
	err = withDirectory(l.d, name, func(dir *os.File) error {
		if err := projectquota.SetProjectID(dir, id, true); err != nil {
			return err
		}
		q, err := projectquota.Get(dir, id)
		alone = err == nil && q.Usage.Inodes == 1
		return err
	})
	if !alone {
		err = errors.Join(err, l.d.Remove(name))
	}
	return alone, err
}

func (l projectLimits) Check(name string, _ ID) (s State, err error) {
	err = withDirectory(l.d, name, func(dir *os.File) error {
		id, inherit, err := projectquota.ProjectID(dir)
		if err != nil || !inherit || id < firstID {
			return err
		}
		q, err := projectquota.Get(dir, id)
		s = State{ID: ID(id), Limit: Limit{Bytes: int64(q.Limit.Bytes), Inodes: int64(q.Limit.Inodes)}}
		return err
	})
	return s, err
}

func (l projectLimits) Set(name string, id ID, limit Limit) error {
	return set(l, projectquota.MaxID, name, id, limit)
}

func (l projectLimits) limit(id ID, limit Limit) error {
	return withDirectory(l.d, ".", func(top *os.File) error {
		most := projectquota.Limit{Bytes: uint64(limit.Bytes), Inodes: uint64(limit.Inodes)}
		return projectquota.SetLimit(top, uint32(id), most)
	})
}

func (l projectLimits) remove(id ID) error {
	var q projectquota.Quota
	err := withDirectory(l.d, ".", func(top *os.File) (err error) {
		q, err = projectquota.Get(top, uint32(id))
		return err
	})
	switch {
	case err != nil:
		return err
	case q.Usage != (projectquota.Usage{}):
		return fmt.Errorf("%s and %d inodes count to project %d: %w", bytesize.Format(int64(q.Usage.Bytes)),
			q.Usage.Inodes,
			id, syscall.EBUSY)
	case q.Limit == (projectquota.Limit{}):
		return nil
	default:
		return l.limit(id, Limit{})
	}
}

func (l projectLimits) Usage(ids []ID) (map[ID]Use, error) {
	all := make(map[ID]Use, len(ids))
	err := withDirectory(l.d, ".", func(top *os.File) error {
		for _, id := range ids {
			if checkID(id, projectquota.MaxID) != nil {
				all[id] = Use{} // nothing can count to it
				continue
			}
			q, err := projectquota.Get(top, uint32(id))
			if err != nil {
				return err
			}
			all[id] = Use{Bytes: int64(q.Usage.Bytes), Inodes: int64(q.Usage.Inodes)}
		}
		return nil
	})
	return all, err
}

// enforce: a directory that counts has nothing in it that does not, wherever the work was interrupted.
func (l projectLimits) enforce(ctx context.Context, t Tree, step func(context.Context) error) error {
	if t.ID != 0 {
		if err := checkID(t.ID, projectquota.MaxID); err != nil {
			return err
		}
	}
	id, inherits := uint32(t.ID), t.ID != 0
	err := disk.Walk(ctx, l.d, t.Name, t.Cursor, func(file *os.File, isDir bool) error {
		if err := joinProject(file, id, isDir && inherits); err != nil {
			return err
		}
		return step(ctx)
	})
	if err != nil {
		return err
	}
	return withDirectory(l.d, t.Name, func(dir *os.File) error {
		if err := unix.Syncfs(int(dir.Fd())); err != nil {
			return &fs.PathError{Op: "syncfs", Path: dir.Name(), Err: err}
		}
		if err := joinProject(dir, id, inherits); err != nil {
			return err
		}
		return dir.Sync()
	})
}

// joinProject makes a file or directory part of a project, 0 for none, and writes only what changes. A directory hands
// a project on. A file that has a name in another volume too counts there: that is an error.
func joinProject(file *os.File, id uint32, handsOn bool) error {
	is, inherits, err := projectquota.ProjectID(file)
	if err != nil || (is == id && inherits == handsOn) {
		return err
	}
	if !handsOn && id != 0 && is != id && is >= firstID {
		var st unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &st); err != nil {
			return &fs.PathError{Op: "stat", Path: file.Name(), Err: err}
		}
		if st.Nlink > 1 {
			return &fs.PathError{
				Op: "count", Path: file.Name(),
				Err: fmt.Errorf("it has several names and counts to project "+
					"%d, which is another volume's: copy the data again without hard links to other volumes", is),
			}
		}
	}
	return projectquota.SetProjectID(file, id, handsOn)
}
