package link

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func pool() nodeapi.PoolStatus {
	at := time.Unix(1, 0)
	return nodeapi.PoolStatus{
		Name: "local", Free: 100 << 30, Seen: at, Since: at, Warnings: []nodeapi.Warning{{
			Reason: nodeapi.WarningVolumeLost, Message: "no directory for: pvc-1", Since: at,
			Volumes: []string{"pvc-1"},
		}},
	}
}

// TestWhatIsNew of a pool is told at once: also that it went and came back, and who is warned of.
func TestWhatIsNew(t *testing.T) {
	t.Parallel()
	later := time.Unix(2, 0)
	for name, c := range map[string]struct {
		change func(*nodeapi.PoolStatus)
		isNew  bool
	}{
		"nothing":        {func(*nodeapi.PoolStatus) {}, false},
		"a look":         {func(p *nodeapi.PoolStatus) { p.Seen = later }, false},
		"a little space": {func(p *nodeapi.PoolStatus) { p.Free++ }, false},
		"a time":         {func(p *nodeapi.PoolStatus) { p.Since = later }, true},
		"no warning":     {func(p *nodeapi.PoolStatus) { p.Warnings = nil }, true},
		"a volume":       {func(p *nodeapi.PoolStatus) { p.Warnings[0].Volumes = []string{"pvc-2"} }, true},
		"a warning":      {func(p *nodeapi.PoolStatus) { p.Warnings[0].Since = later }, true},
	} {
		now := pool()
		c.change(&now)
		if got := !saysTheSame(wire.FromPool(pool()), wire.FromPool(now)); got != c.isNew {
			t.Errorf("%s is new: %v, want %v", name, got, c.isNew)
		}
	}
}

// TestWarningsThatAreTooLong go without what makes them so, and leave what was to be sent alone.
func TestWarningsThatAreTooLong(t *testing.T) {
	t.Parallel()
	var pools []*wire.Pool
	for i := range 100 {
		p := pool()
		p.Name, p.EnforcementReason = fmt.Sprint("pool-", i), strings.Repeat("why ", 20)
		p.Warnings = slices.Repeat(p.Warnings, 7)
		p.Warnings[0].Volumes = slices.Repeat([]string{strings.Repeat("v", 128)}, nodeapi.MaxWarned)
		pools = append(pools, wire.FromPool(p))
	}
	sent := fitUpdate(pools)
	w := wire.ToPool(sent.GetPools().GetPools()[99]).Warnings
	if size := proto.Size(sent); size > wire.MaxUpdate || len(w) != 7 ||
		w[0].Reason != nodeapi.WarningVolumeLost || !w[0].Since.Equal(time.Unix(1, 0)) {
		t.Errorf("%d bytes, the last pool warns %+v", size, w)
	}
	if len(pools[0].GetWarnings()[0].GetVolumes()) != nodeapi.MaxWarned {
		t.Error("what is known to have been sent was changed")
	}
}
