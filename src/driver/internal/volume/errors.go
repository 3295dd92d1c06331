package volume

import (
	"errors"
	"fmt"
)

// Sentinels of everything that can go wrong with a volume; package csi maps each to one gRPC code in one table.
var (
	ErrInvalidID      = errors.New("invalid volume id")
	ErrInvalid        = errors.New("invalid request")             // bad input; the message names the field
	ErrPoolUnknown    = errors.New("pool is in no configuration") // neither configured nor remembered
	ErrPoolAbsent     = errors.New("pool is absent")              // configured or remembered, not usable now
	ErrPoolNotHere    = errors.New("pool creates no volumes on this node")
	ErrNoSpace        = errors.New("no room in the pool")
	ErrOutOfRange     = errors.New("size outside the limits")
	ErrBelowUse       = errors.New("size is below what the volume holds")
	ErrNotEnforced    = errors.New("the quota that holds the volume to its size is off")
	ErrNotCounted     = errors.New("not everything in the volume counts to its size")
	ErrUnsupported    = errors.New("the pool's backend cannot do that")
	ErrExists         = errors.New("volume exists with other properties")
	ErrNotFound       = errors.New("volume not found")
	ErrLost           = errors.New("volume has lost its data")
	ErrBroken         = errors.New("volume's record cannot be used")
	ErrBusy           = errors.New("volume is being worked on")
	ErrPublished      = errors.New("volume is still published")
	ErrTargetTaken    = errors.New("target path is taken")
	ErrSingleWriter   = errors.New("volume is already published elsewhere on this node")
	ErrClusterUnknown = errors.New("the Kubernetes API did not answer")
)

// InvalidIDError is ErrInvalidID with the id, shortened and quoted.
type InvalidIDError struct{ ID string }

func (e *InvalidIDError) Error() string {
	id := e.ID
	if len(id) > 64 {
		id = id[:64] + "…"
	}
	return fmt.Sprintf("volume id %q: must be 1 to 128 of the characters a-z A-Z 0-9 _ . - and start with a letter or digit", id)
}

// Is makes errors.Is(err, ErrInvalidID) true.
func (e *InvalidIDError) Is(target error) bool { return target == ErrInvalidID }
