package kindcluster

import (
	"fmt"
	"strings"
)

// featureGates are switched on in every component of the cluster: all four
// that kind configures know them in each version the tests run on.
func featureGates() []string { return []string{"CSIVolumeHealth"} }

// patches change what kubeadm starts. Kubernetes from 1.35 on refuses to start on hosts with cgroup v1 unless told
// otherwise; on cgroup v2 failCgroupV1 says nothing. A node that died is NotReady after 20 s instead of 50: kubelets
// report twice as often as by default, so that four reports have to be missing, and no busy machine loses a node. One
// control plane needs no leader: on a busy machine its processes would lose their leases, end, and be away for minutes.
const patches = `kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  failCgroupV1: false
  nodeLeaseDurationSeconds: 20
- |
  kind: ClusterConfiguration
  controllerManager:
    extraArgs:
      leader-elect: "false"
      node-monitor-grace-period: 20s
      node-monitor-period: 2s
  scheduler:
    extraArgs:
      leader-elect: "false"
`

// Config is kind's configuration file of a cluster, with the lines that the
// image of its nodes needs.
func Config(name string, workers int, lines string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nname: %s\n", name)
	b.WriteString("featureGates:\n")
	for _, gate := range featureGates() {
		fmt.Fprintf(&b, "  %s: true\n", gate)
	}
	b.WriteString(lines + patches)
	b.WriteString("nodes:\n- role: control-plane\n")
	b.WriteString(strings.Repeat("- role: worker\n", workers))
	return b.String()
}
