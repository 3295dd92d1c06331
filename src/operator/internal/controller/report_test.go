package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

type gauge struct{ values []float64 }

func (g *gauge) Set(value float64) { g.values = append(g.values, value) }

func (g *gauge) lastValue() float64 { return g.values[len(g.values)-1] }

// conditions are a status in which these are true.
func conditions(are ...string) v1beta1.HostPathProvisionerStatus {
	var status v1beta1.HostPathProvisionerStatus
	for _, kind := range are {
		status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}
	return status
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	g := &gauge{}
	r := New(Options{Ready: g})
	if g.lastValue() != -1 {
		t.Fatalf("%v at the start, want -1", g.lastValue())
	}
	for _, step := range []struct {
		what string
		are  []string
		want float64
	}{
		{"a first rollout", []string{v1beta1.Progressing}, -1},
		{"which fails", []string{v1beta1.Progressing, v1beta1.Degraded}, 0},
		{"and goes on", []string{v1beta1.Progressing}, 0},
		{"available", []string{v1beta1.Available}, 1},
		{"available, though something is wrong", []string{v1beta1.Available, v1beta1.Degraded}, 1},
		{"available during an upgrade", []string{v1beta1.Available, v1beta1.Progressing}, 1},
		{"no longer available during an upgrade", []string{v1beta1.Progressing}, 0},
		{"available again", []string{v1beta1.Available}, 1},
		{"nothing runs, nothing is rolled out", nil, 0},
	} {
		if r.measure(conditions(step.are...)); g.lastValue() != step.want {
			t.Errorf("%s: %v, want %v", step.what, g.lastValue(), step.want)
		}
	}
}

func TestSooner(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		if got := sooner(c.a, c.b); got != c.want {
			t.Errorf("the sooner of %d and %d is %d, want %d (0 is never)", c.a, c.b, got, c.want)
		}
	}
}
