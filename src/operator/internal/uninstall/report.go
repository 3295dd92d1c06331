package uninstall

import (
	"fmt"
	"io"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// shownPools keeps the report short enough to be read whole.
const shownPools = 5

// write says what is left to somebody who typed `helm uninstall`, in at most 15 lines. unknown is why the volumes could
// not be counted.
func write(out io.Writer, resource v1beta1.HostPathProvisioner, volumes []gates.Volume, unknown error) error {
	lines := []string{fmt.Sprintf("The operator is still needed: the HostPathProvisioner %s exists, and nothing else can remove what it runs.", resource.Name)}
	lines = append(lines, poolLines(resource.Spec, volumes, unknown)...)
	if unknown != nil {
		lines = append(lines, fmt.Sprintf("The volumes could not be counted: %v.", unknown))
	}
	if len(volumes) > 0 {
		lines = append(lines, "Volumes: "+gates.Describe(volumes)+".")
	}
	lines = append(lines, advice(resource, len(volumes) > 0)...)
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// poolLines are the pools with their paths and numbers of volumes.
func poolLines(spec v1beta1.HostPathProvisionerSpec, volumes []gates.Volume, unknown error) []string {
	count := func(held []gates.Volume) string {
		if unknown != nil {
			return "unknown volumes"
		}
		return gates.Count(held)
	}
	config, _ := pools.FromSpec(spec) // Names and paths are readable whatever else is not.
	configured := pools.Names(spec)
	var lines []string
	for i, pool := range config.StoragePools {
		if i == shownPools {
			lines = append(lines, fmt.Sprintf("  and %d more pools", len(config.StoragePools)-shownPools))
			break
		}
		lines = append(lines, fmt.Sprintf("  pool %s at %s: %s", pool.Name, pool.Path, count(gates.InPool(volumes, pool.Name, configured))))
	}
	if legacy := gates.OfLegacy(volumes); spec.PathConfig != nil || len(legacy) > 0 {
		lines = append(lines, "  legacy provisioner: "+count(legacy))
	}
	return lines
}

// advice is what to do next.
func advice(resource v1beta1.HostPathProvisioner, held bool) []string {
	remove := "kubectl delete hostpathprovisioners.hostpathprovisioner.kubevirt.io " + resource.Name
	if !resource.DeletionTimestamp.IsZero() {
		return []string{
			"It is being deleted. What it waits for is in its condition Deleting:",
			"  kubectl describe hostpathprovisioners.hostpathprovisioner.kubevirt.io " + resource.Name,
			"When it is gone, uninstall again.",
		}
	}
	if !held {
		return []string{"Delete it, then uninstall again:", "  " + remove}
	}
	return []string{
		"Delete the claims of its volumes, then it, then uninstall again:",
		"  " + remove,
		fmt.Sprintf("Or leave the data on the nodes (no pod can use it then): kubectl annotate hostpathprovisioners.hostpathprovisioner.kubevirt.io %s %s=true",
			resource.Name, names.ForceDelete),
	}
}
