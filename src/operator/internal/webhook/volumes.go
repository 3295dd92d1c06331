package webhook

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

// cluster is what the rules about volumes depend on.
type cluster struct {
	volumes []gates.Volume
	nodes   []corev1.Node
}

// readCluster reads the volumes and, if there are any, the nodes.
func (v *Validator) readCluster(ctx context.Context) (cluster, error) {
	var pvs corev1.PersistentVolumeList
	if err := v.reader.List(ctx, &pvs); err != nil {
		return cluster{}, fmt.Errorf("the PersistentVolumes cannot be listed, so volumes might be left behind: %w; "+
			"try again", err)
	}
	found := cluster{volumes: gates.Volumes(pvs.Items, v.driver, v.namespace)}
	if len(found.volumes) == 0 {
		return found, nil
	}
	var nodes corev1.NodeList
	if err := v.reader.List(ctx, &nodes); err != nil {
		return cluster{}, fmt.Errorf("the Nodes cannot be listed, so it is not known which volumes can be reached: "+
			"%w; try again", err)
	}
	found.nodes = nodes.Items
	return found, nil
}

// volumesGate is the one that a deletion would come to with these volumes, after it has waited for nodes that are gone.
func (c cluster) volumesGate(volumes []gates.Volume) gates.Gate {
	return gates.Deletion{Now: time.Now(), Volumes: volumes, Nodes: c.nodes}.VolumesGone()
}

// waiting says of volumes that their nodes may come back soon.
func waiting(volumes []gates.Volume) string {
	return fmt.Sprintf("%s on nodes that are gone or not ready: %s", gates.Count(volumes), gates.Describe(volumes))
}

// adviseWaiting is what to do about a gate that opens by itself.
func adviseWaiting(gate gates.Gate) string {
	return fmt.Sprintf("bring these nodes back, or try again after %s", gate.Deadline.UTC().Format(time.RFC3339))
}

// givenUp says of volumes that nobody can serve or remove them, for long enough.
func givenUp(volumes []gates.Volume) string {
	return fmt.Sprintf("%s on nodes that are gone, or not ready for %s or more: %s", gates.Count(volumes),
		gates.DeadNodeTimeout, gates.Describe(volumes))
}
