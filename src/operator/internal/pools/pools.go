// Package pools reads the pools of a HostPathProvisioner as the driver will read them: through poolspec, so that the
// webhook, the operator and the driver judge alike. It is pure.
package pools

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// FromSpec is the driver's configuration that a spec asks for, with the defaults filled in. pathConfig is a pool named
// legacy, and counts only without storagePools. The error names every value that cannot be read, by its field in the
// resource; the configuration then has its default. Rules are judged by Problems.
func FromSpec(spec v1beta1.HostPathProvisionerSpec) (poolspec.Config, error) {
	config, unreadable := read(spec)
	var problems []error
	for _, problem := range unreadable {
		problems = append(problems, errors.New(problem.String()))
	}
	return config, errors.Join(problems...)
}

// Names are the names of the pools that a spec asks for.
func Names(spec v1beta1.HostPathProvisionerSpec) []string {
	config, _ := read(spec)
	found := make([]string, len(config.StoragePools))
	for i, pool := range config.StoragePools {
		found[i] = pool.Name
	}
	return found
}

func read(spec v1beta1.HostPathProvisionerSpec) (poolspec.Config, []Problem) {
	if len(spec.StoragePools) == 0 {
		if spec.PathConfig == nil {
			return poolspec.Config{}, nil
		}
		return poolspec.Config{StoragePools: []poolspec.Pool{{Name: names.LegacyPool, Path: spec.PathConfig.Path}}}.WithDefaults(), nil
	}
	var config poolspec.Config
	var unreadable []Problem
	for i := range spec.StoragePools {
		pool, problems := readPool(&spec.StoragePools[i], fmt.Sprintf("spec.storagePools[%d]", i))
		config.StoragePools = append(config.StoragePools, pool)
		unreadable = append(unreadable, problems...)
	}
	return config.WithDefaults(), unreadable
}

func readPool(from *v1beta1.StoragePool, at string) (poolspec.Pool, []Problem) {
	pool := poolspec.Pool{
		Name: from.Name, Path: from.Path, Scope: poolspec.Scope(from.Scope), NodeSelector: from.NodeSelector,
		RequireMount: from.RequireMount, Quota: poolspec.Quota(from.Quota), MaxVolumes: int(from.MaxVolumes), Inline: from.Inline,
	}
	if from.Overcommit != nil {
		pool.Overcommit = *from.Overcommit
	}
	var problems []Problem
	add := func(field string, err error) {
		if err != nil {
			problems = append(problems, Problem{Field: at + "." + field, Message: err.Error(), subject: from.Name + "." + field})
		}
	}
	if from.Reserve != nil {
		add("reserve", decode(from.Reserve, &pool.Reserve))
	}
	if from.Trash != nil && from.Trash.Retention != "" {
		add("trash.retention", decode(from.Trash.Retention, &pool.Trash.Retention))
	}
	if from.PVCTemplate != nil {
		template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from.PVCTemplate)
		add("pvcTemplate", err)
		pool.PVCTemplate = template
	}
	return pool, problems
}

// decode reads a value of the resource as poolspec reads it from a file.
func decode(from any, into json.Unmarshaler) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return into.UnmarshalJSON(data)
}
