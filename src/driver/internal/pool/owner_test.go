package pool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Two clusters, by the UIDs of their namespaces kube-system.
const (
	ours   = "11111111-2222-3333-4444-555555555555"
	theirs = "99999999-8888-7777-6666-555555555555"
)

// of starts a node of a cluster, with a state directory of its own, on a filesystem that others have too.
func of(t *testing.T, memory *disktest.Disk, cluster, name string, retention time.Duration) *node {
	t.Helper()
	memory.AddDir("/state-" + cluster + name)
	state, err := memory.OpenDir("/state-" + cluster + name)
	must(t, err)
	spec := everybodys()
	spec.Trash.Retention = poolspec.Duration(retention)
	n := newNode(t, memory, func(c *Config) { c.Alone, c.Node, c.State = false, name, state }, spec)
	n.memory, n.opened = memory, memory.Opened()
	return n
}

// inUse is a node of a cluster that has a shared pool in use, and an hour old trash of another node in it.
func inUse(t *testing.T, memory *disktest.Disk, cluster string) (n *node, id string) {
	t.Helper()
	n = of(t, memory, cluster, "a", 72*time.Hour)
	n.expect(guard.Expected{Make: true, Owner: cluster})
	n.check(t)
	id = n.status(t, "everybodys").ID
	n.expect(guard.Expected{ID: id, Owner: cluster})
	n.check(t)
	n.wants(t, "everybodys", true, "")
	for _, volume := range []string{"pvc-1", "pvc-2"} {
		n.volume(t, "everybodys", store.Record{ID: volume, OnDelete: store.Trash})
	}
	n.discard(t, "everybodys", "pvc-2")
	return n, id
}

// tree is everything below csi/ and what is in its files.
func tree(t *testing.T, memory *disktest.Disk) string {
	t.Helper()
	d, err := memory.Open("/other")
	must(t, err)
	defer func() { _ = d.Close() }()
	var all strings.Builder
	var visit func(dir string)
	visit = func(dir string) {
		entries, err := d.ReadDir(dir)
		must(t, err)
		names := map[string]bool{}
		for _, e := range entries {
			names[e.Name] = e.Dir
		}
		for _, e := range slices.Sorted(maps.Keys(names)) {
			name := strings.TrimPrefix(dir+"/"+e, "./")
			data, _ := d.ReadFile(name)
			fmt.Fprintf(&all, "%s %s\n", name, data)
			if names[e] {
				visit(name)
			}
		}
	}
	visit(".")
	return all.String()
}

// TestAnotherClustersPool: a second cluster, whose ConfigMap is empty, is given the first one's filesystem.
func TestAnotherClustersPool(t *testing.T) {
	memory := newMemory()
	first, id := inUse(t, memory, theirs)
	before := tree(t, memory)
	second := of(t, memory, ours, "a", 0) // the node has the same name
	second.clock.pass(1000 * time.Hour)
	for _, expected := range []guard.Expected{
		{Make: true, Owner: ours},
		{ID: id, Owner: ours},
		{ID: id, Owner: ours, Gone: []string{"a", "b"}},
		{Owner: ours},
	} {
		second.expect(expected)
		for range 3 {
			second.clock.pass(rescanInterval)
			second.check(t)
			second.find("everybodys").Purge(t.Context())
		}
		second.wants(t, "everybodys", false, guard.OtherCluster)
	}
	s := second.status(t, "everybodys")
	if !strings.Contains(s.Message, "kubectl hpp pool take everybodys --from "+theirs) ||
		second.logged("pool is absent") != 1 {
		t.Errorf("%s, log %s", s.Message, second.log)
	}
	if after := tree(t, memory); after != before {
		t.Errorf("was\n%s\nis\n%s", before, after)
	}
	first.opened = memory.Opened()
	first.is(t, "everybodys", true, "")
}

// TestTake: with the right name of the other cluster alone, and that one is out then, with or without its controller.
func TestTake(t *testing.T) {
	memory := newMemory()
	first, id := inUse(t, memory, theirs)
	second := of(t, memory, ours, "b", 0)
	second.check(t)
	refused := func(from string, sentinel error, says string) {
		t.Helper()
		before := tree(t, memory)
		err := second.Take(t.Context(), "everybodys", from)
		if !errors.Is(err, sentinel) || !strings.Contains(err.Error(), says) {
			t.Errorf("take from %q: %v", from, err)
		}
		if tree(t, memory) != before {
			t.Error("something was changed")
		}
	}
	refused(theirs, ErrAbsent, "the controller has not said yet")
	second.expect(guard.Expected{Make: true, Owner: ours})
	second.check(t)
	for _, from := range []string{"", ours, "nobody", strings.Repeat("x", 1<<20)} {
		refused(from, ErrOtherCluster, "belongs to "+theirs)
	}
	must(t, second.Take(t.Context(), "everybodys", theirs))
	refused(theirs, ErrPresent, "belongs to no other cluster")
	second.expect(guard.Expected{ID: id, Owner: ours})
	second.is(t, "everybodys", true, "")
	if s := second.status(t, "everybodys"); s.Volumes != 1 || s.ID != id {
		t.Errorf("%+v", s)
	}

	before := tree(t, memory)
	first.opened = memory.Opened()
	first.clock.pass(1000 * time.Hour) // the trash is due
	first.is(t, "everybodys", false, guard.OtherCluster)
	first.find("everybodys").Purge(t.Context())
	restarted := of(t, memory, theirs, "a", 0)
	restarted.clock.pass(2000 * time.Hour)
	restarted.is(t, "everybodys", false, guard.OtherCluster) // its controller is away
	restarted.find("everybodys").Purge(t.Context())
	if tree(t, memory) != before {
		t.Errorf("the first cluster changed something:\n%s\n%s", before, tree(t, memory))
	}

	local := start(t, local())
	local.check(t)
	if err := local.Take(t.Context(), "local", theirs); !errors.Is(err, ErrPresent) {
		t.Errorf("take of a node's pool: %v", err)
	}
	if err := local.Take(t.Context(), "never", theirs); !errors.Is(err, ErrUnknown) {
		t.Errorf("take of no pool: %v", err)
	}
}

// TestAnOlderDriversPool gets its cluster noted once, and is purged only from then on.
func TestAnOlderDriversPool(t *testing.T) {
	memory := newMemory()
	memory.AddFile("/other/csi/.hpp/pool.json", []byte(`{"version":2,"id":"AAAA"}`))
	n := of(t, memory, ours, "a", 0)
	n.expect(guard.Expected{ID: "AAAA"}) // an older controller
	n.check(t)
	n.is(t, "everybodys", true, "")
	n.volume(t, "everybodys", store.Record{ID: "pvc-1", OnDelete: store.Trash})
	n.discard(t, "everybodys", "pvc-1")
	n.find("everybodys").Purge(t.Context())
	if left := n.inTrash(t, "everybodys"); len(left) != 1 {
		t.Errorf("purged before anybody knew whose it is: %v", left)
	}
	n.expect(guard.Expected{ID: "AAAA", Owner: ours})
	n.check(t)
	if m := marker(t, memory); m.Owner != ours || m.ID != "AAAA" {
		t.Errorf("the marker became %+v", m)
	}
	n.find("everybodys").Purge(t.Context())
	if left := n.inTrash(t, "everybodys"); len(left) > 0 {
		t.Errorf("not purged: %v", left)
	}
	other := of(t, memory, theirs, "a", 0)
	other.expect(guard.Expected{ID: "AAAA", Owner: theirs})
	other.is(t, "everybodys", false, guard.OtherCluster)
	if m := marker(t, memory); m.Owner != ours {
		t.Errorf("the marker became %+v", m)
	}
}

func marker(t *testing.T, memory *disktest.Disk) *guard.Marker {
	t.Helper()
	d, err := memory.Open("/other")
	must(t, err)
	defer func() { _ = d.Close() }()
	m, err := guard.ReadMarker(d)
	must(t, err)
	return m
}

// TestDamagedOwners: nobody's and everybody's pool is absent, and is left as it is.
func TestDamagedOwners(t *testing.T) {
	for _, owner := range []string{`7`, `["a"]`, `"../../etc"`, `"a b"`, `"` + strings.Repeat("a", 65) + `"`} {
		memory := newMemory()
		content := `{"version":2,"id":"AAAA","owner":` + owner + `}`
		memory.AddFile("/other/csi/.hpp/pool.json", []byte(content))
		n := of(t, memory, ours, "a", 0)
		n.expect(guard.Expected{Make: true, Owner: ours})
		n.is(t, "everybodys", false, "MarkerUnusable")
		if s := n.status(t, "everybodys"); !strings.Contains(s.Message, "damaged") {
			t.Errorf("owner %s: %s", owner, s.Message)
		}
		if err := n.Take(t.Context(), "everybodys", strings.Trim(owner, `"`)); !errors.Is(err, ErrAbsent) {
			t.Errorf("take from %s: %v", owner, err)
		}
		d, err := memory.Open("/other")
		must(t, err)
		data, err := d.ReadFile(disk.MarkerFile)
		must(t, errors.Join(err, d.Close()))
		if string(data) != content {
			t.Errorf("the marker became %s", data)
		}
	}
}
