// Package nodeapi is what nodes and the controller say to each other, as plain values: ids, keys, and what a pool and
// a volume are. How that travels is up to package wire.
package nodeapi

import (
	"errors"
	"fmt"
	"regexp"
)

// ErrInvalidID is for an id that no volume can have.
var ErrInvalidID = errors.New("invalid volume id")

// idPattern is the whole alphabet of ids: nothing that a path could be made of.
var idPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// reserved is where kubevirt's driver keeps its snapshots.
const reserved = "snapshots"

// ValidateID refuses every id that could not be the name of one volume's directory (ErrInvalidID).
func ValidateID(id string) error {
	if id == reserved {
		return fmt.Errorf("%w: %q holds kubevirt's snapshots", ErrInvalidID, id)
	}
	if idPattern.MatchString(id) {
		return nil
	}
	if len(id) > 64 {
		id = id[:64] + "…"
	}
	return fmt.Errorf("%w: %q: want 1 to 128 of the characters a-z A-Z 0-9 _ . - that start with a letter or digit",
		ErrInvalidID, id)
}

// Keys of StorageClass parameters and volume attributes, beside names.StoragePoolParameter
// (docs/reference/storageclass.md).
const (
	KeyDirectoryMode = "directoryMode"
	KeyUID           = "uid"
	KeyGID           = "gid"
	KeyInodeLimit    = "inodeLimit"
	KeyOnDelete      = "onDelete"
	KeyRestoreTo     = "restoreTo"
	KeyOverlay       = "overlayCSI"  // kubevirt's, accepted and ignored
	KeyEnforcement   = "enforcement" // answered, never asked for

	// KeysOfKubernetes begins those that Kubernetes adds: external-provisioner with --extra-create-metadata to
	// parameters, the kubelet with podInfoOnMount to volume attributes.
	KeysOfKubernetes = "csi.storage.k8s.io/"
	KeyClaimName     = KeysOfKubernetes + "pvc/name"
	KeyClaimNS       = KeysOfKubernetes + "pvc/namespace"
)

// Parameters are the keys that a StorageClass may have, beside names.StoragePoolParameter and those of Kubernetes.
func Parameters() []string {
	return []string{
		KeyDirectoryMode, KeyGID, KeyInodeLimit, KeyOnDelete, KeyOverlay, KeyRestoreTo, KeyUID,
	}
}

// NotEnforced is the value of KeyEnforcement where nothing keeps a volume to its size.
const NotEnforced = "none"

// The values of KeyOnDelete: what deleting a volume does with its data.
const (
	OnDeleteTrash  = "trash"  // kept in the pool's trash for its retention, then purged (default)
	OnDeletePurge  = "purge"  // purged as soon as the worker gets to it, whatever the retention
	OnDeleteRetain = "retain" // kept in the pool's trash until an admin removes it
)

// IsOnDelete reports whether a text is a value of KeyOnDelete.
func IsOnDelete(s string) bool {
	return s == OnDeleteTrash || s == OnDeletePurge || s == OnDeleteRetain
}
