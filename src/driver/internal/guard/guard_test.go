package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// TestWayOut: a pool whose path was changed is not told to be forgotten first.
func TestWayOut(t *testing.T) {
	known := guard.Remembered{Memory: guard.Memory{ID: "AAAA", Path: "/old"}}
	for path, want := range map[string]string{
		"/old": "mount the right one, or if the change is meant",
		"/new": "the pool's path was /old, and its volumes are there: set it back, or if the change is meant",
	} {
		d := guard.Decide(poolspec.Pool{Name: "local", Path: path}, guard.Facts{Selected: true, Remembered: known})
		if d.Action != guard.Refuse || !strings.Contains(d.Message, want) {
			t.Errorf("%s: %q, want %q", path, d.Message, want)
		}
	}
}

func TestDecide(t *testing.T) {
	yes, no := true, false
	var (
		mount  = poolspec.Pool{RequireMount: &yes}
		claims = poolspec.Pool{PVCTemplate: map[string]any{}}
		onto   = disk.Facts{Path: true, CSI: true, CSIMountPoint: true}
		there  = disk.Facts{Path: true}
		here   = disk.Facts{Path: true, CSI: true}
		ours   = &guard.Marker{Version: guard.MarkerVersion, ID: "AAAA"}
		theirs = &guard.Marker{Version: guard.MarkerVersion, ID: "BBBB"}
		known  = guard.Remembered{Memory: guard.Memory{ID: "AAAA", Path: "/pool"}}
		shared = poolspec.Pool{Scope: poolspec.ScopeShared}
		gone   = guard.Remembered{Memory: guard.Memory{Forgotten: true, Path: "/pool"}}
	)
	for name, tc := range map[string]struct {
		spec   poolspec.Pool
		facts  guard.Facts
		action guard.Action
		reason string
	}{
		"first use, path missing": {facts: guard.Facts{Selected: true}, action: guard.Create},
		"first use, path there":   {facts: guard.Facts{Selected: true, Facts: here}, action: guard.Create},
		"reinstalled node":        {facts: guard.Facts{Selected: true, Facts: here, Marker: ours}, action: guard.Adopt},
		"remembered and there": {
			facts: guard.Facts{Selected: true, Facts: here, Marker: ours, Remembered: known}, action: guard.Use,
		},
		"remembered, no longer selected": {facts: guard.Facts{Facts: here, Marker: ours, Remembered: known}},
		"remembered, no longer a mount of its own": {
			spec: mount, facts: guard.Facts{
				Selected: true, SystemDisk: true, Facts: here, Marker: ours,
				Remembered: known,
			},
		},
		"remembered, path gone": {
			facts: guard.Facts{Selected: true, Remembered: known}, action: guard.Refuse, reason: "PathMissing",
		},
		"remembered, directory empty": {
			facts: guard.Facts{Selected: true, Facts: there, Remembered: known}, action: guard.Refuse,
			reason: "MarkerMissing",
		},
		"remembered, other disk": {
			facts:  guard.Facts{Selected: true, Facts: here, Marker: theirs, Remembered: known},
			action: guard.Refuse, reason: "MarkerDiffers",
		},
		"forgotten, other disk": {
			facts: guard.Facts{Selected: true, Facts: here, Marker: theirs, Remembered: gone}, action: guard.Adopt,
		},
		"forgotten, empty":         {facts: guard.Facts{Selected: true, Remembered: gone}, action: guard.Create},
		"not selected, never used": {facts: guard.Facts{Facts: here}, action: guard.Skip, reason: "NotSelected"},
		"labels not known, never used": {
			facts: guard.Facts{Unlabelled: true}, action: guard.Refuse, reason: "NodeUnknown",
		},
		"labels not known, used before": {facts: guard.Facts{
			Unlabelled: true, Facts: here, Marker: ours,
			Remembered: known,
		}},
		"labels not known, used by an old install": {
			facts: guard.Facts{Unlabelled: true, Facts: here, Marker: ours}, action: guard.Adopt,
		},
		"not selected, used by an old install": {facts: guard.Facts{Facts: here, Marker: ours}, action: guard.Adopt},
		"marker damaged": {
			facts:  guard.Facts{Selected: true, Facts: here, Remembered: known, MarkerErr: errors.New("truncated")},
			action: guard.Refuse, reason: "MarkerUnusable",
		},
		"memory damaged": {
			facts: guard.Facts{
				Selected: true, Facts: here, Marker: ours,
				Remembered: guard.Remembered{Err: errors.New("/pool is unknown")},
			},
			action: guard.Refuse, reason: "StateDamaged",
		},
		"two pools, one directory": {
			facts:  guard.Facts{Selected: true, Facts: here, Marker: ours, SamePool: "other"},
			action: guard.Refuse, reason: "SameDirectory",
		},
		"two pools, one directory, both remembered": {
			facts:  guard.Facts{Selected: true, Facts: here, Marker: ours, Remembered: known, SamePool: "other"},
			action: guard.Refuse, reason: "SameDirectory",
		},
		"shared before": {
			facts: guard.Facts{
				Selected: true, Facts: here, Marker: &guard.Marker{ID: ours.ID, Owner: "a-cluster"}, Remembered: known,
			},
			action: guard.Refuse, reason: "SharedBefore",
		},
		"requireMount, nothing mounted": {
			spec: mount, facts: guard.Facts{Selected: true, Facts: here, SystemDisk: true},
			action: guard.Refuse, reason: "NotMounted",
		},
		"requireMount, nothing mounted, marked": {
			spec: mount, facts: guard.Facts{Selected: true, Facts: here, SystemDisk: true, Marker: ours},
			action: guard.Refuse, reason: "NotMounted",
		},
		"requireMount, path missing": {
			spec: mount, facts: guard.Facts{Selected: true}, action: guard.Refuse, reason: "NotMounted",
		},
		"requireMount, path is a mount": {
			spec:   mount,
			facts:  guard.Facts{Selected: true, SystemDisk: true, Facts: disk.Facts{Path: true, MountPoint: true}},
			action: guard.Create,
		},
		"requireMount, csi is a mount": {
			spec: mount,
			facts: guard.Facts{
				Selected: true, SystemDisk: true,
				Facts: disk.Facts{Path: true, CSI: true, CSIMountPoint: true},
			},
			action: guard.Create,
		},
		"requireMount, below another disk": {
			spec: mount, facts: guard.Facts{Selected: true, Facts: here}, action: guard.Create,
		},
		"claim mounted, first use": {
			spec: claims, facts: guard.Facts{Selected: true, SystemDisk: true, Facts: onto}, action: guard.Create,
		},
		"claim mounted, marked": {
			spec: claims, facts: guard.Facts{Selected: true, SystemDisk: true, Facts: onto, Marker: ours},
			action: guard.Adopt,
		},
		"claim mounted, remembered": {
			spec: claims, facts: guard.Facts{Selected: true, Facts: onto, Marker: ours, Remembered: known},
			action: guard.Use,
		},
		"another claim mounted": {
			spec: claims, facts: guard.Facts{Selected: true, Facts: onto, Marker: theirs, Remembered: known},
			action: guard.Refuse, reason: "MarkerDiffers",
		},
		"claim not mounted, path missing": {
			spec: claims, facts: guard.Facts{Selected: true}, action: guard.Refuse, reason: "ClaimNotMounted",
		},
		"claim not mounted, path is a mount": {
			spec:   claims,
			facts:  guard.Facts{Selected: true, Facts: disk.Facts{Path: true, CSI: true, MountPoint: true}},
			action: guard.Refuse, reason: "ClaimNotMounted",
		},
		"claim not mounted, directory below marked": {
			spec: claims, facts: guard.Facts{Selected: true, Facts: here, Marker: ours, Remembered: known},
			action: guard.Refuse, reason: "ClaimNotMounted",
		},
		"claim not mounted, marker of the directory below damaged": {
			spec: claims, facts: guard.Facts{Selected: true, Facts: here, MarkerErr: errors.New("truncated")},
			action: guard.Refuse, reason: "ClaimNotMounted",
		},
		"claim not mounted, not selected": {
			spec: claims, facts: guard.Facts{Facts: here, Marker: ours}, action: guard.Skip, reason: "NotSelected",
		},
		"shared, which requires a mount": {
			spec:  poolspec.Pool{Scope: poolspec.ScopeShared},
			facts: guard.Facts{Selected: true, Facts: here, SystemDisk: true}, action: guard.Refuse,
			reason: "NotMounted",
		},
		"requireMount off on a shared pool": {
			spec: poolspec.Pool{RequireMount: &no, Scope: poolspec.ScopeShared},
			facts: guard.Facts{
				Selected: true, Facts: here, SystemDisk: true, Expected: guard.Expected{Make: true},
			},
			action: guard.Create,
		},
		"shared, nobody has said what it is": {
			spec: shared, facts: guard.Facts{Selected: true, Facts: here, Marker: ours},
			action: guard.Refuse, reason: guard.IdentityUnknown,
		},
		"shared, nobody has said what it is, and not mounted": {
			spec: shared, facts: guard.Facts{Selected: true, SystemDisk: true}, action: guard.Refuse,
			reason: "NotMounted",
		},
		"shared, this node is the first": {
			spec: shared, facts: guard.Facts{Selected: true, Facts: here, Expected: guard.Expected{Make: true}},
			action: guard.Create,
		},
		"shared, this node is the first, marked": {
			spec: shared, facts: guard.Facts{
				Selected: true, Facts: here, Marker: ours,
				Expected: guard.Expected{Make: true},
			},
			action: guard.Adopt,
		},
		"shared, as the others have it": {
			spec: shared, facts: guard.Facts{
				Selected: true, Facts: here, Marker: ours,
				Expected: guard.Expected{ID: "AAAA"},
			},
			action: guard.Adopt,
		},
		"shared, as the others have it, remembered": {
			spec: shared,
			facts: guard.Facts{
				Selected: true, Facts: here, Marker: ours, Remembered: known,
				Expected: guard.Expected{ID: "AAAA"},
			},
		},
		"shared, remembered, the controller is silent": {
			spec: shared, facts: guard.Facts{Selected: true, Facts: here, Marker: ours, Remembered: known},
		},
		"shared, another filesystem than the others have": {
			spec: shared, facts: guard.Facts{
				Selected: true, Facts: here, Marker: theirs,
				Expected: guard.Expected{ID: "AAAA"},
			},
			action: guard.Refuse, reason: "MarkerDiffers",
		},
		"shared, another filesystem than the others have now": {
			spec: shared, facts: guard.Facts{
				Selected: true, Facts: here, Marker: ours, Remembered: known, Expected: guard.Expected{ID: "BBBB"},
			},
			action: guard.Refuse, reason: "MarkerDiffers",
		},
		"shared, an empty filesystem, and the others have one": {
			spec: shared, facts: guard.Facts{
				Selected: true, Facts: here,
				Expected: guard.Expected{ID: "AAAA", Make: true},
			},
			action: guard.Refuse, reason: "MarkerMissing",
		},
		"shared, replaced on all nodes": {
			spec: shared, facts: guard.Facts{
				Selected: true, Facts: here, Marker: theirs, Remembered: known, Expected: guard.Expected{ID: "BBBB"},
			},
			action: guard.Adopt,
		},
		"shared, not mounted where the others have it": {
			spec: shared,
			facts: guard.Facts{
				Selected: true, Facts: here, SystemDisk: true, Marker: ours,
				Expected: guard.Expected{ID: "AAAA"},
			},
			action: guard.Refuse, reason: "NotMounted",
		},
		"shared, not selected, and the others have it": {
			spec: shared, facts: guard.Facts{Facts: here, Marker: ours, Expected: guard.Expected{ID: "AAAA"}},
			action: guard.Adopt,
		},
		"shared, not selected and not mounted": {
			spec: shared, facts: guard.Facts{SystemDisk: true, Expected: guard.Expected{ID: "AAAA"}},
			action: guard.Skip, reason: "NotSelected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.spec.Name, tc.spec.Path = "local", "/pool"
			d := guard.Decide(tc.spec, tc.facts)
			if d.Action != tc.action || d.Reason != tc.reason {
				t.Errorf("action %d reason %q, want %d %q (%s)", d.Action, d.Reason, tc.action, tc.reason, d.Message)
			}
			if d.Action == guard.Refuse && !strings.Contains(d.Message, "/pool") {
				t.Errorf("the message does not name the path: %s", d.Message)
			}
		})
	}
}

func TestOnNetwork(t *testing.T) {
	node := poolspec.Pool{Name: "local", Path: "/pool", Scope: poolspec.ScopeNode}
	shared, claimed := node, node
	shared.Scope = poolspec.ScopeShared
	claimed.PVCTemplate = map[string]any{"storageClassName": "nfs"}
	for kind, network := range map[string]bool{
		"nfs": true, "cephfs": true, "smb": true, "9p": true, "fuse": true,
		"ext4": false, "xfs": false, "btrfs": false, "tmpfs": false, "2fc12fc1": false, "": false,
	} {
		d, refused := guard.OnNetwork(node, disk.Facts{FSType: kind})
		if refused != network {
			t.Errorf("%s under a node pool: refused %v", kind, refused)
		}
		says := strings.Contains(d.Message, "("+kind+")") && strings.Contains(d.Message, "/pool")
		if refused && (d.Action != guard.Refuse || d.Reason != "NetworkFilesystem" || !says) {
			t.Errorf("%s: %+v", kind, d)
		}
		for about, spec := range map[string]poolspec.Pool{"shared": shared, "with a pvcTemplate": claimed} {
			if d, refused := guard.OnNetwork(spec, disk.Facts{FSType: kind}); refused {
				t.Errorf("%s under a pool %s: %+v", kind, about, d)
			}
		}
	}
}
