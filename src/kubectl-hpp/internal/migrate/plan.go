// Package migrate makes volumes of other provisioners of directories ours, by renaming: under the same claim, and back
// until it is finished. All writes to Kubernetes are the user's.
package migrate

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/pods"
)

// Sources are the values of --from, with the name that each provisioner gives its PersistentVolumes.
func Sources() map[string]string {
	return map[string]string{
		"local-path": "rancher.io/local-path", "openebs": "openebs.io/local",
		"kubevirt-legacy": names.LegacyProvisioner,
	}
}

// Options are what the user wants.
type Options struct {
	From, Namespace, Pool, Enforce string
	// Provisioner is the name of the source's, where that is not the usual one.
	Provisioner string
	Claims      []string // names in the namespace; none: all
	Grow        bool
	AnyPath     bool // also directories that the provisioner does not make by itself
}

// Candidate is what is known of one volume.
type Candidate struct {
	PV    corev1.PersistentVolume
	Claim *corev1.PersistentVolumeClaim // nil: it is gone
	Pods  []corev1.Pod                  // those that use the claim
	Node  string                        // "": no node has the affinity's labels
	Owner string                        // of the pods: what is stopped
	// Twins are other PersistentVolumes, of anybody, with the same directory on the node, or one in it or above it.
	Twins []string
	Found nodeapi.Directory
	// Unseen is why the node did not say anything of it.
	Unseen string
}

// How a volume is migrated.
const (
	Rename      = "rename"
	NotEnforced = "rename (not enforced)"
	Copy        = "copy"
	Unknown     = "-"
)

// Row is the plan for one volume.
type Row struct {
	Claim, Node, Path, How, Stops string
	PV                            string
	Begun                         string // what can be done with one that was begun
	Bytes, Used, Files            int64
	Partial                       bool
	FSGroup                       *int64
	Problems                      []string // with any of them it is not migrated
	Warnings                      []string
}

// pathOf is the directory of a volume, "" where it has none.
func pathOf(pv *corev1.PersistentVolume) string {
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.HostPath != nil:
		return path.Clean(s.HostPath.Path)
	case s.Local != nil:
		return path.Clean(s.Local.Path)
	}
	return ""
}

// provisioner is the name of the one whose volumes are migrated.
func (o Options) provisioner() string { return cmp.Or(o.Provisioner, Sources()[o.From]) }

// selects reports whether a claim is one that the user means.
func (o Options) selects(namespace, claim string) bool {
	return (o.Namespace == "" || namespace == o.Namespace) && (len(o.Claims) == 0 || slices.Contains(o.Claims, claim))
}

// IsOf reports whether a PersistentVolume is one of the source's.
func (o Options) IsOf(pv *corev1.PersistentVolume) bool {
	return pathOf(pv) != "" && pv.Annotations[names.ProvisionedBy] == o.provisioner()
}

// makes reports whether the directory of a volume has the name that the source gives it. Whoever writes a
// PersistentVolume by hand can name any.
func (o Options) makes(pv *corev1.PersistentVolume) bool {
	base := path.Base(pathOf(pv))
	switch {
	case base == pv.Name:
		return true
	case o.From == "local-path": // with the namespace and the name of the claim
		return strings.HasPrefix(base, pv.Name+"_")
	case o.From == "kubevirt-legacy" && pv.Spec.ClaimRef != nil: // USE_NAMING_PREFIX
		return base == pv.Spec.ClaimRef.Name+"-"+pv.Name
	}
	return false
}

// NodeOf is the one node that a volume's affinity names, by its labels or its name.
func NodeOf(pv *corev1.PersistentVolume, nodes []corev1.Node) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return pv.Annotations[names.ProvisionOnNode]
	}
	found := ""
	for _, n := range nodes {
		if !persistentvolume.IsOn(pv, n.Name, n.Labels) {
			continue
		}
		if found != "" {
			return ""
		}
		found = n.Name
	}
	return found
}

// Plan decides about one volume.
func Plan(c Candidate, o Options) Row {
	capacity := c.PV.Spec.Capacity[corev1.ResourceStorage]
	r := Row{
		Node: c.Node, Path: pathOf(&c.PV), PV: c.PV.Name, Stops: c.Owner, Bytes: capacity.Value(), How: Rename,
		Used: c.Found.Bytes, Files: c.Found.Files, Partial: c.Found.Partial,
	}
	if ref := c.PV.Spec.ClaimRef; ref != nil {
		r.Claim = ref.Namespace + "/" + ref.Name
	}
	problem := func(is bool, format string, values ...any) {
		if is {
			r.Problems = append(r.Problems, fmt.Sprintf(format, values...))
		}
	}
	problem(c.Claim == nil, "its claim is gone: nothing to migrate")
	problem(c.Node == "", "no single node has the labels of its affinity")
	problem(!o.AnyPath && !o.makes(&c.PV), "its directory %s is not one that %s makes: --any-path takes it "+
		"nevertheless", r.Path, o.provisioner())
	problem(len(c.Twins) > 0, "its directory is the same as, in or above that of %s", strings.Join(c.Twins, ", "))
	if c.Unseen != "" {
		r.How = Unknown
		problem(true, "%s", c.Unseen)
	}
	block := c.PV.Spec.VolumeMode != nil && *c.PV.Spec.VolumeMode == corev1.PersistentVolumeBlock
	problem(block, "it is a block volume")
	claims(c, &r, problem)
	users(c, &r, problem)
	directory(c, o, &r, problem)
	return r
}

// directory looks at what the node says of it.
func directory(c Candidate, o Options, r *Row, problem func(is bool, format string, values ...any)) {
	if c.Found.Exists && !c.Found.SameMount {
		r.How = Copy
		problem(true, "other filesystem than pool %s: that is not done here; copy with a pod that has both volumes",
			o.Pool)
	} else if len(c.Found.Problems) > 0 {
		problem(true, "%s", strings.Join(c.Found.Problems, "; "))
	}
	if r.How == Rename && c.Found.Exists && (!c.Found.Enforceable || o.Enforce == nodeapi.EnforceNever) {
		r.How = NotEnforced
	}
	switch {
	case c.Found.Bytes <= r.Bytes || r.How == Copy:
	case o.Grow:
		r.Bytes = grown(r.Bytes, c.Found.Bytes)
	case r.How == Rename: // else nothing holds it to its size
		problem(true, "uses more than its claim: --grow makes it larger")
	}
}

// grown is the size of a volume that --grow makes larger, if it uses more than it has.
func grown(size, used int64) int64 {
	if used <= size {
		return size
	}
	return used + used/5
}

// claims looks at the claim.
func claims(c Candidate, r *Row, problem func(is bool, format string, values ...any)) {
	if c.Claim != nil {
		problem(c.Claim.Status.Phase != corev1.ClaimBound, "its claim is %s, not Bound", c.Claim.Status.Phase)
		for _, owner := range c.Claim.OwnerReferences {
			if owner.Kind != "StatefulSet" {
				r.Warnings = append(r.Warnings, fmt.Sprintf("%s %s owns the claim, and may make it anew while it is "+
					"Lost", owner.Kind, owner.Name))
			}
		}
	}
}

// users looks at those that use the claim.
func users(c Candidate, r *Row, problem func(is bool, format string, values ...any)) {
	on := func(p corev1.Pod) bool { return p.Spec.NodeName == c.Node }
	problem(c.Found.UsedAt != "" && !slices.ContainsFunc(c.Pods, on),
		"no pod of its claim is on the node, and it is in use at %s", c.Found.UsedAt)
	for _, p := range c.Pods {
		kept := pods.Kept(p)
		problem(kept != "", "%s", kept)
		s := p.Spec.SecurityContext
		if s == nil || s.FSGroup == nil {
			continue
		}
		if s.FSGroupChangePolicy == nil || *s.FSGroupChangePolicy != corev1.FSGroupChangeOnRootMismatch {
			problem(true, "pod %s has an fsGroup: the kubelet would change the group of every file; give it "+
				"fsGroupChangePolicy: OnRootMismatch", p.Name)
			continue
		}
		problem(r.FSGroup != nil && *r.FSGroup != *s.FSGroup, "its pods have several fsGroups")
		r.FSGroup = s.FSGroup
	}
}

// twins are the PersistentVolumes that have files in common with one: of whoever, on its node or on one nobody knows.
func twins(all []Candidate, of Candidate) (others []string) {
	own := pathOf(&of.PV)
	for _, c := range all {
		p := pathOf(&c.PV)
		if c.PV.Name != of.PV.Name && (c.Node == of.Node || c.Node == "") && (below(p, own) || below(own, p)) {
			others = append(others, c.PV.Name)
		}
	}
	slices.Sort(others)
	return others
}

// below reports whether a clean path is a directory or in it.
func below(p, directory string) bool {
	return strings.HasPrefix(strings.TrimSuffix(p, "/")+"/", strings.TrimSuffix(directory, "/")+"/")
}
