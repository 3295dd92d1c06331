package disk

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// sharedHost is a Host whose pools other nodes have as well.
type sharedHost struct {
	Host
	node string
}

// Shared gives what a host has as one of several nodes sees it that have the same filesystem: what is in staging, in
// the trash, or prepared and not placed, is in a room of the node's own (.hpp/staging/<node>, .hpp/trash/<node>).
func Shared(host Host, node string) Host { return sharedHost{host, node} }

// Open implements Host.
func (h sharedHost) Open(path string) (FS, error) {
	d, err := h.Host.Open(path)
	if err != nil {
		return nil, err
	}
	return room{d, h.node}, nil
}

// room is an FS in which one node's names in staging and trash stand for those in its room.
type room struct {
	FS
	node string
}

// IsShared reports whether other nodes work on a pool's disk as well.
func IsShared(d FS) bool { _, is := d.(room); return is }

// NodeOf is the node whose room a disk is seen from, "" where it has none.
func NodeOf(d FS) string { r, _ := d.(room); return r.node }

// Whole is the disk with all rooms in it.
func Whole(d FS) FS {
	if r, is := d.(room); is {
		return r.FS
	}
	return d
}

// RoomOf is the disk as another node sees it; as it is where no other node does, or none is named.
func RoomOf(d FS, node string) FS {
	if r, is := d.(room); is && node != "" {
		return room{r.FS, node}
	}
	return d
}

// OtherRooms are the nodes that have a room on a disk, sorted, without the one whose view this is.
func OtherRooms(d FS) (nodes []string, err error) {
	r, is := d.(room)
	if !is {
		return nil, nil
	}
	for _, dir := range []string{StagingDir, TrashDir} {
		entries, err := r.FS.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if _, err := r.FS.Stat(path.Join(dir, e.Name, "record.json")); e.Dir && e.Name != r.node && err != nil {
				nodes = append(nodes, e.Name) // no trash entry of the time when one node had the pool for itself
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// at is where a name of the room lies.
func (r room) at(name string) string {
	for _, dir := range []string{StagingDir, TrashDir} {
		if rest, below := strings.CutPrefix(name+"/", dir+"/"); below {
			return path.Join(dir, r.node, rest)
		}
	}
	if _, prepared := PreparedFor(name); prepared {
		return path.Join(StagingDir, r.node, path.Base(name))
	}
	return name
}

// ReadFile implements FS.
func (r room) ReadFile(name string) ([]byte, error) { return r.FS.ReadFile(r.at(name)) }

// ReadDir implements FS. What the node has prepared is listed where it is to be placed.
func (r room) ReadDir(name string) ([]Entry, error) {
	entries, err := r.FS.ReadDir(r.at(name))
	if err != nil || name != VolumesDir {
		return entries, err
	}
	staged, err := r.FS.ReadDir(r.at(StagingDir))
	for _, e := range staged {
		if _, prepared := PreparedFor(e.Name); prepared {
			entries = append(entries, e)
		}
	}
	return entries, err
}

// Stat implements FS.
func (r room) Stat(name string) (Info, error) { return r.FS.Stat(r.at(name)) }

// Mkdir implements FS.
func (r room) Mkdir(name string, mode fs.FileMode) error { return r.FS.Mkdir(r.at(name), mode) }

// WriteFile implements FS.
func (r room) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return r.FS.WriteFile(r.at(name), data, mode)
}

// Own implements FS.
func (r room) Own(name string, uid, gid int, mode fs.FileMode) error {
	return r.FS.Own(r.at(name), uid, gid, mode)
}

// Unlock implements FS.
func (r room) Unlock(name string) error { return r.FS.Unlock(r.at(name)) }

// Rename implements FS. A prepared file is placed with link(2), which only one node's can be: network filesystems do
// not have RENAME_NOREPLACE. After an error it may have been placed all the same.
func (r room) Rename(from, to string) error {
	if name, prepared := PreparedFor(from); !prepared || name != to {
		return r.FS.Rename(r.at(from), r.at(to))
	}
	err := r.FS.Link(r.at(from), to)
	if errors.Is(err, fs.ErrExist) && r.same(r.at(from), to) { // a network filesystem has asked its server twice
		err = nil
	}
	if err != nil {
		return err
	}
	return r.FS.Remove(r.at(from))
}

func (r room) same(a, b string) bool {
	first, errA := r.FS.Stat(a)
	second, errB := r.FS.Stat(b)
	return errA == nil && errB == nil && first.Same(second)
}

// Replace implements FS.
func (r room) Replace(from, to string) error { return r.FS.Replace(r.at(from), r.at(to)) }

// Link implements FS.
func (r room) Link(from, to string) error { return r.FS.Link(r.at(from), r.at(to)) }

// Remove implements FS.
func (r room) Remove(name string) error { return r.FS.Remove(r.at(name)) }

// RemoveTree implements FS.
func (r room) RemoveTree(ctx context.Context, name string, step func(context.Context) error) error {
	return r.FS.RemoveTree(ctx, r.at(name), step)
}

// Open implements FS.
func (r room) Open(name string) (Handle, error) { return r.FS.Open(r.at(name)) }

// Sync implements FS.
func (r room) Sync(name string) error { return r.FS.Sync(r.at(name)) }
