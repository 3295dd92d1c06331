// Package hostpathpv is what the modes of the legacy provisioner have in common: a directory, and the PersistentVolume
// with a hostPath source that stands for it.
package hostpathpv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/removetree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// mode lets every user write, as the predecessors do: a hostPath volume gets no owner by fsGroup.
const mode fs.FileMode = 0o777

// Condemned begins the name that a directory has while it is removed, so that half of one is never taken for a
// volume. No volume's name begins with a dot.
const Condemned = ".deleted-"

// MakeDirectory makes the directory of a volume durably, or takes the one that is there: no other claim has ever had
// its name, so an attempt that ended early has made it.
func MakeDirectory(dir *Directory, name string) error {
	if err := dir.Mkdir(name, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is there and is not a directory; move it away", filepath.Join(dir.Name(), name))
	}
	if info.Mode().Perm() != mode { // the umask's doing, or that of a default ACL
		if err := dir.Chmod(name, mode); err != nil {
			return err
		}
	}
	return dir.File.Sync()
}

// RemoveDirectory takes the directory of a deleted volume away under its last name, Condemned and the
// PersistentVolume's, and logs that. One that had gone already is no error.
func RemoveDirectory(ctx context.Context, log *slog.Logger, dir *Directory, name, pv string) error {
	found, err := removeDirectory(ctx, dir, name, Condemned+pv)
	if err != nil {
		return err
	}
	log = log.With(logging.KeyPV, pv, logging.KeyPath, filepath.Join(dir.Name(), name))
	if found {
		log.InfoContext(ctx, "removed the directory of a deleted volume")
	} else {
		log.InfoContext(ctx, "the directory of a deleted volume was gone already")
	}
	return nil
}

// removeDirectory removes first what an earlier attempt has left under the last name: a pod that still knew the path
// may have had an empty directory made there since.
func removeDirectory(ctx context.Context, dir *Directory, name, last string) (found bool, err error) {
	top := dir.File
	if _, err := dir.Lstat(last); err == nil {
		if err := removetree.Remove(ctx, top, last, nil); err != nil {
			return false, err
		}
	}
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, top.Sync()
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, fmt.Errorf("%s is not a directory; see what it is, and move it away",
			filepath.Join(dir.Name(), name))
	}
	if err := dir.Rename(name, last); err != nil {
		return false, err
	}
	if err := top.Sync(); err != nil {
		return false, err
	}
	if err := removetree.Remove(ctx, top, last, nil); err != nil {
		return false, err
	}
	return true, top.Sync()
}
