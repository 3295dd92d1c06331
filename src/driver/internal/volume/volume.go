// Package volume is the heart of the driver: what a volume is and the order in which it is made, published, deleted
// and recovered. It knows no gRPC, no CSI and no Kubernetes; it talks to the disk through poolfs and to everything else
// through the small interfaces in ports.go.
package volume

import (
	"io/fs"
	"regexp"
	"time"
)

// Disposal says what deleting a volume does with its data.
type Disposal string

// The values of the StorageClass parameter onDelete.
const (
	Trash  Disposal = "trash"  // kept in the pool's trash for its retention, then purged (default)
	Purge  Disposal = "purge"  // purged as soon as the worker gets to it, whatever the retention
	Retain Disposal = "retain" // kept in the pool's trash until an admin removes it
)

// Enforcement says how far a backend holds a volume to its size.
type Enforcement string

// Levels of enforcement, also the PV attribute `enforcement`.
const (
	Strict      Enforcement = "strict"
	Cooperative Enforcement = "cooperative"
	None        Enforcement = "none"
)

// Claim is the PersistentVolumeClaim, or for an inline volume the pod, that a volume was made for.
type Claim struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Spec is a request for a volume, complete and validated by the caller except for the id.
type Spec struct {
	ID   string
	Pool string
	// Bytes is the size asked for; MaxBytes the largest acceptable one, 0 for no limit.
	Bytes, MaxBytes int64
	// Inodes limits the number of files; 0 means no limit.
	Inodes int64
	// Mode, UID and GID are those of the volume's root directory.
	Mode     fs.FileMode
	UID, GID int
	OnDelete Disposal
	Claim    Claim
	// Parameters are kept in the record as they were given.
	Parameters map[string]string
	// Ephemeral marks an inline volume, the only kind that Unpublish deletes.
	Ephemeral bool
}

// Record is the file that says what a volume is (csi/.hpp/volumes/<id>.json).
type Record struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Pool    string `json:"pool"`
	Bytes   int64  `json:"bytes"`
	Inodes  int64  `json:"inodes,omitempty"`
	Backend string `json:"backend"`
	// ProjectID is the number of the volume in the filesystem's quota: a project id, or N of btrfs's qgroup 1/N. 0 where nothing is enforced.
	ProjectID uint32 `json:"projectID,omitempty"`
	// Mode holds permission bits as chmod(1) writes them, 07777 at most.
	Mode       uint32            `json:"mode"`
	UID        int               `json:"uid"`
	GID        int               `json:"gid"`
	OnDelete   Disposal          `json:"onDelete"`
	Claim      Claim             `json:"claim,omitzero"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Ephemeral  bool              `json:"ephemeral,omitempty"`
	// Adopted marks a directory that another driver made; nothing is enforced on it.
	Adopted bool      `json:"adopted,omitempty"`
	Created time.Time `json:"created"`
}

// RecordVersion is the newest record format that this driver reads and the one it writes.
const RecordVersion = 1

// Volume is what the manager answers about a volume.
type Volume struct {
	Record
	Enforcement Enforcement
}

// Condition is a volume's or a pool's health in one word.
type Condition string

// Conditions, after the states of CSI 1.13's volume health.
const (
	Healthy      Condition = "Healthy"
	Degraded     Condition = "Degraded"     // usable, but something is wrong
	Inaccessible Condition = "Inaccessible" // cannot be used now; the data may still be there
	DataLoss     Condition = "DataLoss"     // the data is gone
)

// Health is a condition with the reason in CamelCase and a sentence for a person.
type Health struct {
	Condition       Condition
	Reason, Message string
}

// Stats is the use of a volume in bytes and inodes; where nothing is enforced, of the whole filesystem.
type Stats struct {
	// Own tells that the numbers are the volume's own.
	Own                                 bool
	Bytes, BytesUsed, BytesAvailable    int64
	Inodes, InodesUsed, InodesAvailable int64
}

// MountOptions are the per-mount attributes of a publish.
type MountOptions struct {
	ReadOnly, NoSUID, NoDev, NoExec bool
	// Atime is "", "noatime", "relatime", "strictatime" or "nodiratime".
	Atime string
}

// PublishRequest asks for a volume at a target path.
type PublishRequest struct {
	ID     string
	Target string // absolute, below the kubelet's directory
	MountOptions
	// SingleWriter refuses a second target (SINGLE_NODE_SINGLE_WRITER, ReadWriteOncePod).
	SingleWriter bool
	// Inline makes the volume first when it does not exist; nil for persistent volumes.
	Inline *Spec
}

// PersistentVolume is what the cluster says about a volume of this driver.
type PersistentVolume struct {
	Name   string
	Handle string // volumeHandle, our id
	Pool   string // attribute storagePool; "" on PVs that name none
	Bytes  int64  // capacity
	// OnDelete is the attribute of that name where the PV has a valid one, else "".
	OnDelete Disposal
	Claim    Claim
}

// posixBits are permission bits with setuid, setgid and sticky as chmod(1) writes them.
func posixBits(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// idPattern is the whole alphabet of ids: nothing that a path could be made of.
var idPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// ValidateID refuses every id that could not be the name of one directory (ErrInvalidID).
func ValidateID(id string) error {
	if !idPattern.MatchString(id) {
		return &InvalidIDError{ID: id}
	}
	return nil
}
