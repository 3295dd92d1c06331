package network_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/network"
)

func nodes() []network.Node {
	return []network.Node{
		{Name: "a", Address: netip.MustParseAddr("172.18.0.2"), Pods: netip.MustParsePrefix("10.244.0.0/24")},
		{Name: "b", Address: netip.MustParseAddr("172.18.0.3"), Pods: netip.MustParsePrefix("10.244.1.0/24")},
		{Name: "c", Address: netip.MustParseAddr("172.18.0.4"), Pods: netip.MustParsePrefix("10.244.2.0/24")},
	}
}

func TestRoutesLeadToAllOtherNodes(t *testing.T) {
	got := network.Routes(nodes()[1], nodes())
	want := []string{"ip route replace 10.244.0.0/24 via 172.18.0.2", "ip route replace 10.244.2.0/24 via 172.18.0.4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes of node b (-want +got):\n%s", diff)
	}
	if got := network.Routes(nodes()[0], nodes()[:1]); got != nil {
		t.Errorf("a node alone has routes: %v", got)
	}
}

func TestConfigGivesPodsTheNodesRange(t *testing.T) {
	text, err := network.Config(nodes()[1])
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		CNIVersion string `json:"cniVersion"`
		Name       string
		Plugins    []struct {
			Type string
			IPAM struct {
				Type   string
				Ranges [][]struct{ Subnet string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.CNIVersion == "" || got.Name == "" || len(got.Plugins) != 2 || got.Plugins[0].Type != "ptp" ||
		got.Plugins[1].Type != "portmap" {
		t.Fatalf("not a list of ptp and portmap: %s", text)
	}
	if ipam := got.Plugins[0].IPAM; ipam.Type != "host-local" || ipam.Ranges[0][0].Subnet != "10.244.1.0/24" {
		t.Errorf("addresses come from %+v, want node b's range", ipam)
	}
}
