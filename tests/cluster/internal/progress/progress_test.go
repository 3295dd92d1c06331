package progress_test

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/progress"
)

func TestStepsAreNumberedAndTimed(t *testing.T) {
	var out bytes.Buffer
	p := progress.New(&out, 2)
	p.Expect(1)
	broken := errors.New("broken")
	ok := p.Step("first", 110*time.Second, func(func(string)) error { return nil })
	p.Note("by the way, %d", 7)
	failed := p.Step("second", 0, func(func(string)) error { return broken })
	if ok != nil || !errors.Is(failed, broken) {
		t.Errorf("errors %v and %v, want none and the step's own", ok, failed)
	}
	timeless := regexp.MustCompile(`(done in |failed after )\S+`)
	want := `[ 1/3] first (about 1m50s on two cores)
[ 1/3]   done in TIME
by the way, 7
[ 2/3] second
[ 2/3]   failed after TIME
`
	if diff := cmp.Diff(want, timeless.ReplaceAllString(out.String(), "${1}TIME")); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}
