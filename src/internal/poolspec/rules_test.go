package poolspec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec/poolspectest"
)

func TestDefaultPool(t *testing.T) {
	for _, c := range poolspectest.Read(t).DefaultPool {
		if got := poolspec.DefaultPool(c.Pools, c.Named); got != c.Means {
			t.Errorf("%q of %q is %q, want %q", c.Named, c.Pools, got, c.Means)
		}
	}
}

func TestSeveralPools(t *testing.T) {
	for _, c := range poolspectest.Read(t).Several {
		text, err := json.Marshal(map[string]any{"storagePools": c.Entries()})
		if err != nil {
			t.Fatal(err)
		}
		config, err := poolspec.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, err := poolspec.PoolsOf(config.StoragePools, c.Named)
		if refused := err != nil; refused != (c.Refused != "") || !slices.Equal(got, c.Means) {
			t.Errorf("%q of %s is %q, %v; want %q", c.Named, text, got, err, c.Means)
		} else if refused && !strings.Contains(err.Error(), c.Refused) {
			t.Errorf("%q of %s: %v; want %q", c.Named, text, err, c.Refused)
		}
	}
}

// TestOnePool that a class names, or means, is that of DefaultPool.
func TestOnePool(t *testing.T) {
	for _, c := range poolspectest.Read(t).DefaultPool {
		var configured []poolspec.Pool
		for _, name := range c.Pools {
			configured = append(configured, poolspec.Pool{Name: name})
		}
		if got, err := poolspec.PoolsOf(configured, c.Named); err != nil || !slices.Equal(got, []string{c.Means}) {
			t.Errorf("%q of %q is %q, %v; want %q", c.Named, c.Pools, got, err, c.Means)
		}
	}
}

func TestClash(t *testing.T) {
	for _, c := range poolspectest.Read(t).Clash {
		other := poolspec.Clash(c.Path, poolspec.Directory{What: "elsewhere", Path: "/elsewhere"},
			poolspec.Directory{What: "the directory", Path: c.Directory})
		if want := "the directory " + c.Directory; (other == want) != c.Clash || (other == "") == c.Clash {
			t.Errorf("%s beside %s: %q", c.Path, c.Directory, other)
		}
		_, err := poolspec.Parse(fmt.Appendf(nil, "storagePools: [{name: a, path: %s}, {name: b, path: %s}]",
			c.Path, c.Directory))
		if clash := err != nil && strings.Contains(err.Error(), "lie in one another"); clash != c.Clash {
			t.Errorf("pools at %s and %s: %v", c.Path, c.Directory, err)
		}
	}
}

func TestDirectoriesOfTheSystem(t *testing.T) {
	for _, c := range poolspectest.Read(t).System {
		_, err := poolspec.Parse(fmt.Appendf(nil, "storagePools: [{name: a, path: %s}]", c.Path))
		if system := err != nil && strings.Contains(err.Error(), "a directory of the system"); system != c.System {
			t.Errorf("a pool at %s: %v", c.Path, err)
		}
	}
}
