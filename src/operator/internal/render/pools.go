package render

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// admission takes pools one by one, as long as the driver would start with all of them.
type admission struct {
	// stateDir and kubeletDir belong to the driver and the kubelet.
	stateDir, kubeletDir string
	problems             []pools.Problem
	taken                []any
	result               *Result
}

// setPools replaces the pools by those of the resource, less those that cannot be served. The driver refuses a configuration
// with one wrong pool in it, and then serves none.
func (v values) setPools(spec v1beta1.HostPathProvisionerSpec, result *Result) {
	a := &admission{problems: pools.Problems(spec), taken: []any{}, result: result}
	a.stateDir, _ = v.at("driver")["stateDir"].(string)
	a.kubeletDir, _ = v["kubeletDir"].(string)
	for _, problem := range a.problems {
		result.Violations = append(result.Violations, problem.String())
	}
	for i, pool := range spec.StoragePools {
		a.take(fmt.Sprintf("spec.storagePools[%d]", i), pool)
	}
	if config := spec.PathConfig; config != nil {
		a.take("spec.pathConfig", v1beta1.StoragePool{Name: names.LegacyPool, Path: config.Path})
	}
	v["storagePools"] = a.taken
}

// take adds a pool to those that are served, or says why not.
func (a *admission) take(field string, pool v1beta1.StoragePool) {
	outcome := Pool{Name: pool.Name, NotServed: notServed(pool)}
	defer func() { a.result.Pools = append(a.result.Pools, outcome) }()
	if outcome.NotServed != "" {
		a.result.NotServed = append(a.result.NotServed, fmt.Sprintf("%s %q is left out: %s", field, pool.Name, outcome.NotServed))
		return
	}
	if at := a.clash(pool.Path); at != "" {
		outcome.Broken = fmt.Sprintf("%s.path: %q and %s of the base values lie in one another; want separate directories", field, pool.Path, at)
		a.result.Violations = append(a.result.Violations, outcome.Broken)
		return
	}
	entry, err := object(pool)
	if err != nil {
		outcome.Broken = fmt.Sprintf("%s: %v", field, err)
		a.result.Violations = append(a.result.Violations, outcome.Broken)
		return
	}
	delete(entry, "snapshotProvider")
	delete(entry, "overlayClassName")
	if path.IsAbs(pool.Path) {
		// kubevirt let paths end in a slash. It is the same directory, so that its volumes stay in use.
		entry["path"] = path.Clean(pool.Path)
	}
	if err := a.refused(entry); err != nil {
		outcome.Broken = a.words(field, err)
		return
	}
	a.taken = append(a.taken, entry)
}

// refused is what the driver would say to the pools taken so far and this one.
func (a *admission) refused(entry map[string]any) error {
	data, err := json.Marshal(map[string]any{"storagePools": append(slices.Clip(a.taken), entry)})
	if err != nil {
		return err
	}
	_, err = poolspec.Parse(data)
	return err
}

// words are what the resource's problems say about a pool that the driver refuses.
func (a *admission) words(field string, refusal error) string {
	var about []string
	for _, problem := range a.problems {
		if strings.HasPrefix(problem.Field, field+".") {
			about = append(about, problem.String())
		}
	}
	if len(about) == 0 {
		about = []string{refusal.Error()}
		a.result.Violations = append(a.result.Violations, field+": "+refusal.Error())
	}
	return "left out: " + strings.Join(about, "; ")
}

// clash is the directory of the driver or of the kubelet that a path lies in or holds, "" if there is none.
func (a *admission) clash(at string) string {
	for _, other := range []struct{ what, path string }{{"driver.stateDir", a.stateDir}, {"kubeletDir", a.kubeletDir}} {
		if clean := path.Clean(at); poolspec.Within(clean, other.path) || poolspec.Within(other.path, clean) {
			return other.what + " " + other.path
		}
	}
	return ""
}

// notServed says why this version leaves a pool out, "" if it does not.
func notServed(pool v1beta1.StoragePool) string {
	switch {
	case pool.PVCTemplate != nil:
		return "pvcTemplate is not served by this version; mount a filesystem at the pool's path on the nodes, remove pvcTemplate and set requireMount to use it now"
	case pool.Scope == string(poolspec.ScopeShared):
		return "scope shared is not served by this version; use node"
	default:
		return ""
	}
}
