package pods

import (
	"testing"
	"time"
)

func TestSection(t *testing.T) {
	o := Outcome{
		Names: []string{"ours", EmptyDir},
		Started: map[string][]time.Duration{
			"ours": {3 * time.Second, 3 * time.Second}, EmptyDir: {2 * time.Second, 2 * time.Second},
		},
		Grown: []time.Duration{time.Second},
		Back:  map[string][]time.Duration{"ours": {5 * time.Second}},
	}
	got := map[string]float64{}
	missing := map[string]bool{}
	for _, f := range o.Section().Figures {
		got[f.Name] = f.Value
		missing[f.Name] = f.NotMeasured
	}
	for name, want := range map[string]float64{
		"pod with ours runs p50": 3, "pod with emptyDir runs max": 2, "pod runs, ours / emptyDir": 1.5,
		"a volume has grown p50": 1, "pod with ours is back max": 5,
	} {
		if got[name] != want || missing[name] {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	if !missing["pod with emptyDir is back p50"] {
		t.Error("what was not measured is not called so")
	}
}
