package volume_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// network is a filesystem that several nodes have mounted.
func network() *disktest.Disk {
	d := disktest.New()
	d.Mount(poolPath)
	return d
}

// member starts a node that has the filesystem; host is how it reaches it, the disk itself where that is nil.
func member(t testing.TB, d *disktest.Disk, name string, host disk.Host) *node {
	t.Helper()
	d.AddDir("/state-" + name)
	state, err := d.OpenDir("/state-" + name)
	must(t, err)
	if host == nil {
		host = d
	}
	spec := retained("local", poolPath)
	spec.Scope, spec.Quota, spec.Inline = poolspec.ScopeShared, poolspec.QuotaNone, false
	s := setup{node: node{disk: d, host: host, specs: []poolspec.Pool{spec}}, state: state}
	n, err := s.start(func(s *setup) { s.name = name })
	must(t, err)
	return n
}

// encounter is what one node does while another is in the middle of something.
type encounter struct {
	name string
	// prepare is done by a third node before.
	prepare func(t *testing.T, n *node)
	run     func(ctx context.Context, n *node) error
	// meanwhile is what the other node does when the first has paused, or died.
	meanwhile func(t *testing.T, n *node, about string)
	look      func(n *node, t *testing.T, about string)
}

func createOne(ctx context.Context, n *node) error {
	_, err := n.Create(ctx, spec("pvc-1"))
	return err
}

func deleteOne(ctx context.Context, n *node) error { return n.Delete(ctx, "pvc-1") }

// insist asks again as csi-provisioner does, as long as the answer is that somebody is at work.
func insist(t *testing.T, n *node, run func(context.Context, *node) error, about string) {
	t.Helper()
	var err error
	for range 5 {
		if err = run(t.Context(), n); !errors.Is(err, store.ErrConcurrent) && !errors.Is(err, volume.ErrBusy) {
			break
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", about, err)
	}
}

func encounters() []encounter {
	makes := func(t *testing.T, n *node, about string) {
		t.Helper()
		insist(t, n, createOne, about+", the other creates")
		n.fill(t, "pvc-1")
	}
	deletes := func(t *testing.T, n *node, about string) {
		t.Helper()
		insist(t, n, deleteOne, about+", the other deletes")
	}
	return []encounter{
		{"both create", nil, createOne, makes, (*node).sharedKept},
		{"created, and deleted elsewhere", nil, createOne, func(t *testing.T, n *node, about string) {
			t.Helper()
			makes(t, n, about)
			deletes(t, n, about)
		}, (*node).sharedOnceInTrash},
		{"created, and only deleted elsewhere", nil, createOne, deletes, nil},
		{"both delete", withVolume, deleteOne, deletes, (*node).sharedOnceInTrash},
		{"deleted, and grown elsewhere", withVolume, deleteOne, func(t *testing.T, n *node, _ string) {
			t.Helper()
			_, err := n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
			if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, volume.ErrLost) {
				t.Error(err)
			}
		}, (*node).sharedOnce},
		{"deleted, and asked for elsewhere", withVolume, deleteOne, func(t *testing.T, n *node, about string) {
			t.Helper()
			if _, _, err := n.Has(t.Context(), "pvc-1"); err != nil && !errors.Is(err, store.ErrConcurrent) {
				t.Errorf("%s: %v", about, err)
			}
		}, (*node).sharedOnce},
	}
}

// places gives where below csi/ the file of pvc-1 is.
func (n *node) places(t *testing.T) (at []string) {
	t.Helper()
	d := n.open(t)
	defer func() { _ = d.Close() }()
	candidates := []string{"pvc-1/precious"}
	for _, dir := range []string{disk.StagingDir, disk.TrashDir} {
		for _, node := range list(t, d, dir) {
			for _, e := range list(t, d, path.Join(dir, node)) {
				candidates = append(candidates, path.Join(dir, node, e, "precious"),
					path.Join(dir, node, e, "data/precious"))
			}
		}
	}
	for _, name := range candidates {
		if data, err := d.ReadFile(name); err == nil && string(data) == "kept" {
			at = append(at, name)
		}
	}
	return at
}

func (n *node) sharedKept(t *testing.T, about string) {
	t.Helper()
	if at := n.places(t); !slices.Equal(at, []string{"pvc-1/precious"}) {
		t.Errorf("%s: the data is at %v", about, at)
	}
	if _, health, err := n.Get(t.Context(), "pvc-1"); err != nil || health.Condition != volume.Healthy {
		t.Errorf("%s: %+v, %v", about, health, err)
	}
}

func (n *node) sharedOnce(t *testing.T, about string) {
	t.Helper()
	if at := n.places(t); len(at) != 1 {
		t.Errorf("%s: the data is at %v", about, at)
	}
}

func (n *node) sharedOnceInTrash(t *testing.T, about string) {
	t.Helper()
	if at := n.places(t); len(at) != 1 || !strings.HasPrefix(at[0], disk.TrashDir) {
		t.Errorf("%s: the data is at %v", about, at)
	}
}

// settled wants the directories of every node tidy and no record without data, after all nodes have recovered.
func (n *node) settled(t *testing.T, about string) {
	t.Helper()
	d := n.open(t)
	defer func() { _ = d.Close() }()
	for _, node := range list(t, d, disk.StagingDir) {
		if left := list(t, d, path.Join(disk.StagingDir, node)); len(left) > 0 {
			t.Errorf("%s: staging of %s has %v", about, node, left)
		}
	}
	for _, node := range list(t, d, disk.TrashDir) {
		for _, e := range list(t, d, path.Join(disk.TrashDir, node)) {
			has := list(t, d, path.Join(disk.TrashDir, node, e))
			if e != ".spare" && !slices.Equal(has, []string{"data", "record.json"}) {
				t.Errorf("%s: trash entry %s has %v", about, e, has)
			}
		}
	}
	for _, record := range list(t, d, disk.VolumesDir) {
		id := strings.TrimSuffix(record, ".json")
		if _, ok, err := store.Directory(d, id); err != nil || !ok {
			t.Errorf("%s: record %s has no directory: %v", about, record, err)
		}
	}
}

// TestASecondNodeAtEveryStep pauses a node before each of its calls on the disk, lets another node act, and goes on.
func TestASecondNodeAtEveryStep(t *testing.T) {
	for _, e := range encounters() {
		t.Run(e.name, func(t *testing.T) {
			for step := 1; ; step++ {
				d := network()
				first := disktest.NewFaulty(d, 0, nil)
				a, b := e.prepared(t, d, first)
				about := fmt.Sprintf("paused before call %d", step)
				reached := false
				first.Before(first.Steps()+step, func() { reached = true; e.meanwhile(t, b, about) })
				insist(t, a, e.run, about)
				if !reached {
					atLeast(t, step-1, 10)
					return
				}
				a.settled(t, about+", before they start again")
				e.ended(t, d, about)
			}
		})
	}
}

// TestANodeDiesAtEveryStep lets every call of a node fail from each one on, lets another node act, and then starts the
// first again; or never, and the other inherits what it has left.
func TestANodeDiesAtEveryStep(t *testing.T) {
	for _, e := range encounters() {
		for _, returns := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, it returns: %v", e.name, returns), func(t *testing.T) {
				for step := 1; ; step++ {
					d := network()
					counting := disktest.NewFaulty(d, 0, nil)
					if a, _ := e.prepared(t, d, counting); a == nil {
						t.Fatal("no node")
					}
					before := counting.Steps()
					d = network()
					dying := disktest.NewFaulty(d, before+step, nil)
					a, b := e.prepared(t, d, dying)
					about := fmt.Sprintf("dead from call %d on", step)
					if err := e.run(t.Context(), a); err == nil {
						atLeast(t, step-1, 10)
						return
					}
					e.meanwhile(t, b, about)
					if !returns {
						b.set.SetExpected(map[string]guard.Expected{"local": {Gone: []string{"a"}}})
						b.inherits(t, "a", about)
					}
					e.ended(t, d, about)
				}
			})
		}
	}
}

// inherits waits until a node has cleared another one's directories.
func (n *node) inherits(t *testing.T, from, about string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.set.Run(ctx); close(done) }()
	const tries = 2000
	for i := 0; slices.Contains(append(n.ls(t, disk.StagingDir), n.ls(t, disk.TrashDir)...), from); i++ {
		if i == tries {
			t.Fatalf("%s: what %s had stays: %v %v", about, from, n.ls(t, disk.StagingDir), n.ls(t, disk.TrashDir))
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	<-done
}

func (e encounter) prepared(t *testing.T, d *disktest.Disk, first disk.Host) (a, b *node) {
	t.Helper()
	if e.prepare != nil {
		c := member(t, d, "c", nil)
		must(t, openPool(t.Context(), c))
		e.prepare(t, c)
	}
	a, b = member(t, d, "a", first), member(t, d, "b", nil)
	must(t, openPool(t.Context(), a), openPool(t.Context(), b))
	return a, b
}

// ended starts all nodes again, and looks.
func (e encounter) ended(t *testing.T, d *disktest.Disk, about string) {
	t.Helper()
	a, b := member(t, d, "a", nil), member(t, d, "b", nil)
	must(t, openPool(t.Context(), a), openPool(t.Context(), b))
	if e.look != nil {
		e.look(b, t, about)
		e.look(a, t, about)
	}
	a.settled(t, about)
}

// TestOneIdInTwoSharedPools: the claim's class was made anew with another pool between two attempts.
func TestOneIdInTwoSharedPools(t *testing.T) {
	d := network()
	d.Mount("/beta")
	both := func(name string) *node {
		d.AddDir("/state-" + name)
		state, err := d.OpenDir("/state-" + name)
		must(t, err)
		alpha, beta := retained("alpha", poolPath), retained("beta", "/beta")
		for _, s := range []*poolspec.Pool{&alpha, &beta} {
			s.Scope, s.Quota, s.Inline = poolspec.ScopeShared, poolspec.QuotaNone, false
		}
		n, err := setup{node: node{disk: d, host: d, specs: []poolspec.Pool{alpha, beta}}, state: state}.
			start(func(s *setup) { s.name = name })
		must(t, err)
		must(t, n.openPool(t.Context(), "alpha"), n.openPool(t.Context(), "beta"))
		return n
	}
	a, b := both("a"), both("b")
	in := func(pool string) volume.Spec { s := spec("pvc-1"); s.Pool = pool; return s }
	_, err := a.Create(t.Context(), in("alpha"))
	must(t, err)
	_, err = b.Create(t.Context(), in("beta"))
	wants(t, err, volume.ErrExists, "pvc-1 is in pool alpha")
	_, err = b.Create(t.Context(), in("alpha"))
	must(t, err)
}
