package link

import (
	"testing"
	"time"
)

// TestNodesComeBackOneAfterTheOther: the first pause spreads them over seconds.
func TestNodesComeBackOneAfterTheOther(t *testing.T) {
	t.Parallel()
	early, late := 0, 0
	for range 1000 {
		pause := backoff()
		switch first := pause.Step(); {
		case first < time.Second/2 || first > 5*time.Second:
			t.Fatalf("the first pause is %s", first)
		case first < 2*time.Second:
			early++
		case first > 3500*time.Millisecond:
			late++
		}
		for range 10 {
			if next := pause.Step(); next > 30*time.Second {
				t.Fatalf("a later pause is %s", next)
			}
		}
	}
	if early < 100 || late < 100 {
		t.Errorf("of 1000 nodes %d come early and %d late", early, late)
	}
}
