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

// writeReport says what is left to somebody who typed `helm uninstall`, in at most 15 lines. unknown is why the volumes
// could not be counted.
func writeReport(out io.Writer, resource v1beta1.HostPathProvisioner, volumes []gates.Volume, unknown error) error {
	lines := []string{"The operator is still needed: the HostPathProvisioner " + resource.Name +
		" exists, and nothing else can remove what it runs."}
	lines = append(lines, poolLines(resource.Spec, volumes, unknown)...)
	if unknown != nil {
		lines = append(lines, fmt.Sprintf("The volumes could not be counted: %v.", unknown))
	}
	if len(volumes) > 0 {
		lines = append(lines, "Volumes: "+gates.Describe(volumes)+".")
	}
	lines = append(lines, advice(resource, len(volumes) > 0)...)
	lines = append(lines, "To keep the release instead, bring it back to the last revision of `helm history RELEASE`: "+
		"helm rollback RELEASE REVISION")
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// poolLines are the pools with their paths and how many volumes they have.
func poolLines(spec v1beta1.HostPathProvisionerSpec, volumes []gates.Volume, unknown error) []string {
	count := func(volumes []gates.Volume) string {
		if unknown != nil {
			return "unknown volumes"
		}
		return gates.Count(volumes)
	}
	all, configured := pools.FromSpec(spec), pools.Names(spec)
	var lines []string
	for i, pool := range all {
		if i == shownPools {
			lines = append(lines, fmt.Sprintf("  and %d more pools", len(all)-shownPools))
			break
		}
		lines = append(lines, fmt.Sprintf("  pool %s at %s: %s", pool.Name, pool.Path,
			count(gates.InPool(volumes, pool.Name, configured))))
	}
	if legacy := gates.OfLegacy(volumes); spec.PathConfig != nil || len(legacy) > 0 {
		lines = append(lines, "  legacy provisioner: "+count(legacy))
	}
	return lines
}

// advice is what to do next.
func advice(resource v1beta1.HostPathProvisioner, volumes bool) []string {
	const plural = "hostpathprovisioners." + names.Group
	remove := "kubectl delete " + plural + " " + resource.Name
	if !resource.DeletionTimestamp.IsZero() {
		return []string{
			"It is being deleted. What it waits for is in its condition Deleting:",
			"  kubectl describe " + plural + " " + resource.Name,
			"When it is gone, uninstall again.",
		}
	}
	if !volumes {
		return []string{"Delete it, then uninstall again:", "  " + remove}
	}
	return []string{
		"Delete the claims of its volumes, then it, then uninstall again:",
		"  " + remove,
		"Or leave the data on the nodes (no pod can use it then): kubectl annotate " + plural + " " +
			resource.Name + " " + names.ForceDelete + "=true",
	}
}
