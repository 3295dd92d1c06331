package render

import (
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// admission takes pools one by one, as long as the driver would start with all of them.
type admission struct {
	// taken belong to the driver and the kubelet.
	taken []poolspec.Directory
	// admitted are the pools as the driver reads them, entries the same as values of the chart.
	admitted poolspec.Config
	entries  []any
	result   *Result
}

// setPools replaces the pools by those of the resource, less those that cannot be served. The driver refuses a
// configuration with one wrong pool in it, and then serves none. It gives those that are.
func (v values) setPools(spec v1beta1.HostPathProvisionerSpec, result *Result) []poolspec.Pool {
	stateDir, _ := v.ensureMap("driver")["stateDir"].(string)
	kubeletDir, _ := v["kubeletDir"].(string)
	a := &admission{entries: []any{}, result: result, taken: []poolspec.Directory{
		{What: "driver.stateDir", Path: stateDir}, {What: "kubeletDir", Path: kubeletDir},
	}}
	for _, problem := range pools.Validate(spec) {
		result.Violations = append(result.Violations, problem.Error())
	}
	for i, pool := range pools.FromSpec(spec) {
		a.addPool(pools.FieldOf(spec, i), pool)
	}
	v["storagePools"] = a.entries
	return a.admitted.StoragePools
}

// addPool adds a pool to those that are served, or says why not.
func (a *admission) addPool(at *field.Path, pool v1beta1.StoragePool) {
	outcome := pools.Outcome{Name: pool.Name}
	if err := a.admitPool(at, pool); err != nil {
		outcome.Broken = "left out: " + err.Error()
	}
	a.result.Pools = append(a.result.Pools, outcome)
}

func (a *admission) admitPool(at *field.Path, pool v1beta1.StoragePool) error {
	if path.IsAbs(pool.Path) {
		// kubevirt let paths end in a slash. It is the same directory, so that its volumes stay in use.
		pool.Path = path.Clean(pool.Path)
	}
	if other := poolspec.Clash(pool.Path, a.taken...); other != "" {
		problem := field.Invalid(at.Child("path"), pool.Path,
			"it and "+other+" of the base values lie in one another: want separate directories")
		a.result.Violations = append(a.result.Violations, problem.Error())
		return problem
	}
	read, problems := pools.Read(pool, at)
	next := poolspec.Config{StoragePools: append(a.admitted.StoragePools, read)}.WithDefaults()
	problems = append(problems, next.ValidatePool(len(a.entries), at)...)
	problems = append(problems, pools.ValidateTemplate(pool, at)...)
	if len(problems) > 0 {
		return problems.ToAggregate()
	}
	entry, err := object(read) // in the one spelling of each value that the chart takes as well
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	a.admitted, a.entries = next, append(a.entries, entry)
	if pool.PVCTemplate != nil {
		a.result.templates = append(a.result.templates, pool)
	}
	return nil
}
