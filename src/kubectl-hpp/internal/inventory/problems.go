package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// Problem is one thing that is wrong.
type Problem struct {
	Severity diagnosis.Severity `json:"severity"` // 1 is the gravest
	About    string             `json:"about"`    // the node, or what else it is about
	What     string             `json:"what"`
	More     string             `json:"more,omitempty"` // what follows of it, or why it is so
}

// ofController says whether a part of it is away: without csi-provisioner, for one, no volume is made.
func ofController(f facts.Facts) (all []Problem) {
	for _, p := range f.ControllerPods {
		if !diagnosis.PodReady(p) {
			all = append(all, Problem{
				diagnosis.Unusable, "controller", "pod " + p.Name + " is not ready" + diagnosis.WaitingFor(p),
				"kubectl hpp doctor",
			})
		}
	}
	return all
}

// ofResources are what an operator says itself.
func ofResources(f facts.Facts) (all []Problem) {
	for _, x := range diagnosis.Resources(f) {
		all = append(all, Problem{x.Severity, "operator", x.What, x.More})
	}
	return all
}

// ofNodes are what is wrong with nodes and pools.
func ofNodes(f facts.Facts) (all []Problem) {
	for _, n := range f.Reported.Nodes {
		for _, x := range diagnosis.Reported(f, n) {
			all = append(all, Problem{x.Severity, n.Name, x.What, x.More})
		}
	}
	return all
}

// ofVolumes say where there are orphans, and which PersistentVolumes have no volume.
func ofVolumes(volumes []Volume) (all []Problem) {
	found, lost := map[string]int{}, 0
	for _, v := range volumes {
		switch {
		case v.State == facts.Lost && v.Says != "": // no node has shown it; of others the pool has told
			lost++
		case v.State == facts.Orphan:
			found[v.Node+" "+v.Pool]++
		}
	}
	if lost > 0 {
		all = append(all, Problem{
			diagnosis.Damaged, "volumes", diagnosis.Count(lost, "PersistentVolume") + " without a volume",
			"kubectl hpp get volumes -A --state lost",
		})
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		node, pool, _ := strings.Cut(place, " ")
		all = append(all, Problem{
			diagnosis.Left, node, pool + " " + diagnosis.Count(found[place], "volume") + " orphaned",
			fmt.Sprintf("kubectl hpp get volumes -A --state orphan --node %s", node),
		})
	}
	return all
}

// ofClaims say which claims wait for a volume, or have lost theirs.
func ofClaims(f facts.Facts) []Problem {
	stuck := f.Stuck()
	if len(stuck) == 0 {
		return nil
	}
	var names []string
	severity, explain := diagnosis.Limited, "kubectl hpp explain pvc "+stuck[0].Name+" -n "+stuck[0].Namespace
	for _, c := range stuck {
		names = append(names, c.Namespace+"/"+c.Name)
		if c.Status.Phase == corev1.ClaimLost {
			severity = diagnosis.Damaged
		}
	}
	return []Problem{{
		severity, "claims", fmt.Sprintf("%d wait or are lost", len(stuck)), abridge.Names(names) + "; " + explain,
	}}
}

// ofVersions say which parts are of another version than the controller.
func ofVersions(f facts.Facts, plugin string) (all []Problem) {
	by, is := map[string][]string{}, f.Reported.Version
	for _, n := range f.Reported.Nodes {
		if n.State == facts.Connected && n.Version != is {
			by[n.Version] = append(by[n.Version], n.Name)
		}
	}
	differs := func(about, version string) {
		all = append(all, Problem{diagnosis.Differing, about, "version " + version, "the controller is " + is})
	}
	for _, version := range slices.Sorted(maps.Keys(by)) {
		about := by[version][0]
		if len(by[version]) > 1 {
			about = diagnosis.Count(len(by[version]), "node")
		}
		differs(about, version)
	}
	if plugin != is {
		differs("kubectl hpp", plugin)
	}
	return all
}
