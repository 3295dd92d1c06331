package pool

import (
	"errors"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func TestGuardDecides(t *testing.T) {
	yes, no := true, false
	var (
		here   = poolfs.Facts{Path: true, CSI: true}
		ours   = &marker{Version: 1, ID: "AAAA"}
		theirs = &marker{Version: 1, ID: "BBBB"}
		known  = &memory{ID: "AAAA"}
	)
	for name, tc := range map[string]struct {
		spec   poolspec.Pool
		sight  sight
		action action
		reason string
	}{
		"first use, path missing":              {sight: sight{selected: true}, action: create},
		"first use, path there":                {sight: sight{selected: true, facts: here}, action: create},
		"reinstalled node":                     {sight: sight{selected: true, facts: here, marker: ours}, action: adopt},
		"remembered and there":                 {sight: sight{selected: true, facts: here, marker: ours, remembered: known}, action: use},
		"remembered, no longer selected":       {sight: sight{facts: here, marker: ours, remembered: known}, action: use},
		"remembered, path gone":                {sight: sight{selected: true, remembered: known}, action: refuse, reason: "PathMissing"},
		"remembered, directory empty":          {sight: sight{selected: true, facts: poolfs.Facts{Path: true}, remembered: known}, action: refuse, reason: "MarkerMissing"},
		"remembered, other disk":               {sight: sight{selected: true, facts: here, marker: theirs, remembered: known}, action: refuse, reason: "MarkerDiffers"},
		"forgotten, other disk":                {sight: sight{selected: true, facts: here, marker: theirs, remembered: &memory{Forgotten: true}}, action: adopt},
		"forgotten, empty":                     {sight: sight{selected: true, remembered: &memory{Forgotten: true}}, action: create},
		"not selected, never used":             {sight: sight{facts: here}, action: stayAside, reason: "NotSelected"},
		"labels not known, never used":         {sight: sight{unknown: true}, action: refuse, reason: "NodeUnknown"},
		"labels not known, used before":        {sight: sight{unknown: true, facts: here, marker: ours, remembered: known}, action: use},
		"not selected, used by an old install": {sight: sight{facts: here, marker: ours}, action: adopt},
		"marker damaged":                       {sight: sight{selected: true, facts: here, remembered: known, markerErr: errors.New("truncated")}, action: refuse, reason: "MarkerUnusable"},
		"two pools, one directory":             {sight: sight{selected: true, facts: here, marker: ours, twin: "other"}, action: refuse, reason: "SameDirectory"},
		"requireMount, nothing mounted": {
			spec: poolspec.Pool{RequireMount: &yes}, sight: sight{selected: true, facts: here, shared: true}, action: refuse, reason: "NotMounted",
		},
		"requireMount, path missing": {spec: poolspec.Pool{RequireMount: &yes}, sight: sight{selected: true}, action: refuse, reason: "NotMounted"},
		"requireMount, path is a mount": {
			spec: poolspec.Pool{RequireMount: &yes}, sight: sight{selected: true, shared: true, facts: poolfs.Facts{Path: true, MountPoint: true}}, action: create,
		},
		"requireMount, csi is a mount": {
			spec: poolspec.Pool{RequireMount: &yes}, sight: sight{selected: true, shared: true, facts: poolfs.Facts{Path: true, CSI: true, CSIMountPoint: true}}, action: create,
		},
		"requireMount, below another disk": {spec: poolspec.Pool{RequireMount: &yes}, sight: sight{selected: true, facts: here}, action: create},
		"requireMount off on a shared pool": {
			spec: poolspec.Pool{RequireMount: &no, Scope: poolspec.ScopeShared}, sight: sight{selected: true, facts: here, shared: true}, action: create,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.spec.Name, tc.spec.Path = "local", "/pool"
			d := decide(tc.spec, tc.sight)
			if d.action != tc.action || d.reason != tc.reason {
				t.Errorf("decide: action %d reason %q, want %d %q (%s)", d.action, d.reason, tc.action, tc.reason, d.message)
			}
			if d.action == refuse && !strings.Contains(d.message, "/pool") {
				t.Errorf("the message does not name the path: %s", d.message)
			}
		})
	}
}

func TestAvailable(t *testing.T) {
	const gi = 1 << 30
	disk := poolfs.Space{Size: 100 * gi, Used: 20 * gi, Free: 80 * gi}
	for name, tc := range map[string]struct {
		spec poolspec.Pool
		disk poolfs.Space
		p    promises
		want int64
	}{
		"plain: free space, promises do not count":   {p: promises{promised: 70 * gi, used: 70 * gi}, want: 80 * gi},
		"reserve in bytes":                           {spec: poolspec.Pool{Reserve: poolspec.Reserve{Bytes: 10 * gi}}, want: 70 * gi},
		"reserve in percent of the size":             {spec: poolspec.Pool{Reserve: poolspec.Reserve{Percent: 5}}, want: 75 * gi},
		"reserve above what is free":                 {spec: poolspec.Pool{Reserve: poolspec.Reserve{Bytes: 90 * gi}}, want: 0},
		"enforced: unwritten promises count":         {p: promises{promised: 50 * gi, used: 0, enforced: true}, want: 30 * gi},
		"enforced: written promises count once":      {p: promises{promised: 50 * gi, used: 20 * gi, enforced: true}, want: 50 * gi},
		"enforced: foreign data counts":              {p: promises{promised: 50 * gi, used: 5 * gi, enforced: true}, want: 35 * gi},
		"enforced: all promised":                     {p: promises{promised: 100 * gi, used: 0, enforced: true}, want: 0},
		"overcommit 2 doubles what may be promised":  {spec: poolspec.Pool{Overcommit: 2}, p: promises{promised: 150 * gi, used: 20 * gi, enforced: true}, want: 50 * gi},
		"overcommit never passes free space":         {spec: poolspec.Pool{Overcommit: 10}, p: promises{enforced: true}, want: 80 * gi},
		"plain with overcommit: promises count full": {spec: poolspec.Pool{Overcommit: 1}, p: promises{promised: 90 * gi, used: 90 * gi}, want: 10 * gi},
		"overcommit of half":                         {spec: poolspec.Pool{Overcommit: 0.5}, p: promises{promised: 30 * gi, used: 20 * gi, enforced: true}, want: 20 * gi},
		"reserve counts against promises as well":    {spec: poolspec.Pool{Reserve: poolspec.Reserve{Bytes: 10 * gi}}, p: promises{promised: 50 * gi, enforced: true}, want: 20 * gi},
		"what root keeps is not promised": {
			disk: poolfs.Space{Size: 100 * gi, Used: 20 * gi, Free: 75 * gi}, p: promises{promised: 40 * gi, used: 20 * gi, enforced: true}, want: 55 * gi,
		},
		"more promised than there is": {p: promises{promised: 200 * gi, enforced: true}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.disk == (poolfs.Space{}) {
				tc.disk = disk
			}
			if got := available(tc.spec, tc.disk, tc.p); got != tc.want {
				t.Errorf("available = %d, want %d (in GiB %.1f, %.1f)", got, tc.want, float64(got)/gi, float64(tc.want)/gi)
			}
		})
	}
}
