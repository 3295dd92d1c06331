package nodeapi

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// KeyConsistency is the parameter of a VolumeSnapshotClass that says how far a snapshot is of one moment.
const KeyConsistency = "consistency"

// The values of KeyConsistency.
const (
	// PointInTime refuses a snapshot that could not be of one moment (default).
	PointInTime = "point-in-time"
	// BestEffort takes it all the same: files that pods write meanwhile are as they are found.
	BestEffort = "best-effort"
)

const snapshotPrefix = "snap-"

// snapshotPattern is what the ids of snapshots look like: the last part is made of the name of their node.
var snapshotPattern = regexp.MustCompile(`^snap-.*\.[0-9a-f]{10}$`)

// IsSnapshotID reports whether an id is one of a snapshot. No volume gets such a one.
func IsSnapshotID(id string) bool { return snapshotPattern.MatchString(id) }

// namePattern is what csi-snapshotter calls a snapshot: after the UID of the VolumeSnapshot.
var namePattern = regexp.MustCompile(`^snapshot-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// SnapshotID is the id of the snapshot that is asked for by a name, any text, on a node. The same name is the same
// snapshot.
func SnapshotID(name, node string) string {
	uid := strings.TrimPrefix(name, "snapshot-")
	if !namePattern.MatchString(name) {
		uid = hash(name)[:32]
	}
	return snapshotPrefix + uid + "." + hash(node)[:10]
}

// IsSnapshotOf reports whether an id is one that a node gives to its snapshots.
func IsSnapshotOf(id, node string) bool {
	return IsSnapshotID(id) && strings.HasSuffix(id, "."+hash(node)[:10])
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// The values of KeyRestoreTo: where a volume is made from a snapshot.
const (
	RestoreToPod    = "pod"    // where its pod is to run, whichever node has the snapshot
	RestoreToSource = "source" // where the snapshot is
)
