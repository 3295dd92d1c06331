package recovery

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
)

// EnsureLayout makes the driver's directories, those that are missing, and closes csi/ to everyone but root:
// volumes may be world-writable inside.
func EnsureLayout(d disk.FS) error {
	info, err := d.Stat(".")
	if err != nil {
		return fmt.Errorf("look at csi/: %w", err)
	}
	if info.Mode.Perm() != 0o700 {
		if err := d.Own(".", info.UID, info.GID, 0o700); err != nil {
			return fmt.Errorf("close csi/ to other users: %w", err)
		}
	}
	for _, dir := range []string{disk.MetaDir, disk.VolumesDir, disk.StagingDir, disk.TrashDir} {
		if err := d.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make csi/%s: %w", dir, err)
		}
	}
	// Not for what was just made alone: a driver that was killed in the last step of a delete is asked again,
	// finds nothing and says that it is done. On btrfs the move out of csi/ is on the disk only with this;
	// elsewhere it was before the record moved.
	if err := disk.SyncAll(d, ".", disk.MetaDir); err != nil {
		return err
	}
	return trash.EnsureSpare(d)
}

// HasNoVolumes reports whether csi/ has nothing but the driver's own directory.
func HasNoVolumes(d disk.Reader) (bool, error) {
	entries, err := d.ReadDir(".")
	for _, e := range entries {
		if e.Name != disk.MetaDir {
			return false, err
		}
	}
	return true, err
}
