package wire

import "github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"

// FromDirectory makes a directory ready to be sent.
func FromDirectory(d nodeapi.Directory) *LookDirectoryResponse {
	return &LookDirectoryResponse{
		Node: d.Node, Pool: d.Pool, Path: d.Path, Exists: d.Exists, Files: d.Files, Bytes: d.Bytes, Partial: d.Partial,
		SameMount: d.SameMount, FsType: d.FSType, Enforceable: d.Enforceable, EnforcementReason: d.EnforcementReason,
		MountInside: d.MountInside, UsedAt: d.UsedAt, Problems: d.Problems,
	}
}

// ToDirectory reads a directory that was sent.
func ToDirectory(d *LookDirectoryResponse) nodeapi.Directory {
	return nodeapi.Directory{
		Node: d.GetNode(), Pool: d.GetPool(), Path: d.GetPath(), Exists: d.GetExists(), Files: d.GetFiles(),
		Bytes: d.GetBytes(), Partial: d.GetPartial(), SameMount: d.GetSameMount(), FSType: d.GetFsType(),
		Enforceable: d.GetEnforceable(), EnforcementReason: d.GetEnforcementReason(),
		MountInside: d.GetMountInside(), UsedAt: d.GetUsedAt(), Problems: d.GetProblems(),
	}
}

// FromTaken makes a directory ready to be sent that has become a volume.
func FromTaken(t nodeapi.TakenDirectory) *TakeDirectoryResponse {
	return &TakeDirectoryResponse{
		Node: t.Node, Id: t.ID, Pool: t.Pool, Path: t.Path, Bytes: t.Bytes, Shared: t.Shared, Enforcing: t.Enforcing,
		Files: t.Files, Failed: t.Failed, Enforcement: t.Enforcement, Reason: t.Reason, Driver: t.Driver,
		TopologyKey: t.TopologyKey,
	}
}

// ToTaken reads such a directory.
func ToTaken(t *TakeDirectoryResponse) nodeapi.TakenDirectory {
	return nodeapi.TakenDirectory{
		Node: t.GetNode(), ID: t.GetId(), Pool: t.GetPool(), Path: t.GetPath(), Bytes: t.GetBytes(),
		Shared: t.GetShared(), Enforcing: t.GetEnforcing(), Files: t.GetFiles(), Failed: t.GetFailed(),
		Enforcement: t.GetEnforcement(), Reason: t.GetReason(), Driver: t.GetDriver(), TopologyKey: t.GetTopologyKey(),
	}
}

// FromReturned makes a directory ready to be sent that goes back to where it was.
func FromReturned(r nodeapi.ReturnedDirectory) *ReturnDirectoryResponse {
	return &ReturnDirectoryResponse{Node: r.Node, Id: r.ID, Path: r.Path, Done: r.Done, Files: r.Files}
}

// ToReturned reads such a directory.
func ToReturned(r *ReturnDirectoryResponse) nodeapi.ReturnedDirectory {
	return nodeapi.ReturnedDirectory{
		Node: r.GetNode(), ID: r.GetId(), Path: r.GetPath(), Done: r.GetDone(), Files: r.GetFiles(),
	}
}
