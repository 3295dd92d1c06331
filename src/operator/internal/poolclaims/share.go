package poolclaims

import (
	"context"
	"errors"
	"fmt"
)

// shareClaim makes the one claim of a pool that all its nodes have.
func (k *Keeper) shareClaim(ctx context.Context, state *State, p provision) {
	if len(p.mounts) == 0 {
		return
	}
	first := p.mounts[0]
	problem := Problem{Pool: first.Pool}
	switch claim := p.known.findClaim(first.Pool, first.Claim); {
	case first.Block:
		problem.Text = fmt.Sprintf("its claim %s is a device (volumeMode Block), and nodes that mount the filesystem "+
			"of one device at once destroy it: it is mounted nowhere; remove the claim if nobody needs it, for one "+
			"with volumeMode Filesystem", first.Claim)
		p.mounts = nil
	case claim == nil:
		if problem.Text = k.describeElsewhere(p); problem.Text == "" {
			var err error
			if problem.Text, err = k.create(ctx, first, p.template); err != nil {
				state.Failed = errors.Join(state.Failed, err)
			}
		}
	}
	for _, mount := range p.mounts {
		if problem.Text == "" || p.mounter(mount) != nil { // as in provide
			state.Mounts = append(state.Mounts, mount)
		}
	}
	if problem.Text != "" {
		state.Problems = append(state.Problems, problem)
	}
}
