package poolspec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func TestParseFillsInTheDefaults(t *testing.T) {
	got, err := poolspec.Parse([]byte("storagePools:\n- name: local\n  path: /var/lib/hostpath-provisioner\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := poolspec.Config{StoragePools: []poolspec.Pool{{
		Name: "local", Path: "/var/lib/hostpath-provisioner", Scope: poolspec.ScopeNode, Quota: poolspec.QuotaAuto,
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseReadsEveryField(t *testing.T) {
	const document = `
storagePools:
- name: fast
  path: /data/fast
  scope: node
  nodeSelector: {disk: nvme}
  requireMount: true
  quota: required
  reserve: 10Gi
  overcommit: 1.5
  maxVolumes: 40
  inline: true
  sharedAccess: true
  trash: {retention: 36h, purgeWhenFull: true}
- name: slow
  path: /data/slow
  scope: shared
  reserve: 2.5%
  trash: {retention: 0}
  pvcTemplate: {storageClassName: nfs, accessModes: [ReadWriteMany]}
`
	got, err := poolspec.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	want := poolspec.Config{StoragePools: []poolspec.Pool{
		{
			Name: "fast", Path: "/data/fast", Scope: poolspec.ScopeNode,
			NodeSelector: map[string]string{"disk": "nvme"},
			RequireMount: &yes, Quota: poolspec.QuotaRequired, Reserve: poolspec.Reserve{Bytes: 10 << 30},
			Overcommit: 1.5,
			MaxVolumes: 40, Inline: true, SharedAccess: true,
			Trash: poolspec.Trash{Retention: poolspec.Duration(36 * time.Hour), PurgeWhenFull: true},
		},
		{
			Name: "slow", Path: "/data/slow", Scope: poolspec.ScopeShared, Quota: poolspec.QuotaNone,
			Reserve: poolspec.Reserve{Percent: 2.5}, PVCTemplate: map[string]any{
				"storageClassName": "nfs", "accessModes": []any{"ReadWriteMany"},
			},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseAcceptsNoPools(t *testing.T) {
	for _, document := range []string{"", "storagePools:\n", "storagePools: []", "{}", "# nothing\n"} {
		got, err := poolspec.Parse([]byte(document))
		if err != nil || len(got.StoragePools) != 0 {
			t.Errorf("Parse(%q) = %v, %v; want no pools and no error", document, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const at = "storagePools[0]."
	pool := func(lines ...string) string {
		return "storagePools:\n- name: local\n  path: /pool\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	path := func(p string) string { return "storagePools:\n- name: local\n  path: " + p + "\n" }
	for name, test := range map[string]struct {
		document string
		want     []string // all of these in the error
	}{
		"unknown top key":   {"pools: []", []string{"pools: Forbidden: unknown field"}},
		"unknown pool key":  {pool("pth: /x"), []string{at + "pth: Forbidden: unknown field"}},
		"key in other case": {pool("Quota: none"), []string{at + "Quota: Forbidden: unknown field"}},
		"unknown trash key": {pool("trash: {retain: 1h}"), []string{at + "trash.retain: Forbidden: unknown field"}},
		"unknown key, null": {pool("pth: null"), []string{at + "pth: Forbidden: unknown field"}},
		"repeated key":      {pool("quota: none", "quota: auto"), []string{"quota", "already set"}},
		"no YAML":           {"storagePools: [", []string{"YAML"}},
		"a list":            {"[]", []string{"configuration: Invalid value: []: want an object"}},
		"pools no list":     {"storagePools: {}", []string{"storagePools: Invalid value: {}: want a list"}},
		"pool no object": {"storagePools: [local]", []string{`storagePools[0]: Invalid value: "local": want ` +
			`an object`}},
		"pool null": {"storagePools: [null]", []string{at + "name", at + "path"}},
		"name no DNS label": {
			"storagePools: [{name: My Pool, path: /pool}]",
			[]string{at + `name: Invalid value: "My Pool"`, "a-z"},
		},
		"name too long": {
			"storagePools: [{name: " + strings.Repeat("a", 64) + ", path: /pool}]",
			[]string{at + "name", "63"},
		},
		"name of other type": {
			"storagePools: [{name: 5, path: /pool}]",
			[]string{at + "name: Invalid value: 5: want a value of type string"},
		},
		"path missing": {
			"storagePools: [{name: local}]",
			[]string{at + "path: Invalid value: \"\": want the absolute path"},
		},
		"path as a pattern":    {path("/mnt/nvme*"), []string{at + "path", "as it is written"}},
		"path ends in a space": {path("'/mnt/a '"), []string{at + "path", "no space at its end"}},
		"path relative":        {path("pool"), []string{at + `path: Invalid value: "pool": want the absolute path`}},
		"path the root":        {path("/"), []string{at + "path", "directory of the system"}},
		"path system":          {path("/etc/pool"), []string{at + "path", "lies in /etc"}},
		"path parent":          {path("/var/lib"), []string{at + "path", "is or lies in /var/lib"}},
		"path k3s": {
			path("/var/lib/rancher/k3s/server/manifests"), []string{at + "path", "/var/lib/rancher/k3s/server"},
		},
		"path rke2":       {path("/var/lib/rancher/rke2/agent"), []string{at + "path", "/var/lib/rancher/rke2/agent"}},
		"path kubelet":    {path("/var/lib/kubelet/pool"), []string{at + "path", "/var/lib/kubelet"}},
		"path with slash": {path("/pool/"), []string{`"/pool/": it is not clean: write "/pool"`}},
		"path with dots":  {path("/pool/../etc"), []string{`write "/etc"`, "directory of the system"}},
		"path with NUL": {
			`storagePools: [{name: local, path: "/pool\0"}]`,
			[]string{at + "path", "control character"},
		},
		"path too long": {path("/" + strings.Repeat("p", 1024)), []string{at + "path", "1024"}},
		"scope": {
			pool("scope: everyNode"),
			[]string{at + `scope: Invalid value: "everyNode": want node or shared`},
		},
		"what no node knows alone of a shared pool": {
			pool("scope: shared", "quota: auto", "overcommit: 2", "maxVolumes: 3", "inline: true"),
			[]string{at + "quota", "has no quota", at + "overcommit", at + "maxVolumes", at + "inline"},
		},
		"one claim for all nodes, scope node": {
			pool("scope: node", "pvcTemplate: {accessModes: [ReadWriteMany]}"),
			[]string{
				at + `scope: Invalid value: "node": one claim for all nodes`,
				"leave scope out, or use ReadWriteOnce",
			},
		},
		"a claim on each node, scope shared": {
			pool("scope: shared", "pvcTemplate: {accessModes: [ReadWriteOnce]}"),
			[]string{
				at + `scope: Invalid value: "shared": a claim on each node`,
				"leave scope out, or use ReadWriteMany",
			},
		},
		"sharedAccess of one claim for all nodes": {
			pool("sharedAccess: true", "pvcTemplate: {accessModes: [ReadWriteMany]}"),
			[]string{at + "sharedAccess: Invalid value: true: scope shared allows ReadWriteMany on all nodes"},
		},
		"sharedAccess text": {
			pool("sharedAccess: yes please"),
			[]string{at + `sharedAccess: Invalid value: "yes please": want a value of type bool`},
		},
		"sharedAccess where all nodes share": {
			pool("scope: shared", "sharedAccess: true"),
			[]string{at + "sharedAccess: Invalid value: true: scope shared allows ReadWriteMany on all nodes"},
		},
		"requireMount off where a claim is mounted": {
			pool("pvcTemplate: {}", "requireMount: false"),
			[]string{at + "requireMount: Invalid value: false", "leave requireMount out"},
		},
		"quota": {pool("quota: on"), []string{at + "quota: Invalid value: true: want a value of type " +
			"string"}},
		"quota value": {
			pool("quota: always"),
			[]string{at + `quota: Invalid value: "always": want auto, required or none`},
		},
		"reserve text": {
			pool("reserve: lots"),
			[]string{at + `reserve: Invalid value: "lots": want a whole number of bytes`, "percentage"},
		},
		"reserve negative": {
			pool("reserve: -1Gi"),
			[]string{at + `reserve: Invalid value: "-1Gi": want 0 bytes or more`},
		},
		"reserve without a unit": {
			pool("reserve: 5"),
			[]string{at + `reserve: Invalid value: 5: a number alone is bytes: want "5%" for a share`},
		},
		"reserve milli":         {pool("reserve: 1500m"), []string{at + "reserve", "whole number"}},
		"reserve tiny exponent": {pool("reserve: '1e-99999999'"), []string{at + "reserve", "whole number"}},
		"reserve all": {
			pool("reserve: 100%"),
			[]string{at + `reserve: Invalid value: "100%"`, "less than 100%"},
		},
		"reserve not a number": {pool("reserve: NaN%"), []string{at + "reserve"}},
		"reserve odd percent":  {pool("reserve: five%"), []string{at + "reserve", "percentage"}},
		"reserve object":       {pool("reserve: {bytes: 5}"), []string{at + "reserve", "bytes such as"}},
		"overcommit negative": {
			pool("overcommit: -1"),
			[]string{at + "overcommit: Invalid value: -1: want a factor"},
		},
		"overcommit huge": {pool("overcommit: 1e6"), []string{at + "overcommit", "1000"}},
		"overcommit text": {
			pool("overcommit: twice"),
			[]string{at + `overcommit: Invalid value: "twice": want a value of type float64`},
		},
		"maxVolumes negative": {pool("maxVolumes: -1"), []string{at + "maxVolumes: Invalid value: -1: want 0"}},
		"maxVolumes fraction": {
			pool("maxVolumes: 1.5"),
			[]string{at + "maxVolumes: Invalid value: 1.5: want a value of type int"},
		},
		"inline text": {
			pool("inline: sometimes"),
			[]string{at + `inline: Invalid value: "sometimes": want a value of type bool`},
		},
		"trash no object": {pool("trash: 36h"), []string{at + `trash: Invalid value: "36h": want an object`}},
		"retention no unit": {
			pool("trash: {retention: 36}"),
			[]string{at + "trash.retention: Invalid value: 36: want a duration"},
		},
		"retention for ever": {pool("trash: {retention: 1000000h}"), []string{at + "trash.retention", "to 999999h"}},
		"retention negative": {
			pool("trash: {retention: -1h}"),
			[]string{at + `trash.retention: Invalid value: "-1h0m0s": want 0s`},
		},
		"purgeWhenFull text": {
			pool("trash: {purgeWhenFull: often}"),
			[]string{at + "trash.purgeWhenFull", "type bool"},
		},
		"selector key": {
			pool("nodeSelector: {'a b': c}"),
			[]string{at + `nodeSelector: Invalid value: "a b": want a label key`},
		},
		"selector value": {
			pool("nodeSelector: {a: 'b c'}"),
			[]string{at + `nodeSelector[a]: Invalid value: "b c": want a label value`},
		},
		"selector of numbers": {
			pool("nodeSelector: {a: 5}"),
			[]string{at + `nodeSelector: Invalid value: {"a":5}`, "type string"},
		},
		"two pools of one name": {
			pool("") + "- name: local\n  path: /other\n",
			[]string{`storagePools[1].name: Invalid value: "local": two pools`},
		},
		"two pools at one path": {
			pool("") + "- name: other\n  path: /pool\n",
			[]string{`storagePools[1].path`, "separate"},
		},
		"nested below": {pool("") + "- name: other\n  path: /pool/csi\n", []string{
			at + `path: Invalid value: "/pool": it and "/pool/csi" of the pool "other" lie in one another`,
			`storagePools[1].path: Invalid value: "/pool/csi": it and "/pool" of the pool "local" lie in one another`,
		}},
		"nested above": {
			path("/a/b") + "- name: other\n  path: /a\n",
			[]string{`storagePools[1].path: Invalid value: "/a"`, "lie in one another"},
		},
		"several at once": {
			pool("pth: 1", "inlin: 2", "inline: 3", "reserve: x"),
			[]string{at + "pth", at + "inlin:", at + "inline:", at + "reserve"},
		},
		"several rules at once": {pool("scope: cluster", "quota: soft"), []string{at + "scope", at + "quota"}},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := poolspec.Parse([]byte(test.document))
			if err == nil {
				t.Fatalf("accepted as %+v", config)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestNeighboursAreNotNested(t *testing.T) {
	const document = "storagePools: [{name: a, path: /data/a}, {name: ab, path: /data/ab}, {name: lib, path: /libx}]"
	if _, err := poolspec.Parse([]byte(document)); err != nil {
		t.Error(err)
	}
}

// TestScopeOfTemplates: the access modes of a template say whether nodes share the claim.
func TestScopeOfTemplates(t *testing.T) {
	for template, want := range map[string]poolspec.Scope{
		"{}":                             poolspec.ScopeNode,
		"{accessModes: [ReadWriteOnce]}": poolspec.ScopeNode,
		"{accessModes: [ReadWriteMany]}": poolspec.ScopeShared,
		"{accessModes: [ReadWriteOnce, ReadWriteMany]}": poolspec.ScopeShared,
	} {
		config, err := poolspec.Parse([]byte("storagePools: [{name: a, path: /a, pvcTemplate: " + template + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := config.StoragePools[0]; got.Scope != want || got.AllowsMany() != (want == poolspec.ScopeShared) {
			t.Errorf("%s has scope %s, allows many: %v", template, got.Scope, got.AllowsMany())
		}
	}
}

func TestReserveOf(t *testing.T) {
	if got := (poolspec.Reserve{Bytes: 7}).Of(1000); got != 7 {
		t.Errorf("7 bytes of 1000 = %d", got)
	}
	if got := (poolspec.Reserve{Percent: 2.5}).Of(1000); got != 25 {
		t.Errorf("2.5%% of 1000 = %d", got)
	}
}

// FuzzParse holds Parse to its word: no panic, and what it accepts is valid, is read back the same from what Go
// writes, and never has a path that could hurt the node.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "storagePools:\n- name: local\n  path: /var/lib/hostpath-provisioner\n",
		"storagePools: [{name: a, path: /a, reserve: 5%, trash: {retention: 36h}, overcommit: 1.5}]",
		"storagePools: [{name: a, path: /a, reserve: 10Gi, requireMount: false, nodeSelector: {a: b}}]",
		"storagePools: [{name: a, path: /a/../b}, {name: b, path: /b/csi}]", "storagePools: [null]", "a: &a [*a]", "[",
		"\x00",
		"storagePools: [{name: a, path: /a, pvcTemplate: {spec: {x: [1, 2.5, null]}}, scope: shared}]",
		"storagePools: [{name: a, path: /a, pvcTemplate: {accessModes: [ReadWriteMany]}}]",
		"storagePools: [{name: a, path: /a, reserve: 9223372036854775807}]",
		"storagePools: [{name: a, path: /a, sharedAccess: true, scope: shared}]",
		"storagePools: [{name: a, path: /a, reserve: '1e-99999999'}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := poolspec.Parse(data)
		if err != nil {
			return
		}
		if problems := config.Validate(); len(problems) > 0 {
			t.Fatalf("accepted, but not valid: %v", problems)
		}
		for _, p := range config.StoragePools {
			if !strings.HasPrefix(p.Path, "/") || strings.Contains(p.Path+"/", "/../") || p.Path == "/" {
				t.Fatalf("accepted the path %q", p.Path)
			}
		}
		written, err := yaml.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		again, err := poolspec.Parse(written)
		if err != nil {
			t.Fatalf("does not read back %s: %v", written, err)
		}
		if diff := cmp.Diff(asJSON(t, config), asJSON(t, again)); diff != "" {
			t.Fatalf("reads back otherwise: %s", diff)
		}
	})
}

func asJSON(t *testing.T, config poolspec.Config) string {
	t.Helper()
	written, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(written)
}
