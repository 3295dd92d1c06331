// Package backend holds what makes a volume's directory and keeps it to its size, and chooses it for a pool. Plain works on every
// filesystem and enforces nothing; Quota uses the filesystem's own quota.
package backend

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// Plain makes ordinary directories.
type Plain struct{}

// Name is what records and metrics call this backend.
func (Plain) Name() string { return NamePlain }

// Enforcement is none: a pod can write past its volume's size until the filesystem is full.
func (Plain) Enforcement() volume.Enforcement { return volume.None }

// KeepsOrder is false: a filesystem may write one directory without another.
func (Plain) KeepsOrder(poolfs.FS, string, volume.Record) bool { return false }

// Make makes the directory with the record's owner and mode.
func (Plain) Make(disk poolfs.FS, name string, r volume.Record) error {
	if err := disk.Mkdir(name, unixMode(r.Mode)); err != nil {
		return fmt.Errorf("make the directory of volume %s: %w", r.ID, err)
	}
	return own(disk, name, r)
}

// own gives a directory, made with the record's mode, to the record's owner.
func own(disk poolfs.FS, name string, r volume.Record) error {
	if r.UID == 0 && r.GID == 0 {
		return nil
	}
	if err := disk.Chown(name, r.UID, r.GID); err != nil {
		return fmt.Errorf("give volume %s to %d:%d: %w", r.ID, r.UID, r.GID, err)
	}
	if err := disk.Chmod(name, unixMode(r.Mode)); err != nil { // chown clears setuid and setgid
		return fmt.Errorf("set the mode of volume %s: %w", r.ID, err)
	}
	return nil
}

// Hold has nothing to hold.
func (Plain) Hold(poolfs.FS, string, volume.Record) error { return nil }

// Loose knows of no directory that should count somewhere.
func (Plain) Loose(poolfs.FS, string, volume.Record) (bool, error) { return false, nil }

// Gather has nothing to count.
func (Plain) Gather(context.Context, poolfs.FS, string, volume.Record) error { return nil }

// Drop has nothing to drop.
func (Plain) Drop(poolfs.FS, volume.Record) error { return nil }

// Stats is the whole filesystem's use: nothing cheaper than a walk knows a plain directory's own.
func (Plain) Stats(disk poolfs.FS, _ string, _ volume.Record) (volume.Stats, error) {
	s, err := disk.Space()
	if err != nil {
		return volume.Stats{}, fmt.Errorf("read the filesystem's use: %w", err)
	}
	return volume.Stats{
		Bytes: s.Size, BytesUsed: s.Used, BytesAvailable: s.Free,
		Inodes: s.Inodes, InodesUsed: s.InodesUsed, InodesAvailable: s.InodesFree,
	}, nil
}

// unixMode turns permission bits as chmod(1) writes them (07777) into Go's.
func unixMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, m := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= m
		}
	}
	return mode
}
