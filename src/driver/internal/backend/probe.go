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
	// Off tells that the filesystem could have quota, and nobody has switched it on.
	Off bool
	// Enabled tells that quota was switched on just now, which changes the filesystem for good.
	Enabled bool
	// Left are the projects that the driver's own directories counted to and were just taken out of.
	Left []poolfs.Account
}

// Choose looks at what quota the filesystem of an open pool has on, and gives the backend for it. Only where quota is required does it
// switch one on (btrfs), or lift an admin's limit from the pool's directory.
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
	if on == poolfs.QuotaOff {
		return Choice{Backend: Plain{}, Why: why, Off: true}, nil
	}
	var left []poolfs.Account
	if on == poolfs.QuotaProject {
		if left, why = leaveProjects(quotas, want); why != "" {
			return Choice{Backend: Plain{}, Why: why, Left: left}, nil
		}
	}
	return Choice{Backend: Quota{kind: on}, Enabled: enabled, Left: left}, nil
}

// spareNumber is one that no pool gives a volume: the first after all ranges.
const spareNumber = (firstRange + ranges) * RangeSize

// Try makes sure that the driver may set limits too, which a look at the quota does not tell: in a user namespace of its own it may not.
// It sets a limit as it is, once when a pool comes into use.
func Try(disk poolfs.FS, found Choice) Choice {
	quotas, ok := poolfs.QuotasOf(disk)
	if !ok || found.Backend != (Quota{kind: poolfs.QuotaProject}) { // btrfs does not even let it look
		return found
	}
	if why := mayNotLimit(quotas); why != "" {
		return Choice{Backend: Plain{}, Why: why}
	}
	return found
}

// mayNotLimit says why the driver may not set limits, "" where it may.
func mayNotLimit(quotas poolfs.Quotas) (why string) {
	spare, err := quotas.Account(spareNumber)
	if err == nil {
		err = quotas.SetLimit(spareNumber, spare.Limit)
	}
	if errors.Is(err, fs.ErrPermission) { // anything else each volume tells for itself
		return fmt.Sprintf("the driver may not set limits (%v): it must be privileged, and in the node's own user namespace", err)
	}
	return ""
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
