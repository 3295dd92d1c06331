package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// notes is what an installation prints after "NOTES:", which is the same with each Helm.
func notes(t *testing.T, values helmcli.Values) string {
	t.Helper()
	var texts []string
	for _, helm := range helmsdk.Versions() {
		texts = append(texts, helm.Notes(t, values))
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("the two Helms print different NOTES:\n%s", diff)
	}
	return texts[1]
}

// TestNotes: pools, classes, commands that can be copied as they are, and what an uninstall leaves.
func TestNotes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values helmcli.Values
		want   []string
		not    []string
	}{
		"default": {want: []string{
			"serves the CSI driver kubevirt.io.hostpath-provisioner",
			"\n  local: /var/lib/hostpath-provisioner\n",
			"\n  hostpath-local: WaitForFirstConsumer, Delete, volumes can grow\n",
			"\nkubectl label namespace storage --overwrite pod-security.kubernetes.io/enforce=privileged\n",
			"\nkubectl --namespace storage rollout status daemonset/hpp-hostpath-provisioner-csi\n",
			"\nkubectl --namespace storage rollout status deployment/" + controller + "\n",
			"\nkubectl --namespace storage get csistoragecapacities --output custom-columns=",
			"\nhelm --namespace storage test hpp\n",
			"the claim stays Pending until a pod uses it", "\n  storageClassName: hostpath-local\n", "\nEOF\n",
			"Volumes of local live on whatever filesystem holds the path, which may be the node's system disk",
			"helm uninstall removes the driver", "It leaves every volume", "/var/lib/hostpath-provisioner-state",
			"stays in storage too: ConfigMaps\nhpp-hostpath-provisioner-shared-pool-ids and " +
				"hpp-hostpath-provisioner-moves.",
		}, not: []string{"the cluster's default"}},
		"everything": {values: renderings()["everything"], want: []string{
			"\n  fast: /srv/fast, only where a disk is mounted there, new volumes only on nodes with disk=nvme",
			"\n  fast: Immediate, Retain, the cluster's default\n",
			"\n  slow.example.com: WaitForFirstConsumer, Delete, volumes can grow\n",
			"--namespace kube-storage rollout status daemonset/storage-driver-csi\n", "Volumes of slow live",
			"/data/state",
		}, not: []string{"stays Pending"}},
		"no pools": {
			values: renderings()["no pools"], want: []string{"none; the driver runs but has nowhere to put a volume"},
			not: []string{"kubectl apply", " test hpp", "Volumes of"},
		},
	} {
		text := notes(t, test.values)
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: NOTES do not say %q:\n%s", name, want, text)
			}
		}
		for _, not := range test.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: NOTES say %q:\n%s", name, not, text)
			}
		}
	}
}
