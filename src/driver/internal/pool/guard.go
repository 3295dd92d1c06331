package pool

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// action is what the mount guard does about a pool.
type action int

const (
	use       action = iota // the marker is the one that this node remembers
	adopt                   // nothing is remembered: remember the marker that is there
	create                  // nothing is remembered and nothing is there: make the marker
	refuse                  // absent
	stayAside               // not selected here, and never used before
)

// sight is everything that the guard decides from.
type sight struct {
	facts poolfs.Facts
	// shared tells that the filesystem is also that of the host's root, of the kubelet's or of the driver's state directory.
	shared bool
	// marker is the pool.json that is there, nil where there is none; markerErr says why one that is there cannot be used.
	marker    *marker
	markerErr error
	// remembered is what this node knows from an earlier adoption, nil where nothing.
	remembered *memory
	// selected tells that the node's labels match the pool's nodeSelector; unknown that the labels have not been read yet.
	selected, unknown bool
	// twin is the name of another pool with this marker, "" where there is none.
	twin string
}

// decision is an action with its reason, in CamelCase and as a sentence.
type decision struct {
	action          action
	reason, message string
}

// decide is the mount guard (docs/explanation/mount-guard.md): after the first adoption only the remembered marker will do, so that a disk
// that is not mounted, or another one in its place, is never taken for the pool.
func decide(spec poolspec.Pool, s sight) decision {
	if d, unfit := unfit(spec, s); unfit {
		return d
	}
	switch {
	case s.remembered != nil && s.remembered.ID != "":
		return recognise(spec, s)
	case s.marker == nil && s.unknown:
		return absent("NodeUnknown", "waiting for the Kubernetes API to tell this node's labels, which decide whether %s is used", spec.Path)
	case s.marker == nil && !s.selected:
		return decision{action: stayAside, reason: "NotSelected", message: "this node's labels do not match the pool's nodeSelector"}
	case spec.MountRequired() && !hasOwnFilesystem(s):
		return absent("NotMounted", "requireMount is set and no filesystem of its own is mounted at %s", spec.Path)
	case s.marker != nil:
		return decision{action: adopt}
	default:
		return decision{action: create}
	}
}

// unfit refuses what cannot be a pool, remembered or not.
func unfit(spec poolspec.Pool, s sight) (d decision, is bool) {
	switch {
	case s.markerErr != nil:
		return absent("MarkerUnusable", "%s/csi/%s cannot be used: %v", spec.Path, poolfs.MarkerFile, s.markerErr), true
	case s.twin != "":
		return absent("SameDirectory", "%s is the directory of pool %s as well; give every pool its own", spec.Path, s.twin), true
	default:
		return decision{}, false
	}
}

// recognise compares what is there with what is remembered.
func recognise(spec poolspec.Pool, s sight) decision {
	const wayOut = "mount the right one, or if the change is meant: driver pool forget %s"
	switch {
	case !s.facts.Path:
		return absent("PathMissing", "%s does not exist; "+wayOut, spec.Path, spec.Name)
	case s.marker == nil:
		return absent("MarkerMissing", "%s holds no csi/%s although this node used the pool before: its filesystem is not mounted, or was replaced; "+wayOut,
			spec.Path, poolfs.MarkerFile, spec.Name)
	case s.marker.ID != s.remembered.ID:
		return absent("MarkerDiffers", "%s is pool %s, this node used %s before: another filesystem is mounted there; "+wayOut,
			spec.Path, s.marker.ID, s.remembered.ID, spec.Name)
	default:
		return decision{action: use}
	}
}

// hasOwnFilesystem tells whether the pool's directory is a mount of its own or on a filesystem that is none of the system's.
func hasOwnFilesystem(s sight) bool {
	return s.facts.CSIMountPoint || (s.facts.Path && (s.facts.MountPoint || !s.shared))
}

func absent(reason, format string, args ...any) decision {
	return decision{action: refuse, reason: reason, message: fmt.Sprintf(format, args...)}
}
