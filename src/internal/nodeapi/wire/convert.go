// Package wire is how nodeapi travels between node and controller. Each value has one conversion each way.
package wire

import (
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// FromPool makes a pool ready to be sent.
func FromPool(p nodeapi.PoolStatus) *Pool {
	return &Pool{
		Name: p.Name, Path: p.Path, State: p.State, Selected: p.Selected, Used: p.Used, Configured: p.Configured,
		Reason: p.Reason, Message: p.Message, Id: p.ID, Backend: p.Backend, Enforcement: p.Enforcement,
		EnforcementLost: p.EnforcementLost, ReadOnly: p.ReadOnly, Inline: p.Inline, Shared: p.Shared,
		Waiting: p.Waiting, NodeDirs: p.NodeDirs, WithOs: p.WithOS, Seen: fromTime(p.Seen),
		Size: p.Size, Free: p.Free, Promised: p.Promised, Growable: p.Growable, Allocatable: p.Allocatable,
		Volumes: int64(p.Volumes), Lost: int64(p.Lost), Refused: int64(p.Refused), Uncounted: int64(p.Uncounted),
		Untracked: int64(p.Untracked), Trash: int64(p.TrashEntries), OldestTrash: fromTime(p.OldestTrash),
		TrashDue: fromTime(p.TrashDue), Reserve: p.Reserve, Since: fromTime(p.Since),
		Warnings: fromWarnings(p.Warnings), EnforcementReason: p.EnforcementReason,
	}
}

// ToPool reads a pool that was sent; what the node is too old to say is zero.
func ToPool(p *Pool) nodeapi.PoolStatus {
	return nodeapi.PoolStatus{
		Name: p.GetName(), Path: p.GetPath(), State: p.GetState(), Selected: p.GetSelected(), Used: p.GetUsed(),
		Configured: p.GetConfigured(), Reason: p.GetReason(), Message: p.GetMessage(), ID: p.GetId(),
		Backend: p.GetBackend(), Enforcement: p.GetEnforcement(), EnforcementLost: p.GetEnforcementLost(),
		ReadOnly: p.GetReadOnly(), Inline: p.GetInline(), Shared: p.GetShared(), Waiting: p.GetWaiting(),
		NodeDirs: p.GetNodeDirs(), WithOS: p.WithOs, Seen: toTime(p.GetSeen()),
		Size: p.GetSize(), Free: p.GetFree(), Promised: p.GetPromised(), Growable: p.GetGrowable(),
		Allocatable: p.GetAllocatable(),
		Volumes:     int(p.GetVolumes()), Lost: int(p.GetLost()), Refused: int(p.GetRefused()),
		Uncounted: int(p.GetUncounted()), Untracked: int(p.GetUntracked()), TrashEntries: int(p.GetTrash()),
		OldestTrash: toTime(p.GetOldestTrash()), TrashDue: toTime(p.GetTrashDue()), Reserve: p.GetReserve(),
		Since: toTime(p.GetSince()), Warnings: toWarnings(p.GetWarnings()), EnforcementReason: p.GetEnforcementReason(),
	}
}

func fromWarnings(warnings []nodeapi.Warning) (all []*Warning) {
	for _, w := range warnings {
		all = append(all, &Warning{Reason: w.Reason, Message: w.Message, Volumes: w.Volumes, Since: fromTime(w.Since)})
	}
	return all
}

func toWarnings(warnings []*Warning) (all []nodeapi.Warning) {
	for _, w := range warnings {
		all = append(all, nodeapi.Warning{
			Reason: w.GetReason(), Message: w.GetMessage(), Volumes: w.GetVolumes(), Since: toTime(w.GetSince()),
		})
	}
	return all
}

// FromVolume makes a volume ready to be sent, without what whoever lists it adds.
func FromVolume(v nodeapi.VolumeStatus) *Volume {
	namespace, name, _ := strings.Cut(v.Claim, "/")
	return &Volume{
		Id: v.ID, Pool: v.Pool, Bytes: v.Bytes, Used: v.Used, Enforcement: v.Enforcement, ClaimNamespace: namespace,
		ClaimName: name, Created: v.Created.Unix(), Ephemeral: v.Ephemeral, Published: v.Published,
		Held: v.Held, Copying: v.Copying, SnapshotOf: v.SnapshotOf,
	}
}

// ToVolume reads a volume that was sent.
func ToVolume(v *Volume) nodeapi.VolumeStatus {
	return nodeapi.VolumeStatus{
		ID: v.GetId(), Pool: v.GetPool(), Bytes: v.GetBytes(), Used: v.GetUsed(), Enforcement: v.GetEnforcement(),
		Claim:   nodeapi.Claim{Namespace: v.GetClaimNamespace(), Name: v.GetClaimName()}.String(),
		Created: time.Unix(v.GetCreated(), 0), Ephemeral: v.GetEphemeral(), Published: v.GetPublished(),
		Held: v.GetHeld(), Copying: v.GetCopying(), SnapshotOf: v.GetSnapshotOf(),
	}
}

// FromStatus is how the status of a driver travels.
func FromStatus(s nodeapi.Status) *StatusResponse {
	answer := &StatusResponse{Driver: s.Driver, Version: s.Version, Node: s.Node, Pools: fromPools(s.Pools)}
	for _, n := range s.Nodes {
		answer.Nodes = append(answer.Nodes, &NodeStatus{
			Name: n.Name, State: n.State, Version: n.Version, Since: fromTime(n.Since), Seen: fromTime(n.Seen),
			Message: n.Message, Pools: fromPools(n.Pools),
		})
	}
	return answer
}

// ToStatus reads the status of a driver.
func ToStatus(s *StatusResponse) nodeapi.Status {
	is := nodeapi.Status{
		Driver: s.GetDriver(), Version: s.GetVersion(), Node: s.GetNode(),
		Pools: toPools(s.GetPools()),
	}
	for _, n := range s.GetNodes() {
		is.Nodes = append(is.Nodes, nodeapi.NodeStatus{
			Name: n.GetName(), State: n.GetState(), Version: n.GetVersion(), Since: toTime(n.GetSince()),
			Seen: toTime(n.GetSeen()), Message: n.GetMessage(), Pools: toPools(n.GetPools()),
		})
	}
	return is
}

// FromListed is how a volume travels with what whoever lists it adds.
func FromListed(v nodeapi.VolumeStatus) *ListedVolume {
	return &ListedVolume{Volume: FromVolume(v), Node: v.Node, Pv: v.PV, State: v.State}
}

// ToListed reads a volume with what whoever lists it adds.
func ToListed(v *ListedVolume) nodeapi.VolumeStatus {
	listed := ToVolume(v.GetVolume())
	listed.Node, listed.PV, listed.State = v.GetNode(), v.GetPv(), v.GetState()
	return listed
}

// FromDeleted makes a deleted volume ready to be sent.
func FromDeleted(v nodeapi.DeletedVolume) *DeletedVolume {
	volume := FromVolume(nodeapi.VolumeStatus{ID: v.ID, Pool: v.Pool, Claim: v.Claim, Bytes: v.Bytes})
	return &DeletedVolume{
		Entry: v.Entry, Node: v.Node, Volume: volume, Deleted: fromTime(v.Deleted), Due: fromTime(v.Due),
		State: v.State,
	}
}

// ToDeleted reads a deleted volume that was sent.
func ToDeleted(v *DeletedVolume) nodeapi.DeletedVolume {
	volume := ToVolume(v.GetVolume())
	return nodeapi.DeletedVolume{
		Entry: v.GetEntry(), Node: v.GetNode(), ID: volume.ID, Pool: volume.Pool, Claim: volume.Claim,
		Bytes: volume.Bytes, Deleted: toTime(v.GetDeleted()), Due: toTime(v.GetDue()), State: v.GetState(),
	}
}

// FromWork makes work ready to be sent.
func FromWork(w nodeapi.Work) *Work {
	sent := &Work{
		Id: w.ID, Verb: w.Verb, Node: w.Node, What: w.What, Started: fromTime(w.Started), Ended: fromTime(w.Ended),
		Files: w.Files, Bytes: w.Bytes, Done: int64(w.Done), Failed: int64(w.Failed), Errors: w.Errors,
		Message: w.Message, Error: w.Error,
	}
	for _, v := range w.Volumes {
		sent.Volumes = append(sent.Volumes,
			&Progress{Id: v.ID, Files: v.Files, Bytes: v.Bytes, Done: v.Done, Error: v.Error})
	}
	return sent
}

// ToWork reads work that was sent.
func ToWork(w *Work) nodeapi.Work {
	work := nodeapi.Work{
		ID: w.GetId(), Verb: w.GetVerb(), Node: w.GetNode(), What: w.GetWhat(), Started: toTime(w.GetStarted()),
		Ended: toTime(w.GetEnded()), Files: w.GetFiles(), Bytes: w.GetBytes(), Done: int(w.GetDone()),
		Failed: int(w.GetFailed()), Errors: w.GetErrors(), Message: w.GetMessage(), Error: w.GetError(),
	}
	for _, p := range w.GetVolumes() {
		work.Volumes = append(work.Volumes, ToVolumeWork(p))
	}
	return work
}

// ToVolumeWork reads how far the work on a volume is.
func ToVolumeWork(p *Progress) nodeapi.VolumeWork {
	return nodeapi.VolumeWork{
		ID: p.GetId(), Files: p.GetFiles(), Bytes: p.GetBytes(), Done: p.GetDone(), Error: p.GetError(),
	}
}

// ToMove reads a move of a volume.
func ToMove(m *Move) nodeapi.Move {
	return nodeapi.Move{
		PV: m.GetPv(), From: m.GetFrom(), To: m.GetTo(), Pool: m.GetPool(), Phase: m.GetPhase(),
		Claim:   nodeapi.Claim{Namespace: m.GetClaimNamespace(), Name: m.GetClaimName()}.String(),
		Message: m.GetMessage(), Started: toTime(m.GetStarted()), Bytes: m.GetBytes(), Used: m.GetUsed(),
		Copied: m.GetCopied(), Room: m.GetRoom(), Snapshots: m.GetSnapshots(), Published: m.GetPublished(),
		Problems: m.GetProblems(),
	}
}

func fromPools(pools []nodeapi.PoolStatus) (all []*Pool) {
	for _, p := range pools {
		all = append(all, FromPool(p))
	}
	return all
}

// toPools gives an empty list where there is none: that is how it is printed.
func toPools(pools []*Pool) []nodeapi.PoolStatus {
	all := make([]nodeapi.PoolStatus, 0, len(pools))
	for _, p := range pools {
		all = append(all, ToPool(p))
	}
	return all
}

func fromTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func toTime(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
