// Package columns is how volumes, pools, nodes and trash are shown in tables.
package columns

import (
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/table"
)

// Volumes are those of volumes, with the namespaces of claims where several are shown.
func Volumes(namespaces bool, now time.Time) []table.Column[inventory.Volume] {
	type row = inventory.Volume
	claim := func(v row) string {
		if namespaces && v.Claim != "" {
			return v.Namespace + "/" + v.Claim
		}
		return v.Claim
	}
	use := func(v row) string {
		if v.Percent == nil {
			return ""
		}
		return table.Count(v.Percent) + "%"
	}
	state := func(v row) string {
		switch {
		case v.State == facts.Unknown:
			return v.Says
		case v.Says != "":
			return v.Says
		}
		return strings.ReplaceAll(v.State, "-", " ")
	}
	return []table.Column[row]{
		{Head: "CLAIM", Cell: claim},
		{Head: "POD", Cell: func(v row) string { return several(v.Pods) }},
		{Head: "NODE", Cell: func(v row) string { return v.Node }},
		{Head: "POOL", Cell: func(v row) string { return v.Pool }},
		{Head: "SIZE", Cell: func(v row) string { return table.Bytes(v.Size) }},
		{Head: "USED", Cell: func(v row) string { return table.Bytes(v.Used) }},
		{Head: "USE", Cell: use},
		{Head: "KEPT-BY", Cell: func(v row) string { return v.KeptBy }},
		{Head: "STATE", Cell: state},
		{Head: "AGE", Cell: func(v row) string { return table.Age(v.Created, now) }},
		{Head: "CLASS", Wide: true, Cell: func(v row) string { return v.Class }},
		{Head: "VOLUME", Wide: true, Cell: func(v row) string { return v.PV }},
		{Head: "ID", Wide: true, Cell: func(v row) string { return v.ID }},
	}
}

// several is the first of names, and how many more there are.
func several(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	more := int64(len(all) - 1)
	return all[0] + " +" + table.Count(&more)
}

// NameOfVolume is what kubectl calls the claim, or where that is not bound to the volume, the volume's id.
func NameOfVolume(v inventory.Volume) string {
	if v.Claim == "" || v.PV == "" || v.State == facts.Orphan {
		return v.ID
	}
	return "persistentvolumeclaim/" + v.Claim
}

// Pools are those of pools.
func Pools(now time.Time) []table.Column[inventory.Pool] {
	type row = inventory.Pool
	return []table.Column[row]{
		{Head: "NODE", Cell: func(p row) string { return p.Node }},
		{Head: "POOL", Cell: func(p row) string { return p.Name }},
		{Head: "STATE", Cell: func(p row) string { return p.State }},
		{Head: "SIZE", Cell: func(p row) string { return table.Bytes(p.Size) }},
		{Head: "FREE", Cell: func(p row) string { return table.Bytes(p.Free) }},
		{Head: "PROMISED", Cell: func(p row) string { return table.Bytes(p.Promised) }},
		{Head: "LARGEST", Cell: func(p row) string { return table.Bytes(p.Largest) }},
		{Head: "VOLUMES", Cell: func(p row) string { return table.Count(p.Volumes) }},
		{Head: "TRASH", Cell: func(p row) string { return table.Count(p.Trash) }},
		{Head: "KEPT-BY", Cell: func(p row) string { return p.KeptBy }},
		{Head: "SINCE", Wide: true, Cell: func(p row) string { return table.Age(p.Since, now) }},
		{Head: "BACKEND", Wide: true, Cell: func(p row) string { return p.Backend }},
		{Head: "PATH", Wide: true, Cell: func(p row) string { return p.Path }},
		{Head: "MESSAGE", Wide: true, Cell: func(p row) string { return p.Message }},
	}
}

// Nodes are those of nodes.
func Nodes(now time.Time) []table.Column[inventory.Node] {
	type row = inventory.Node
	pools := func(n row) string {
		if n.Pools == nil {
			return ""
		}
		return table.Count(n.Present) + "/" + table.Count(n.Pools)
	}
	return []table.Column[row]{
		{Head: "NODE", Cell: func(n row) string { return n.Name }},
		{Head: "STATE", Cell: func(n row) string { return n.State }},
		{Head: "SEEN", Cell: func(n row) string { return ago(n.Seen, now) }},
		{Head: "POOLS", Cell: pools},
		{Head: "VOLUMES", Cell: func(n row) string { return table.Count(&n.Volumes) }},
		{Head: "SIZE", Cell: func(n row) string { return table.Bytes(n.Size) }},
		{Head: "PROMISED", Cell: func(n row) string { return table.Bytes(n.Promised) }},
		{Head: "VERSION", Cell: func(n row) string { return n.Version }},
		{Head: "MESSAGE", Wide: true, Cell: func(n row) string { return n.Message }},
	}
}

// Trash are those of deleted volumes.
func Trash(now time.Time) []table.Column[inventory.Deleted] {
	type row = inventory.Deleted
	kept := func(d row) string {
		switch {
		case d.Due.IsZero():
			return "ever"
		case !d.Due.After(now):
			return "now due"
		}
		return table.Age(now, d.Due)
	}
	return []table.Column[row]{
		{Head: "CLAIM", Cell: func(d row) string { return d.Claim }},
		{Head: "DELETED", Cell: func(d row) string { return ago(d.Deleted, now) }},
		{Head: "KEPT-FOR", Cell: kept},
		{Head: "SIZE", Cell: func(d row) string { return bytesize.Format(d.Size) }},
		{Head: "NODE", Cell: func(d row) string { return d.Node }},
		{Head: "POOL", Wide: true, Cell: func(d row) string { return d.Pool }},
		{Head: "ID", Wide: true, Cell: func(d row) string { return d.ID }},
		{Head: "ENTRY", Wide: true, Cell: func(d row) string { return d.Entry }},
	}
}

func ago(then, now time.Time) string {
	if then.IsZero() {
		return ""
	}
	return table.Age(then, now) + " ago"
}
