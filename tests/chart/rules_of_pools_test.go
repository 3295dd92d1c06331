package chart

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// TestTheChartKeepsTheRulesOfPools that the driver and the operator have: src/internal/poolspec/poolspectest.
func TestTheChartKeepsTheRulesOfPools(t *testing.T) {
	t.Parallel()
	var rules struct {
		DefaultPool []struct {
			Pools        []string
			Named, Means string
		}
		Several []struct {
			Pools          []string
			Differing      map[string]any
			Named, Refused string
			Means          []string
		}
		Clash []struct {
			Path, Directory string
			Clash           bool
		}
		System []struct {
			Path   string
			System bool
		}
	}
	table, err := os.ReadFile("../../src/internal/poolspec/poolspectest/rules.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(table, &rules)
	}
	if err != nil || len(rules.DefaultPool) < 8 || len(rules.Several) < 20 || len(rules.Clash) < 5 ||
		len(rules.System) < 45 {
		t.Fatalf("%v, %+v", err, rules)
	}
	helm := helmsdk.Newest()
	for _, c := range rules.DefaultPool {
		var pools []string
		for _, name := range c.Pools {
			pools = append(pools, fmt.Sprintf(`{"name":%q,"path":"/srv/%s"}`, name, name))
		}
		class := `{"name":"a"}`
		if c.Named != "" {
			class = fmt.Sprintf(`{"name":"a","storagePool":%q}`, c.Named)
		}
		_, err := helm.Template(t, helmcli.Values{JSON: map[string]string{
			"storagePools": "[" + strings.Join(pools, ",") + "]", "storageClasses": "[" + class + "]",
		}})
		if served := slices.Contains(c.Pools, c.Means); (err == nil) != served {
			t.Errorf("a class of %q with the pools %q: %v", c.Named, c.Pools, err)
		}
	}
	for _, c := range rules.Several {
		pools := []map[string]any{}
		for _, name := range c.Pools {
			pools = append(pools, map[string]any{"name": name, "path": "/srv/" + name})
		}
		if c.Differing != nil {
			c.Differing["path"] = "/srv/differing"
			pools = append(pools, c.Differing)
		}
		for _, class := range []map[string]any{
			{"name": "a", "storagePool": c.Named},
			{"name": "a", "parameters": map[string]string{"storagePool": c.Named}},
		} {
			_, err := helm.Template(t, helmcli.Values{JSON: map[string]string{
				"storagePools": encoded(t, pools), "storageClasses": encoded(t, []any{class}),
			}})
			if (err != nil) != (c.Refused != "") || err != nil && !strings.Contains(err.Error(), c.Refused) {
				t.Errorf("a class %v with the pools %v: %v, want %q", class, pools, err, c.Refused)
			}
		}
	}
	for _, c := range rules.Clash {
		_, err := helm.Template(t, helmcli.Values{
			Set: set("driver.stateDir", c.Directory),
			JSON: map[string]string{
				"storagePools": fmt.Sprintf(`[{"name":"a","path":%q}]`, c.Path), "storageClasses": "[]",
			},
		})
		if (err != nil) != c.Clash {
			t.Errorf("a pool at %s beside %s: %v", c.Path, c.Directory, err)
		}
	}
	for _, c := range rules.System {
		_, err := helm.Template(t, helmcli.Values{
			Set: map[string]string{"driver.stateDir": "/state", "kubeletDir": "/kubelet"},
			JSON: map[string]string{
				"storagePools": fmt.Sprintf(`[{"name":"a","path":%q}]`, c.Path), "storageClasses": "[]",
			},
		})
		if (err != nil) != c.System {
			t.Errorf("a pool at %s: %v", c.Path, err)
		}
	}
}
