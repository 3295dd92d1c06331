// Package inventory joins what Kubernetes and the controller say of volumes, pools, nodes and trash into rows. It is
// pure: two answers in, rows out. A field that nobody could be asked about has its zero value, and sizes are nil.
package inventory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// Volume is one, or a snapshot. Sizes are in bytes.
type Volume struct {
	Namespace string    `json:"namespace,omitempty"`
	Claim     string    `json:"claim,omitempty"` // of an inline volume, the pod
	Pods      []string  `json:"pods,omitempty"`  // that use the claim
	Node      string    `json:"node,omitempty"`
	Pool      string    `json:"pool,omitempty"`
	Class     string    `json:"class,omitempty"`
	Size      *int64    `json:"size,omitempty"`
	Used      *int64    `json:"used,omitempty"`
	Percent   *int64    `json:"usedPercent,omitempty"`
	KeptBy    string    `json:"enforcement,omitempty"`
	State     string    `json:"state"`
	Says      string    `json:"message,omitempty"` // the controller's words, where they say more than State
	Created   time.Time `json:"created,omitzero"`  // the PersistentVolume, or without one the volume
	PV        string    `json:"persistentVolume,omitempty"`
	ID        string    `json:"id"`
}

// Volumes gives those that a PersistentVolume names, and those that only the controller knows.
func Volumes(f facts.Facts) []Volume {
	known := map[string]*corev1.PersistentVolume{}
	for i := range f.Volumes {
		known[f.Volumes[i].Name] = &f.Volumes[i]
	}
	pods := podsByClaim(f)
	var all []Volume
	for _, v := range f.Listed {
		row := Volume{ID: v.ID, PV: v.PV}
		if pv := known[v.PV]; pv != nil {
			row = ofPV(pv, f.Controller)
			delete(known, v.PV)
		}
		row.answered(f, v)
		all = append(all, row)
	}
	for i := range f.Volumes {
		if known[f.Volumes[i].Name] != nil { // the controller was not asked, or it is newer than the answer
			all = append(all, ofPV(&f.Volumes[i], f.Controller))
		}
	}
	for i := range all {
		all[i].Pods = pods[all[i].Namespace+"/"+all[i].Claim]
	}
	return all
}

// ofPV is what a PersistentVolume says.
func ofPV(pv *corev1.PersistentVolume, at cluster.Controller) Volume {
	is := persistentvolume.Describe(pv, at.Driver, at.TopologyKey)
	return Volume{
		Namespace: is.Claim.Namespace, Claim: is.Claim.Name, Node: strings.Join(is.Nodes, ","), Pool: is.Pool,
		Class: pv.Spec.StorageClassName, Size: &is.Bytes, State: facts.Unknown,
		KeptBy:  pv.Spec.CSI.VolumeAttributes[nodeapi.KeyEnforcement],
		Created: pv.CreationTimestamp.Time, PV: pv.Name, ID: is.Handle,
	}
}

// answered adds what the controller says.
func (row *Volume) answered(f facts.Facts, v nodeapi.VolumeStatus) {
	if row.Claim == "" {
		row.Namespace, row.Claim, _ = strings.Cut(v.Claim, "/")
	}
	row.Node, row.Pool = cmp.Or(v.Node, row.Node), cmp.Or(v.Pool, row.Pool)
	row.Size, row.KeptBy = &v.Bytes, cmp.Or(v.Enforcement, row.KeptBy)
	row.Created = cmp.Or(row.Created, v.Created)
	if v.Used >= 0 {
		row.Used = &v.Used
		if v.Bytes > 0 {
			percent := int64(float64(v.Used) * 100 / float64(v.Bytes))
			row.Percent = &percent
		}
	}
	if row.State = facts.StateOf(v.State); row.State == facts.OK {
		node, _ := f.Node(v.Node)
		row.State = marked(facts.Pool(node, v.Pool), v.ID)
	}
	if v.State != "" && v.State != row.State {
		row.Says = v.State
	}
}

// marked is the state that a pool's warnings give to a volume.
func marked(p nodeapi.PoolStatus, id string) string {
	switch {
	case facts.Warned(p, id, nodeapi.WarningVolumeLost):
		return facts.Lost
	case facts.Warned(p, id, nodeapi.WarningVolumeRefused):
		return facts.Refused
	case facts.Warned(p, id, nodeapi.WarningVolumeNotEnforced):
		return facts.NotEnforced
	}
	return facts.OK
}

// podsByClaim are the names of pods that have not ended, by namespace and name of the claims that they use.
func podsByClaim(f facts.Facts) map[string][]string {
	by := map[string][]string{}
	for _, p := range f.Pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		claims := facts.ClaimsOf(p)
		if f.Inline(p) { // the controller names the pod of an inline volume
			claims = append(claims, p.Name)
		}
		for _, claim := range claims {
			if key := p.Namespace + "/" + claim; !slices.Contains(by[key], p.Name) {
				by[key] = append(by[key], p.Name)
			}
		}
	}
	return by
}
