package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// served are the nodes that have, or had, the driver.
func (f Facts) served() []string {
	served := map[string]bool{}
	for _, n := range f.Reported.Nodes {
		served[n.Name] = true
	}
	for _, p := range f.DriverPods {
		if p.Spec.NodeName != "" {
			served[p.Spec.NodeName] = true
		}
	}
	return slices.Sorted(maps.Keys(served))
}

// nodes are those that have, or had, the driver: each as it is explained.
func (f Facts) nodes() (checks []Check) {
	well, served := 0, f.served()
	for _, name := range served {
		asked := f.Facts
		asked.Away = "" // is said once
		answer := diagnosis.Node(asked, name)
		if !answer.Trouble() {
			well++
		}
		for _, a := range append([]say.Answer{answer}, answer.Also...) {
			level := Warn
			switch {
			case a.Wrong:
				level = Fail
			case a.Reason == "Well" || a.Reason == "Cordoned":
				continue
			}
			says := a.Message
			if !strings.Contains(says, name) {
				says = name + ": " + says
			}
			checks = append(checks, Check{level, says, a.Next})
		}
	}
	switch {
	case len(served) == 0:
		return one(Fail, "No node has the driver.",
			"kubectl describe daemonset -A -l app.kubernetes.io/component=csi-driver")
	case well > 0:
		checks = append(one(OK, fmt.Sprintf("%d of %d nodes are ready, and have the driver and their pools.", well,
			len(served))), checks...)
	}
	return checks
}

// pools says of each pool where it is, and how it holds volumes to their sizes.
func (f Facts) pools() (checks []Check) {
	for _, p := range facts.Pools(f.Reported) {
		checks = append(checks, f.pool(p.Name)...)
	}
	return checks
}

// poolOn is a pool on all nodes that it is selected on.
type poolOn struct {
	present, selected int
	held              map[string]bool     // how volumes are held to their sizes
	unenforced        map[string][]string // the nodes by the reason why they are not
	withOS            []string
}

func (on *poolOn) add(node string, p nodeapi.PoolStatus) {
	on.selected++
	if !p.Served() {
		return
	}
	on.present++
	on.held[fmt.Sprintf("%s (%s)", p.Enforcement, p.Backend)] = true
	if p.EnforcementReason != "" {
		on.unenforced[p.EnforcementReason] = append(on.unenforced[p.EnforcementReason], node)
	}
	if p.WithOS != nil && *p.WithOS {
		on.withOS = append(on.withOS, node)
	}
}

func (f Facts) pool(name string) (checks []Check) {
	on := poolOn{held: map[string]bool{}, unenforced: map[string][]string{}}
	for _, n := range f.Reported.Nodes {
		for _, p := range n.Pools {
			if p.Name == name && p.State != nodeapi.StateNotSelected {
				on.add(n.Name, p)
			}
		}
	}
	level := OK
	if on.present == 0 {
		level = Fail
	}
	checks = one(level, fmt.Sprintf("Pool %s is on %d of the %d nodes that it is selected on; enforcement: %s.", name,
		on.present, on.selected, cmp.Or(strings.Join(slices.Sorted(maps.Keys(on.held)), ", "), "unknown")))
	if on.selected == 0 {
		checks = one(Warn, fmt.Sprintf("Pool %s is selected on no node that is connected: its nodeSelector fits none.",
			name), "kubectl get nodes --show-labels")
	}
	for _, reason := range slices.Sorted(maps.Keys(on.unenforced)) {
		checks = append(checks, Check{Warn, fmt.Sprintf("Pool %s holds no volume to its size on %s.", name,
			abridge.Names(on.unenforced[reason])), []string{reason}})
	}
	if len(on.withOS) > 0 {
		checks = append(checks, Check{
			Warn, fmt.Sprintf("Pool %s is on a filesystem of the operating system on %s: "+
				"full volumes stop the node.", name, abridge.Names(on.withOS)),
			[]string{"docs/runbooks/HPPSharingPoolPathWithOS.md"},
		})
	}
	return checks
}

// classes are the StorageClasses of the driver, and the default of the cluster.
func (f Facts) classes() (checks []Check) {
	var defaults, ours, wrong []string
	for _, c := range f.Classes {
		if c.Annotations[facts.DefaultClass] == "true" {
			defaults = append(defaults, c.Name)
		}
		if c.Provisioner != f.Controller.Driver {
			continue
		}
		ours = append(ours, c.Name)
		if _, why := f.PoolsOf(&c); why != nil {
			wrong = append(wrong, c.Name)
			checks = append(checks, Check{Fail, fmt.Sprintf("StorageClass %s: %v.", c.Name, why), []string{
				"Delete the class and make it anew, or add the pool to the chart's value storagePools.",
			}})
		}
	}
	switch {
	case len(ours) == 0:
		checks = append(checks, one(Warn,
			"No StorageClass is of the driver "+f.Controller.Driver+", as far as may be read.",
			"Set the chart's value storageClasses.")...)
	case len(wrong) < len(ours):
		checks = append(checks, one(OK, "The driver's StorageClasses are: "+abridge.Names(ours)+".")...)
	}
	switch len(defaults) {
	case 0:
		return append(checks, one(Warn, "No StorageClass is the default: claims that name none wait.",
			"kubectl annotate storageclass CLASS "+facts.DefaultClass+"=true")...)
	case 1:
		return append(checks, one(OK, "StorageClass "+defaults[0]+" is the default.")...)
	}
	return append(checks, one(Warn, fmt.Sprintf("%d StorageClasses are the default: %s; the newest of them is taken.",
		len(defaults), abridge.Names(defaults)), "kubectl annotate storageclass CLASS "+facts.DefaultClass+"-")...)
}

func (f Facts) snapshots() []Check {
	const how = "docs/how-to/snapshots.md#what-you-need"
	switch {
	case f.SnapshotAPI == nil:
		return one(Warn, "It could not be seen whether the cluster has the snapshot API.")
	case !*f.SnapshotAPI:
		return one(Warn, "The cluster has no snapshot API (snapshot.storage.k8s.io/v1): volumes have no snapshots.",
			how)
	case f.SnapshotController == nil:
		return one(Warn, "The snapshot API is there; it could not be seen whether snapshot-controller runs.")
	case !*f.SnapshotController:
		return one(Warn, "The snapshot API is there, and no pod of snapshot-controller was found: VolumeSnapshots "+
			"wait, unless your distribution runs it under another name.", how)
	}
	return one(OK, "The snapshot API is there, and snapshot-controller runs.")
}

// skew is by how much clocks may differ before it is said.
const skew = 2 * time.Minute

// clocks compares this machine's, the controller's and the nodes'.
func (f Facts) clocks() []Check {
	ahead, here := []string{}, false
	for _, n := range f.Reported.Nodes {
		here = here || n.Seen.Sub(f.Now) > skew || n.Since.Sub(f.Now) > skew
		for _, p := range n.Pools {
			if p.Seen.Sub(n.Seen) > skew || p.Since.Sub(n.Seen) > skew {
				ahead = append(ahead, n.Name)
				break
			}
		}
	}
	var checks []Check
	if here {
		checks = one(Warn, "The controller's clock is ahead of this machine's by more than two minutes.",
			"See whether both keep time: timedatectl")
	}
	if len(ahead) > 0 {
		checks = append(checks, one(Fail, "The clock is ahead by more than two minutes on "+abridge.Names(ahead)+".",
			"Let the node keep time (chrony, systemd-timesyncd): tokens and certificates depend on it.")...)
	}
	if len(checks) == 0 && len(f.Reported.Nodes) > 0 {
		return one(OK, "No clock is ahead.")
	}
	return checks
}
