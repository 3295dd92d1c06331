package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// values is a tree of the chart's values, with numbers as Helm reads them (float64).
type values map[string]any

// layerValues makes the values: the chart's defaults, the base, the resource. It leaves the chart without values of its
// own, because Helm would merge its defaults into maps that are to be as the resource says.
func layerValues(chart *chartv2.Chart, in Input, result *Result) (values, error) {
	base, err := common.ReadValues(in.Base)
	if err != nil {
		return nil, fmt.Errorf("the base values (values.yaml of the base ConfigMap) are no YAML: %w", err)
	}
	full, err := util.CoalesceValues(chart, base)
	if err != nil {
		return nil, fmt.Errorf("the base values do not fit the chart: %w", err)
	}
	if err := util.ValidateAgainstSchema(chart, full); err != nil {
		return nil, fmt.Errorf("the base values are wrong: %w", err)
	}
	v := values(full)
	defaults := values(chart.Values)
	chart.Values = map[string]any{}

	v.withoutOperator(defaults)
	configured := v.setPools(in.Resource.Spec, result)
	if err := v.setMounts(in.Mounts); err != nil {
		return nil, err
	}
	v.setLegacy(in.Resource.Spec, result)
	v.keepClasses(configured, result)
	v.addClasses(result)
	v.setSnapshots(in, result)
	v.setTLS(in)
	if policy := in.Resource.Spec.ImagePullPolicy; policy != "" {
		setPullPolicy(map[string]any(v), string(policy))
	}
	if err := v.setWorkload(in.Resource.Spec.Workload); err != nil {
		return nil, err
	}
	result.NotServed = append(result.NotServed, pools.Ignored(in.Resource.Spec)...)
	return v, nil
}

// withoutOperator turns off what is not the operator's to apply, and what stands in the chart only for a first try
// without it.
func (v values) withoutOperator(defaults values) {
	v.ensureMap("operator")["enabled"] = false
	// helm test and extra objects belong to the Helm release.
	v.ensureMap("selftest")["enabled"] = false
	v["extraObjects"] = []any{}
	if reflect.DeepEqual(v["storageClasses"], defaults["storageClasses"]) {
		v["storageClasses"] = []any{}
	}
	legacy := v.ensureMap("legacyProvisioner")
	if reflect.DeepEqual(legacy["storageClasses"], defaults.ensureMap("legacyProvisioner")["storageClasses"]) {
		legacy["storageClasses"] = []any{}
	}
}

// setLegacy runs the legacy provisioner at the path of spec.pathConfig.
func (v values) setLegacy(spec v1beta1.HostPathProvisionerSpec, result *Result) {
	config := spec.PathConfig
	if config == nil {
		return
	}
	legacy := v.ensureMap("legacyProvisioner")
	// Of has it last. The violation names what is wrong: one that the webhook did not see must not be rendered.
	if result.Pools[len(result.Pools)-1].Broken != "" || poolspec.VolumeIn(config.Path) != "" {
		result.Violations = append(result.Violations,
			"spec.pathConfig.path: the legacy provisioner does not run until the path is one that a pool can have")
		legacy["enabled"] = false
		return
	}
	legacy["enabled"] = true
	legacy["path"] = path.Clean(config.Path)
	legacy["useNamingPrefix"] = config.UseNamingPrefix
}

// setTLS gives the driver's metrics the cluster's TLS policy, unless the base has one of its own.
func (v values) setTLS(in Input) {
	tls := v.ensureMap("driver").ensureMap("metricsTLS")
	suites, _ := tls["cipherSuites"].([]any)
	if tls["minVersion"] != "" || len(suites) > 0 {
		return
	}
	tls["minVersion"] = in.MinTLSVersion
	names := []any{}
	for _, name := range in.CipherSuites {
		names = append(names, name)
	}
	tls["cipherSuites"] = names
}

// setWorkload places both DaemonSets as the resource says, verbatim.
func (v values) setWorkload(workload v1beta1.Workload) error {
	placement, err := object(workload)
	if err != nil {
		return fmt.Errorf("spec.workload: %w", err)
	}
	for key, value := range placement {
		if list, isList := value.([]any); isList && len(list) == 0 {
			continue
		}
		v.ensureMap("driver")[key] = value
		v.ensureMap("legacyProvisioner")[key] = value
	}
	return nil
}

// setMounts has a mounter for each mount.
func (v values) setMounts(mounts []poolclaims.Mount) error {
	entries := []any{}
	for _, mount := range mounts {
		entry, err := object(mount)
		if err != nil {
			return fmt.Errorf("the pool %q on node %s: %w", mount.Pool, mount.Node, err)
		}
		entries = append(entries, entry)
	}
	v.ensureMap("mounter")["managed"], v.ensureMap("mounter")["mounts"] = true, entries
	return nil
}

// placement is that of the driver.
func (v values) placement() (poolclaims.Placement, error) {
	var placement poolclaims.Placement
	data, err := json.Marshal(v.ensureMap("driver"))
	if err == nil {
		err = json.Unmarshal(data, &placement)
	}
	if err != nil {
		return placement, fmt.Errorf("driver.nodeSelector, affinity and tolerations: %w", err)
	}
	return placement, nil
}

// setPullPolicy sets the pull policy of every image in the tree.
func setPullPolicy(tree map[string]any, policy string) {
	for key, value := range tree {
		if key == "pullPolicy" {
			tree[key] = policy
		}
		if below, ok := value.(map[string]any); ok {
			setPullPolicy(below, policy)
		}
	}
}

// keepClasses leaves out classes whose pool there is not: the chart would refuse all values because of one of them.
func (v values) keepClasses(pools []poolspec.Pool, result *Result) {
	kept := []any{}
	for _, class := range v.listMaps("storageClasses") {
		parameters, _ := class["parameters"].(map[string]any)
		pool, _ := class["storagePool"].(string)
		if pool == "" {
			pool, _ = parameters[names.StoragePoolParameter].(string)
		}
		meant, err := poolspec.PoolsOf(pools, pool)
		if err != nil {
			result.leaveOut("storageClasses %q of the base values is left out: storagePool: %v", class["name"], err)
			continue
		}
		is := func(served poolspec.Pool) bool { return served.Name == meant[0] }
		switch pool = meant[0]; {
		case pool != "" && !slices.ContainsFunc(pools, is):
			result.leaveOut("storageClasses %q of the base values is left out: the resource has no pool %q that is "+
				"served", class["name"], pool)
		case pool == "":
			result.leaveOut("storageClasses %q of the base values is left out: it names no pool, and the resource "+
				"has %d that are served", class["name"], len(pools))
		default:
			kept = append(kept, map[string]any(class))
		}
	}
	v["storageClasses"] = kept
}

// addClasses adds the class that kubevirt's operator makes for a pool whose nodes share a claim. Of two pools with one
// name for it the first has it: what is wrong with the second is among the violations.
func (v values) addClasses(result *Result) {
	taken := map[string]bool{}
	for _, class := range v.listMaps("storageClasses") {
		name, _ := class["name"].(string)
		taken[name] = true
	}
	all, _ := v["storageClasses"].([]any)
	var made []string
	for _, pool := range result.templates {
		name := pools.ClassName(pool)
		switch {
		case name == "" || slices.Contains(made, name):
			continue
		case taken[name]:
			result.leaveOut("pool %q: its class %s is left out: storageClasses of the base values has one of that "+
				"name; give the pool another overlayClassName", pool.Name, name)
			continue
		}
		made = append(made, name)
		all = append(all, map[string]any{
			"name": name, "storagePool": pool.Name, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
			"parameters": map[string]any{"overlayCSI": "true"},
		})
	}
	v["storageClasses"] = all
}

// ensureMap is the map below a key. One that is missing is made, so that it can be written to.
func (v values) ensureMap(key string) values {
	below, ok := v[key].(map[string]any)
	if !ok {
		below = map[string]any{}
		v[key] = below
	}
	return below
}

// listMaps is the list of maps below a key.
func (v values) listMaps(key string) []values {
	items, _ := v[key].([]any)
	list := make([]values, 0, len(items))
	for _, item := range items {
		if entry, ok := item.(map[string]any); ok {
			list = append(list, maps.Clone(entry))
		}
	}
	return list
}

// object is a struct as its JSON is read back, with numbers as Helm has them.
func object(from any) (map[string]any, error) {
	data, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	var into map[string]any
	return into, json.Unmarshal(data, &into)
}
