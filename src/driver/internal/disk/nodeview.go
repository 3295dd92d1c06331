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
// the trash, or prepared and not placed, is in directories of the node's own (.hpp/staging/<node>, .hpp/trash/<node>).
func Shared(host Host, node string) Host { return sharedHost{host, node} }

func (h sharedHost) Open(path string) (FS, error) {
	d, err := h.Host.Open(path)
	if err != nil {
		return nil, err
	}
	return nodeView{d, h.node}, nil
}

// nodeView is an FS in which one node's names in staging and trash stand for those in its own directories.
type nodeView struct {
	FS
	node string
}

// IsShared reports whether other nodes work on a pool's disk as well.
func IsShared(d FS) bool { _, is := d.(nodeView); return is }

// NodeOf is the node whose view of a disk this is, "" where it has none.
func NodeOf(d FS) string { v, _ := d.(nodeView); return v.node }

// AllNodes is the disk with what is of all nodes.
func AllNodes(d FS) FS {
	if v, is := d.(nodeView); is {
		return v.FS
	}
	return d
}

// NodeView is the disk as another node sees it; as it is where no other node does, or none is named.
func NodeView(d FS, node string) FS {
	if v, is := d.(nodeView); is && node != "" {
		return nodeView{v.FS, node}
	}
	return d
}

// OtherNodes are the nodes that have directories of their own on a disk, sorted, without the one whose view this is.
func OtherNodes(d FS) (nodes []string, err error) {
	v, is := d.(nodeView)
	if !is {
		return nil, nil
	}
	for _, dir := range []string{StagingDir, TrashDir} {
		entries, err := v.FS.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if _, err := v.FS.Stat(path.Join(dir, e.Name, "record.json")); e.Dir && e.Name != v.node && err != nil {
				nodes = append(nodes, e.Name) // no trash entry of the time when one node had the pool for itself
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// at is where a name lies on the disk.
func (v nodeView) at(name string) string {
	for _, dir := range []string{StagingDir, TrashDir} {
		if rest, below := strings.CutPrefix(name+"/", dir+"/"); below {
			return path.Join(dir, v.node, rest)
		}
	}
	if _, prepared := PreparedFor(name); prepared {
		return path.Join(StagingDir, v.node, path.Base(name))
	}
	return name
}

func (v nodeView) ReadFile(name string) ([]byte, error) { return v.FS.ReadFile(v.at(name)) }

// ReadDir implements FS. What the node has prepared is listed where it is to be placed.
func (v nodeView) ReadDir(name string) ([]Entry, error) {
	entries, err := v.FS.ReadDir(v.at(name))
	if err != nil || name != VolumesDir {
		return entries, err
	}
	staged, err := v.FS.ReadDir(v.at(StagingDir))
	for _, e := range staged {
		if _, prepared := PreparedFor(e.Name); prepared {
			entries = append(entries, e)
		}
	}
	return entries, err
}

func (v nodeView) Stat(name string) (Info, error) { return v.FS.Stat(v.at(name)) }

func (v nodeView) Mkdir(name string, mode fs.FileMode) error { return v.FS.Mkdir(v.at(name), mode) }

func (v nodeView) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return v.FS.WriteFile(v.at(name), data, mode)
}

func (v nodeView) Own(name string, uid, gid int, mode fs.FileMode) error {
	return v.FS.Own(v.at(name), uid, gid, mode)
}

func (v nodeView) Unlock(name string) error { return v.FS.Unlock(v.at(name)) }

// Rename implements FS. A prepared file is placed with link(2), which only one node's can be: network filesystems do
// not have RENAME_NOREPLACE. After an error it may have been placed all the same.
func (v nodeView) Rename(from, to string) error {
	if name, prepared := PreparedFor(from); !prepared || name != to {
		return v.FS.Rename(v.at(from), v.at(to))
	}
	err := v.FS.Link(v.at(from), to)
	if errors.Is(err, fs.ErrExist) && v.same(v.at(from), to) { // a network filesystem has asked its server twice
		err = nil
	}
	if err != nil {
		return err
	}
	return v.FS.Remove(v.at(from))
}

func (v nodeView) same(a, b string) bool {
	first, errA := v.FS.Stat(a)
	second, errB := v.FS.Stat(b)
	return errA == nil && errB == nil && first.Same(second)
}

func (v nodeView) Replace(from, to string) error { return v.FS.Replace(v.at(from), v.at(to)) }

func (v nodeView) Link(from, to string) error { return v.FS.Link(v.at(from), v.at(to)) }

func (v nodeView) Remove(name string) error { return v.FS.Remove(v.at(name)) }

func (v nodeView) RemoveTree(ctx context.Context, name string, step func(context.Context) error) error {
	return v.FS.RemoveTree(ctx, v.at(name), step)
}

func (v nodeView) Open(name string) (Handle, error) { return v.FS.Open(v.at(name)) }

func (v nodeView) Sync(name string) error { return v.FS.Sync(v.at(name)) }
