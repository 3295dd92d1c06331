// Package doctor examines an installation: each check is well, worth a look or wrong, with what to do. It is pure: the
// facts are what the API and the controller's status say.
package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// Level is how a check came out.
type Level string

// The values of Level.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "FAIL"
)

// Check is one of what was looked at.
type Check struct {
	Level Level
	Says  string   // one sentence
	Do    []string // what to do, with what to type
}

// Facts are what was read.
type Facts struct {
	facts.Facts
	Plugin    string // its version
	Server    string // that of Kubernetes, "" where it is not known
	CSIDriver *storagev1.CSIDriver
	// SnapshotAPI and SnapshotController report whether they are there; nil where that could not be read.
	SnapshotAPI, SnapshotController *bool
}

// Examine gives all checks, in the order in which things depend on each other.
func Examine(f Facts) []Check {
	return slices.Concat(
		f.kubernetes(), f.resources(), f.csiDriver(), f.controller(), f.versions(), f.kernels(), f.nodes(), f.pools(),
		f.classes(), f.snapshots(), f.clocks(), f.rights(),
	)
}

// Failed reports whether something is wrong.
func Failed(checks []Check) bool { return Count(checks, Fail) > 0 }

// Count is how many checks came out so.
func Count(checks []Check, level Level) (n int) {
	for _, c := range checks {
		if c.Level == level {
			n++
		}
	}
	return n
}

// Write writes checks for a person.
func Write(w io.Writer, checks []Check) error {
	var text strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&text, "%-5s %s\n", c.Level, abridge.Printable(c.Says))
		for _, do := range c.Do {
			fmt.Fprintf(&text, "      %s\n", abridge.Printable(do))
		}
	}
	fmt.Fprintf(&text, "\n%d ok, %d warn, %d FAIL\n", Count(checks, OK), Count(checks, Warn), Count(checks, Fail))
	_, err := io.WriteString(w, text.String())
	return err
}

func one(level Level, says string, do ...string) []Check { return []Check{{level, says, do}} }

// oldest is the Kubernetes that the chart asks for (kubeVersion).
const oldest = "1.30.0"

func (f Facts) kubernetes() []Check {
	is, err := version.ParseGeneric(f.Server)
	switch {
	case f.Server == "":
		return one(Warn, "The API server did not say which version of Kubernetes it is.")
	case err != nil:
		return one(Warn, fmt.Sprintf("Kubernetes calls itself %q: want a version such as 1.37.1.", f.Server))
	case is.LessThan(version.MustParseGeneric(oldest)):
		return one(Fail, fmt.Sprintf("Kubernetes %s is older than %s.", f.Server, oldest), "Upgrade the cluster.")
	}
	return one(OK, "Kubernetes "+f.Server+" is supported.")
}

// resources are what an operator says; where it waits, there is no driver yet, nor all that follows.
func (f Facts) resources() (checks []Check) {
	for _, x := range diagnosis.Resources(f.Facts) {
		level := Warn
		if x.Severity == diagnosis.Unusable {
			level = Fail
		}
		checks = append(checks, Check{level, x.Message, x.Next})
	}
	for _, r := range f.Resources {
		switch c := meta.FindStatusCondition(r.Status.Conditions, v1beta1.Available); {
		case c == nil:
			says := fmt.Sprintf("The HostPathProvisioner %s has no status: no operator has looked at it.", r.Name)
			checks = append(checks, Check{Warn, says, []string{"kubectl get deployments -A | grep operator"}})
		case len(checks) == 0:
			checks = one(OK, fmt.Sprintf("The HostPathProvisioner %s is served.", r.Name))
		}
	}
	return checks
}

func (f Facts) csiDriver() []Check {
	name := f.Controller.Driver
	again := "Apply the chart again: helm upgrade"
	if f.CSIDriver == nil {
		return one(Fail, fmt.Sprintf("There is no CSIDriver %s, or it could not be read.", name),
			again, "If the driver has another name: kubectl get csidrivers, and --driver NAME")
	}
	var wrong []string
	expect := func(field string, is *bool, want bool) {
		if is == nil || *is != want {
			wrong = append(wrong, fmt.Sprintf("%s is not %v", field, want))
		}
	}
	spec := f.CSIDriver.Spec
	expect("attachRequired", spec.AttachRequired, false)
	expect("podInfoOnMount", spec.PodInfoOnMount, true)
	expect("storageCapacity", spec.StorageCapacity, true)
	if !slices.Contains(spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent) {
		wrong = append(wrong, "volumeLifecycleModes lacks Persistent")
	}
	if len(wrong) > 0 {
		return one(Fail, fmt.Sprintf("CSIDriver %s: %s.", name, strings.Join(wrong, ", ")),
			again+" (attachRequired cannot be changed: delete the object first)")
	}
	return one(OK, "CSIDriver "+name+" is there, with the fields that the driver needs.")
}

func (f Facts) controller() (checks []Check) {
	for _, p := range f.ControllerPods {
		if !diagnosis.PodReady(p) {
			checks = append(checks, one(Fail, fmt.Sprintf("The controller's pod %s is not ready%s.", p.Name,
				diagnosis.WaitingFor(p)), fmt.Sprintf("kubectl describe pod %s -n %s", p.Name, p.Namespace),
				fmt.Sprintf("kubectl logs %s -n %s -c controller", p.Name, p.Namespace))...)
		}
	}
	switch {
	case f.Away != "":
		return append(checks, one(Fail, "The controller cannot be asked: "+f.Away+".",
			"kubectl get pods -A -l app.kubernetes.io/component=csi-controller -o wide")...)
	case !f.Answered():
		return append(checks, one(Warn, "The controller was not asked: nothing is known of the nodes' pools.")...)
	}
	return append(checks, one(OK, fmt.Sprintf("The controller answers in pod %s/%s.", f.Controller.Namespace,
		f.Controller.Pod))...)
}

// versions compares the plugin, the controller and the nodes: one minor version apart is served.
func (f Facts) versions() (checks []Check) {
	is := f.Reported.Version
	if is == "" {
		return nil
	}
	if apart(f.Plugin, is) {
		checks = append(checks, one(Fail, fmt.Sprintf("This plugin is %s and the controller %s: more than one minor "+
			"version apart.", f.Plugin, is), "Update the older of the two.")...)
	}
	others := map[string][]string{}
	for _, n := range f.Reported.Nodes {
		if n.Version != "" && apart(n.Version, is) {
			others[n.Version] = append(others[n.Version], n.Name)
		}
	}
	for v, nodes := range others {
		checks = append(checks, one(Fail, fmt.Sprintf("The driver is %s on %s, and the controller %s: more than one "+
			"minor version apart.", v, abridge.Names(nodes), is), "See whether the rollout hangs: kubectl rollout "+
			"status daemonset -n "+f.Controller.Namespace+" -l app.kubernetes.io/component=csi-driver")...)
	}
	slices.SortFunc(checks, func(a, b Check) int { return strings.Compare(a.Says, b.Says) })
	if len(checks) == 0 {
		return one(OK, fmt.Sprintf("Plugin %s, controller %s and the nodes' drivers fit each other.", f.Plugin, is))
	}
	return checks
}

// apart reports whether two versions are more than one minor version apart; development versions fit everything.
func apart(a, b string) bool {
	one, err := version.ParseGeneric(a)
	other, problem := version.ParseGeneric(b)
	if err != nil || problem != nil || strings.HasPrefix(a, "0.0.0") || strings.HasPrefix(b, "0.0.0") {
		return false
	}
	low, high := min(one.Minor(), other.Minor()), max(one.Minor(), other.Minor())
	return one.Major() != other.Major() || high-low > 1
}

// rights are what was not looked at.
func (f Facts) rights() (checks []Check) {
	for _, missing := range f.Missing {
		checks = append(checks, one(Warn, "Not examined: "+cmp.Or(strings.TrimSuffix(missing, "."), "?")+".")...)
	}
	return checks
}
