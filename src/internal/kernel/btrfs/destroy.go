package btrfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// maxBusy is how often DestroyTree starts again because somebody made a subvolume below while it worked.
const maxBusy = 10

// DestroyTree is DestroySubvolume for one that may hold others, at any depth and read-only ones too; they are destroyed
// first, deepest first. step is called before each, and its error ends the work. Where there are others, they and the
// subvolume leave all their qgroups, and lose their own limits: removing a name from a subvolume that is full would be
// EDQUOT. No limit of a qgroup of level 1 or more is changed.
func DestroyTree(ctx context.Context, parent *os.File, name string, step func(context.Context) error) error {
	for tries := 0; ; tries++ {
		if err := destroyNested(ctx, parent, name, step); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
		err := DestroySubvolume(parent, name)
		if !errors.Is(err, unix.ENOTEMPTY) || tries == maxBusy {
			return err
		}
	}
}

func destroyNested(ctx context.Context, parent *os.File, name string, step func(context.Context) error) error {
	top, err := idOf(parent, name)
	if err != nil {
		return err
	}
	// Depth first, so that each step destroys one, however many there are. Below, those on the way down are remembered.
	way, ready := []uint64{top}, ready{}
	for {
		child, err := firstNested(parent, way[len(way)-1])
		if err != nil {
			return err
		}
		if child != 0 {
			way = append(way, child)
			continue
		}
		if len(way) == 1 {
			return nil
		}
		if err := step(ctx); err != nil {
			return err
		}
		for _, id := range way[len(way)-2:] { // above too: its directory changes
			if err := ready.make(parent, id); err != nil {
				return err
			}
		}
		id := way[len(way)-1]
		args := &volArgsV2{flags: subvolumeSpecByID}
		binary.NativeEndian.PutUint64(args.name[:], id)
		err = do(parent, "destroy subvolume", ioctl.W, 63, args)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("destroy nested subvolume %d: %w", id, err)
		}
		delete(ready, id)
		way = way[:len(way)-1]
	}
}

// MakeWritable clears the read-only flag of a subvolume. It does nothing to a directory that is none.
func MakeWritable(subvolume *os.File) error {
	if is, err := IsSubvolume(subvolume); err != nil || !is {
		return err
	}
	var flags uint64
	err := do(subvolume, "read subvolume's flags", ioctl.R, 25, &flags)
	if err != nil || flags&subvolumeReadOnly == 0 {
		return err
	}
	flags &^= subvolumeReadOnly
	return do(subvolume, "set subvolume's flags", ioctl.W, 26, &flags)
}

// ready are subvolumes from which another one can be removed.
type ready map[uint64]bool

func (r ready) make(f *os.File, id uint64) error {
	if r[id] {
		return nil
	}
	r[id] = true
	return errors.Join(release(f, id), makeWritable(f, id))
}

// release takes a subvolume out of all qgroups and clears its own limit.
func release(f *os.File, id uint64) error {
	q := NewQgroupID(0, id)
	err := join(f, q, 0)
	if err == nil {
		err = SetQgroupLimit(f, q, 0)
	}
	if errors.Is(err, fs.ErrNotExist) { // quota is off, or the qgroup was removed
		return nil
	}
	return err
}

// makeWritable clears the read-only flag of a subvolume, since in a read-only one no other can be destroyed. It opens
// the subvolume by its file handle: nobody knows a path to it.
func makeWritable(f *os.File, id uint64) error {
	handle := binary.NativeEndian.AppendUint64(nil, firstFree) // struct btrfs_fid of fs/btrfs/export.h
	handle = binary.NativeEndian.AppendUint64(handle, id)
	handle = binary.NativeEndian.AppendUint32(handle, 0) // any generation
	fd, err := unix.OpenByHandleAt(int(f.Fd()), unix.NewFileHandle(handleType, handle), unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ESTALE) { // destroyed meanwhile
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open subvolume", Path: f.Name(), Err: err}
	}
	subvolume := os.NewFile(uintptr(fd), fmt.Sprintf("%s, subvolume %d", f.Name(), id))
	defer subvolume.Close()
	return MakeWritable(subvolume)
}

// idOf is the ID of the subvolume that has this name in parent; a directory that is none is EINVAL, a link ELOOP.
func idOf(parent *os.File, name string) (uint64, error) {
	f, err := openat.Open(parent, name, unix.O_DIRECTORY, openat.Beneath)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	id, err := SubvolumeID(f)
	if err == nil && id == 0 {
		err = openat.Failed("destroy subvolume", f.Name(), unix.EINVAL)
	}
	return id, err
}
