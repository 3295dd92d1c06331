// Package guard decides whether a pool can be used now. After the first adoption only the remembered marker will do, so
// that a disk that is not mounted, or another one in its place, is never taken for the pool
// (docs/explanation/mount-guard.md).
package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Action is what to do about a pool.
type Action int

// Actions.
const (
	Use    Action = iota // the marker is the one that this node remembers
	Adopt                // nothing is remembered: remember the marker that is there
	Create               // nothing is remembered and nothing is there: make the marker
	Refuse               // absent
	Skip                 // not selected here, and never used before
)

// Facts is everything that is decided from.
type Facts struct {
	disk.Facts
	// SystemDisk reports that it is also the filesystem of the host's root, of the kubelet's or of the state directory.
	SystemDisk bool
	// Marker is what is there, nil where there is none; MarkerErr says why one that is there cannot be used.
	Marker    *Marker
	MarkerErr error
	// Remembered is what this node knows from an earlier adoption.
	Remembered Remembered
	// Selected reports that the node's labels match the pool's nodeSelector; Unlabelled that they have not been read
	// yet.
	Selected, Unlabelled bool
	// SamePool is the name of another pool with this marker, "" where there is none; Belongs is its path, where that
	// has another marker, or none.
	SamePool, Belongs string
	// Expected is what the controller says of the pool.
	Expected Expected
	// Owner is this cluster, "" where this node does not know it.
	Owner string
}

// Expected is what the controller says of a pool. Of one that is not shared it says at most Twins.
type Expected struct {
	ID    string // of its marker; "" while nobody has made it, or the controller has not said it
	Owner string // this cluster
	// Make reports that this node is to take the pool into use first.
	Make bool
	// Gone are nodes that will not come back: what they left in the pool is this node's to recover.
	Gone []string
	// Twins are other connected nodes that show the marker of a pool which is not shared: its volumes are theirs too.
	Twins []string
}

// Decision is an action with its reason, in CamelCase and as a sentence.
type Decision struct {
	Action          Action
	Reason, Message string
}

// Absent is the decision to refuse a pool.
func Absent(reason, format string, args ...any) Decision {
	return Decision{Action: Refuse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

type refusedError struct{ Decision }

func (e *refusedError) Error() string { return e.Reason + ": " + e.Message }

// Refused is Absent as an error, for a decision against a pool that came up while it was opened.
func Refused(reason, format string, args ...any) error {
	return &refusedError{Absent(reason, format, args...)}
}

// Failed is the decision to refuse a pool because of an error: the decision in the error, if there is one.
func Failed(path string, err error) Decision {
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return refused.Decision
	}
	return Absent("Failed", "%s: %v", path, err)
}

// Decide says what to do about a pool.
func Decide(spec poolspec.Pool, f Facts) Decision {
	if spec.PVCTemplate != nil && !f.CSIMountPoint {
		f.Marker, f.MarkerErr, f.SamePool = nil, nil, "" // of the directory that the claim is to be mounted on
	}
	if d := unusable(spec, f); d.Action == Refuse {
		return d
	}
	switch {
	case f.Expected.ID != "" && f.Expected.ID != f.Remembered.ID:
		f.Remembered = Remembered{Memory: Memory{Forgotten: f.Remembered.Forgotten}}
		return compareIdentity(spec, f, first(spec, f))
	case f.Remembered.ID != "":
		return recognize(spec, f)
	case spec.Shared() && !f.Expected.Make:
		return awaitIdentity(spec, first(spec, f))
	default:
		return first(spec, f)
	}
}

// unusable refuses what no pool may be, whether this node has used it or not; else it decides nothing.
func unusable(spec poolspec.Pool, f Facts) (d Decision) {
	switch {
	case f.Remembered.Err != nil:
		return Absent("StateDamaged", "%v", f.Remembered.Err)
	case f.MarkerErr != nil:
		return Absent("MarkerUnusable", "%s/csi/%s cannot be used: %v", spec.Path, disk.MarkerFile, f.MarkerErr)
	case spec.Shared() && f.Marker.IsForeign(f.Owner):
		return Absent(OtherCluster, "%s belongs to the cluster whose namespace kube-system has the UID %s: give each "+
			"cluster a directory of its own; if that cluster is gone: kubectl hpp pool take %s --from %s --node NODE",
			spec.Path, f.Marker.Owner, spec.Name, f.Marker.Owner)
	case !spec.Shared() && f.Marker != nil && f.Marker.Owner != "":
		return Absent("SharedBefore", "%s is a shared pool, which other nodes may work in: set the pool's scope to "+
			"shared again", spec.Path)
	case f.SamePool != "" && f.Belongs != "":
		return Absent("OtherPoolsDisk", "the filesystem of pool %s is mounted at %s: mount it at %s, and pool %s's "+
			"own here", f.SamePool, spec.Path, f.Belongs, spec.Name)
	case f.SamePool != "":
		return Absent("SameDirectory", "%s is the directory of pool %s as well; give every pool its own",
			spec.Path, f.SamePool)
	}
	return d
}

// OtherCluster is the reason of a shared pool that belongs to another cluster.
const OtherCluster = "OtherCluster"

// IsForeign reports whether a marker, which may be nil, names another cluster than this one, which is "" where nobody
// knows it.
func (m *Marker) IsForeign(cluster string) bool {
	return m != nil && m.Owner != "" && cluster != "" && m.Owner != cluster
}

// compareIdentity compares the marker of a shared pool with the one that all nodes are to have.
func compareIdentity(spec poolspec.Pool, f Facts, d Decision) Decision {
	const wayOut = "mount the filesystem there that the other nodes have"
	switch {
	case d.Action == Create:
		return Absent("MarkerMissing", "%s holds no csi/%s, and other nodes have pool %s there: "+wayOut,
			spec.Path, disk.MarkerFile, f.Expected.ID)
	case d.Action == Adopt && f.Marker.ID != f.Expected.ID:
		return Absent("MarkerDiffers", "%s is pool %s, and other nodes have pool %s there: "+wayOut,
			spec.Path, f.Marker.ID, f.Expected.ID)
	}
	return d
}

// IdentityUnknown is the reason of a shared pool that could be used if the controller had said which one it is.
const IdentityUnknown = "IdentityUnknown"

// awaitIdentity keeps a node from taking a shared pool into use by itself: it may have another filesystem than all
// others.
func awaitIdentity(spec poolspec.Pool, d Decision) Decision {
	if d.Action != Adopt && d.Action != Create {
		return d
	}
	return Absent(IdentityUnknown, "waiting for the controller to say which filesystem all nodes have at %s", spec.Path)
}

// written writes labels as kubectl takes them: a=b,c=d.
func written(labels map[string]string) string {
	all := make([]string, 0, len(labels))
	for key, value := range labels {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// first decides about a pool that this node does not remember.
func first(spec poolspec.Pool, f Facts) Decision {
	switch {
	case f.Marker == nil && f.Unlabelled:
		return Absent("NodeUnknown", "waiting for the Kubernetes API to give this node's labels, which decide whether "+
			"%s is used", spec.Path)
	case f.Marker == nil && !f.Selected:
		return Decision{
			Action: Skip, Reason: nodeapi.ReasonNotSelected,
			Message: "this node's labels do not match the pool's nodeSelector: " +
				written(spec.NodeSelector),
		}
	case spec.PVCTemplate != nil && !f.CSIMountPoint:
		return claimNotMounted(spec)
	case spec.MountRequired() && !ownFilesystem(f):
		return Absent("NotMounted", "requireMount is set and no filesystem of its own is mounted at %s", spec.Path)
	case f.Marker != nil:
		return Decision{Action: Adopt}
	case f.InMemory():
		return Absent("InMemory", "%s is on a %s, which is in memory: its volumes would be gone after a boot; mount a "+
			"disk there", spec.Path, f.FSType)
	default:
		return Decision{Action: Create}
	}
}

// recognize compares what is there with what is remembered.
func recognize(spec poolspec.Pool, f Facts) Decision {
	wayOut := wayOut(spec, f.Remembered)
	switch {
	case spec.PVCTemplate != nil && !f.CSIMountPoint:
		return claimNotMounted(spec)
	case !f.Path:
		return Absent("PathMissing", "%s does not exist; %s", spec.Path, wayOut)
	case f.Marker == nil:
		return Absent("MarkerMissing", "%s holds no csi/%s although this node used the pool before: its filesystem is "+
			"not mounted, or was replaced; %s", spec.Path, disk.MarkerFile, wayOut)
	case f.Marker.ID != f.Remembered.ID:
		return Absent("MarkerDiffers", "%s is pool %s, this node used %s before: another filesystem is mounted there; "+
			"%s", spec.Path, f.Marker.ID, f.Remembered.ID, wayOut)
	default:
		return Decision{Action: Use}
	}
}

// wayOut says what to do about a pool that is not where it should be.
func wayOut(spec poolspec.Pool, was Remembered) string {
	forget := fmt.Sprintf("if the change is meant: kubectl hpp pool forget %s --node NODE", spec.Name)
	if was.Path != "" && was.Path != spec.Path {
		return fmt.Sprintf("the pool's path was %s, and its volumes are there: set it back, or %s", was.Path, forget)
	}
	return "mount the right one, or " + forget
}

// claimNotMounted refuses a pool from claims until the mounter has put this node's claim at csi/. Without it csi/ is a
// directory of the node's own disk, or of the one that the claim was on before.
func claimNotMounted(spec poolspec.Pool) Decision {
	return Absent("ClaimNotMounted", "pvcTemplate is set and nothing is mounted at %s/csi: waiting for the pool's "+
		"mounter on this node to mount its claim there; see what keeps it: kubectl describe pods -A -l %s=%s",
		spec.Path, names.PoolLabel, spec.Name)
}

// ownFilesystem reports whether the pool's directory is a mount, or on a filesystem that is none of the system's.
func ownFilesystem(f Facts) bool {
	return f.CSIMountPoint || (f.Path && (f.MountPoint || !f.SystemDisk))
}

// OnNetwork refuses a network filesystem for a pool of one node's volumes: each node would take it for its own.
func OnNetwork(spec poolspec.Pool, f disk.Facts) (d Decision, refused bool) {
	if spec.Scope != poolspec.ScopeNode || spec.PVCTemplate != nil ||
		!slices.Contains(networkFilesystems(), f.FSType) {
		return d, false
	}
	return Absent("NetworkFilesystem", "%s is on a network filesystem (%s), and a pool with scope node needs a disk "+
		"of the node's own: each node would make its volumes in the same directory", spec.Path, f.FSType), true
}

func networkFilesystems() []string {
	return []string{"nfs", "cephfs", "smb", "9p", "fuse", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2"}
}
