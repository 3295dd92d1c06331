// Package poolspectest is the table of rules that several programs have to keep alike, for their tests.
package poolspectest

import (
	_ "embed" // the table
	"maps"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

//go:embed rules.yaml
var table []byte

// Rules is the content of the table.
type Rules struct {
	DefaultPool []DefaultPool `json:"defaultPool"`
	Several     []Several     `json:"several"`
	Clash       []Clash       `json:"clash"`
	System      []System      `json:"system"`
}

// DefaultPool is what a class means that names a pool, or "".
type DefaultPool struct {
	Pools []string `json:"pools"`
	Named string   `json:"named"`
	Means string   `json:"means"`
}

// Served reports whether the class has a pool that is there.
func (d DefaultPool) Served() bool { return slices.Contains(d.Pools, d.Means) }

// Several is what a class means that names several pools, or a part of what is wrong with it.
type Several struct {
	Pools     []string       `json:"pools"`
	Differing map[string]any `json:"differing"` // one pool more
	Named     string         `json:"named"`
	Means     []string       `json:"means"`
	Refused   string         `json:"refused"`
}

// Entries are the pools as storagePools has them.
func (s Several) Entries() (entries []map[string]any) {
	for _, name := range s.Pools {
		entries = append(entries, map[string]any{"name": name, "path": "/srv/" + name})
	}
	if s.Differing != nil {
		pool := maps.Clone(s.Differing)
		pool["path"] = "/srv/differing"
		entries = append(entries, pool)
	}
	return entries
}

// Clash reports whether a pool's path and a directory lie in one another.
type Clash struct {
	Path      string `json:"path"`
	Directory string `json:"directory"`
	Clash     bool   `json:"clash"`
}

// System reports whether a path is, or lies in, a directory of the system.
type System struct {
	Path   string `json:"path"`
	System bool   `json:"system"`
}

// Read gives the table.
func Read(t *testing.T) (rules Rules) {
	t.Helper()
	err := yaml.UnmarshalStrict(table, &rules)
	if err != nil || len(rules.DefaultPool) < 8 || len(rules.Several) < 20 || len(rules.Clash) < 5 ||
		len(rules.System) < 45 {
		t.Fatalf("rules.yaml: %v, %+v", err, rules)
	}
	return rules
}
