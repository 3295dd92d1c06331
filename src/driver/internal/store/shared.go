package store

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// ErrConcurrent says that another node works on a volume of a shared pool at this moment.
var ErrConcurrent = errors.New("volume is being worked on by another node")

// asConcurrent is an error, or ErrConcurrent where it says that another node of a shared pool was faster: what was to
// be moved is gone, or its place is taken.
func asConcurrent(d disk.FS, err error) error {
	if disk.IsShared(d) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)) {
		return fmt.Errorf("%w; try again: %w", ErrConcurrent, err)
	}
	return err
}

// confirm fails where a shared pool shows what is wrong, or nothing, and the record has come or gone since.
func (s Survey) confirm(d disk.FS, id string) error {
	if !s.Shared || s.Verdict() == Healthy || s.Verdict() == FinishCreate {
		return nil
	}
	now, _, err := readRecord(d, id)
	if err == nil && (now.Record != s.Record || now.Broken != s.Broken) {
		err = fmt.Errorf("%w: %s; try again", ErrConcurrent, id)
	}
	return err
}

// unfinishedAnywhere looks for the newest interrupted delete, in a shared pool in the directories of all nodes.
func unfinishedAnywhere(d disk.FS, id string) (name, node string, err error) {
	others, err := disk.OtherNodes(d)
	if err != nil {
		return "", "", err
	}
	for _, other := range append([]string{""}, others...) {
		found, err := unfinished(disk.NodeView(d, other), id)
		if err != nil && !(disk.IsShared(d) && errors.Is(err, fs.ErrNotExist)) { // a node may be without trash
			return "", "", err
		}
		if found > name {
			name, node = found, other
		}
	}
	return name, node, nil
}

// finishCreate moves a volume of a shared pool into place that its record has won. Any node may: the directory that the
// record names is there once. Where another node was faster, nothing is left to do.
func finishCreate(d disk.FS, node, id string) error {
	owner := disk.NodeView(d, node)
	err := owner.Rename(Staged(id), id)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there, lookErr := Directory(d, id); there || lookErr != nil {
			err = lookErr
		}
	}
	if err != nil {
		return err
	}
	return disk.SyncAll(owner, ".", disk.StagingDir)
}

// unprepare keeps the node whose view it is from placing its record after all: one that has paused may go on while
// another one clears its directories. A record that it has placed before is there to be finished; with another node's
// it has lost, and nothing needs what it has prepared.
func unprepare(d disk.FS, id string) error {
	if !disk.IsShared(d) {
		return nil
	}
	if err := Forget(d, id); err != nil {
		return err
	}
	now, r, err := readRecord(d, id)
	if err == nil && now.Record && r.Node == disk.NodeOf(d) {
		err = fmt.Errorf("%w: %s; try again", ErrConcurrent, id)
	}
	return err
}
