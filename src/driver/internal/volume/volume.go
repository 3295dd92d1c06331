// Package volume is what the driver does with volumes: they are made, published, grown and deleted in pools, each under
// the lock of its id. It knows no gRPC, no CSI and no Kubernetes, and leaves the order of steps on the disk to store.
package volume

import (
	"errors"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Errors of volumes; package csi maps them, with those of the packages below, to gRPC codes in one table.
var (
	ErrInvalid      = errors.New("invalid request") // bad input; the message names the field
	ErrOutOfRange   = errors.New("size outside the limits")
	ErrBelowUse     = errors.New("size is below what the volume uses")
	ErrNotEnforced  = errors.New("the volume is not held to its size")
	ErrUnsupported  = errors.New("that cannot be done with this volume")
	ErrExists       = errors.New("volume exists with other properties")
	ErrLost         = errors.New("volume has lost its data")
	ErrUncertain    = errors.New("it is not certain that the volume is gone")
	ErrBusy         = errors.New("volume is being worked on")
	ErrFilling      = errors.New("its data is not there yet")         // wait
	ErrEnforcing    = errors.New("its files are being made to count") // wait
	ErrCopied       = errors.New("it is being copied")
	ErrSource       = errors.New("its source cannot be copied now")
	ErrPublished    = errors.New("volume is published")
	ErrLeaving      = errors.New("the volume is being moved to another node")
	ErrTargetTaken  = errors.New("target path is taken")
	ErrSingleWriter = errors.New("volume is already published elsewhere on this node")
)

// Spec is a request for a volume, complete and validated by the caller except for the id.
type Spec struct {
	ID, Pool        string
	Among           []string // the pools that it may be in where its class names several; then Pool is empty
	Bytes, MaxBytes int64    // the size asked for, and the largest acceptable one, 0 for no limit
	// Inodes limits the number of files, 0 means no limit; with InodesFrom store.Derived the size decides.
	Inodes     int64
	InodesFrom store.InodesFrom
	Mode       fs.FileMode // of the volume's root directory, as UID and GID
	UID, GID   int
	OnDelete   store.Disposal
	Claim      nodeapi.Claim
	Parameters map[string]string // kept in the record as they were given
	Ephemeral  bool              // an inline volume, the only kind that Unpublish deletes
	Source     *store.Source     // what its data is a copy of, nil for an empty volume
	// Remote is the size in bytes of a source on another node, 0 of one on this node. Fill brings its data.
	Remote int64
}

// Pools are those that the volume may be in, one at least.
func (s Spec) Pools() []string {
	if len(s.Among) > 0 {
		return s.Among
	}
	return []string{s.Pool}
}

// SnapshotSpec is a request for a snapshot of a volume.
type SnapshotSpec struct {
	ID, Volume string
	BestEffort bool // pods may write to the volume while it is copied file by file
}

// Said is what a caller knows of a volume in Kubernetes, so that nobody has to be asked.
type Said struct {
	PV    nodeapi.PersistentVolume
	Named bool // PV names the volume; else none does
}

// Volume is what the manager answers about a volume.
type Volume struct {
	store.Record
	Enforcement quota.Enforcement
}

// Condition is a volume's or a pool's health in one word.
type Condition string

// Conditions, after the states of CSI 1.13's volume health.
const (
	Healthy      Condition = "Healthy"
	Degraded     Condition = "Degraded"     // usable, but something is wrong
	Inaccessible Condition = "Inaccessible" // cannot be used now; the data may be there
	DataLoss     Condition = "DataLoss"     // the data is gone
)

// Health is a condition with the reason in CamelCase and a sentence for a person.
type Health struct {
	Condition       Condition
	Reason, Message string
}

// Stats is the use of a volume in bytes and inodes; where nothing is enforced, of the whole filesystem.
type Stats struct {
	Bytes, BytesUsed, BytesAvailable    int64
	Inodes, InodesUsed, InodesAvailable int64
}

// PublishRequest asks for a volume at a target path.
type PublishRequest struct {
	ID, Target string // the target is absolute, below the kubelet's directory
	bindmount.Options
	SingleWriter bool   // refuses a second target (SINGLE_NODE_SINGLE_WRITER, ReadWriteOncePod)
	Inline       *Spec  // makes the volume first when it does not exist; nil for persistent volumes
	Pool         string // of a persistent volume, as its PersistentVolume names it; "" where that names none
}
