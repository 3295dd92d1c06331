package backend

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Choice is the backend for a pool.
type Choice struct {
	volume.Backend
	// Why says why sizes are not enforced, "" where they are.
	Why string
	// Enabled tells that quota was switched on just now, which changes the filesystem for good.
	Enabled bool
}

// Choose looks at what quota the filesystem of an open pool has on, and gives the backend for it. Only where quota is required does it
// switch one on (btrfs).
func Choose(disk poolfs.FS, want poolspec.Quota) (Choice, error) {
	if want == poolspec.QuotaNone {
		return Choice{Backend: Plain{}, Why: "the pool's configuration says quota: none"}, nil
	}
	quotas, ok := poolfs.QuotasOf(disk)
	if !ok {
		return Choice{Backend: Plain{}, Why: "the driver can use quota on btrfs, XFS and ext4 only"}, nil
	}
	on, why, err := quotas.Quota()
	if errors.Is(err, fs.ErrPermission) && want == poolspec.QuotaAuto {
		return Choice{Backend: Plain{}, Why: fmt.Sprintf("the driver may not ask what quota the filesystem has on: %v", err)}, nil
	}
	if err != nil {
		return Choice{}, fmt.Errorf("see what quota the filesystem has on: %w", err)
	}
	enabled := false
	if on == poolfs.QuotaOff && want == poolspec.QuotaRequired {
		if on, why, err = enable(quotas, why); err != nil {
			return Choice{}, err
		}
		enabled = on != poolfs.QuotaOff
	}
	if on == poolfs.QuotaProject {
		if err := uncount(quotas); err != nil {
			on, why = poolfs.QuotaOff, err.Error()
		}
	}
	if on == poolfs.QuotaOff {
		return Choice{Backend: Plain{}, Why: why}, nil
	}
	return Choice{Backend: Quota{kind: on}, Enabled: enabled}, nil
}

// enable switches quota on where the filesystem can, and looks again; else why says why not.
func enable(quotas poolfs.Quotas, without string) (on poolfs.Quota, why string, err error) {
	switch err := quotas.EnableQuota(); {
	case errors.Is(err, poolfs.ErrNoQuota):
		return poolfs.QuotaOff, without, nil
	case err != nil:
		return poolfs.QuotaOff, fmt.Sprintf("quota could not be switched on: %v", err), nil
	}
	if on, why, err = quotas.Quota(); err != nil {
		return poolfs.QuotaOff, "", fmt.Errorf("see what quota the filesystem has on: %w", err)
	}
	return on, why, nil
}

// uncount takes the driver's own directories out of any project: a rename into one that hands its project on fails with EXDEV.
func uncount(quotas poolfs.Quotas) error {
	for _, dir := range []string{".", poolfs.MetaDir, poolfs.VolumesDir, poolfs.StagingDir, poolfs.TrashDir} {
		number, err := quotas.CountedBy(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && number != 0 {
			err = quotas.Count(dir, 0)
		}
		if err != nil {
			return fmt.Errorf("csi/%s cannot be taken out of its project: %w", dir, err)
		}
	}
	return nil
}
