package pool

import (
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
)

// WaitingClaim is a claim of one of the driver's StorageClasses that has no volume.
type WaitingClaim struct {
	Claim records.Claim
	Pool  string // the class's storagePool
	Bytes int64
	Since time.Time // its creation
}
