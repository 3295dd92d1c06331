package volume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// has fails the test unless a node's answer about an id is the one that is wanted.
func has(t *testing.T, n *node, id string, want bool, about string) {
	t.Helper()
	if _, got, err := n.Has(t.Context(), id); err != nil || got != want {
		t.Errorf("%s: the node has %s: %v, %v; want %v", about, id, got, err, want)
	}
}

func TestHas(t *testing.T) {
	d := newDisk()
	n := warm(t, d, withPools(retained("local", poolPath), retained("other", "/other")))
	must(t, n.openPool(t.Context(), "other"))
	has(t, n, "pvc-1", false, "never made")
	mustCreate(t, n, "pvc-1")
	has(t, n, "pvc-1", true, "made")
	d.AddDir("/other/csi/pvc-2")
	has(t, n, "pvc-2", true, "a directory without a record")
	d.AddDir(poolPath + "/csi/" + disk.StagingDir + "/pvc-3")
	has(t, n, "pvc-3", true, "what an interrupted create left")
	d.AddFile("/other/csi/"+disk.VolumesDir+"/pvc-4.json", []byte("{"))
	has(t, n, "pvc-4", true, "a record that cannot be used")
	must(t, n.Delete(t.Context(), "pvc-1"))
	has(t, n, "pvc-1", false, "in the trash")
	_, _, err := n.Has(t.Context(), "../x")
	if err == nil {
		t.Error("a bad id is no error")
	}
	mustCreate(t, n, "pvc-5")
	d.ReplaceByEmpty("/other")
	has(t, n, "pvc-5", true, "the other pool is absent")
	_, _, err = n.Has(t.Context(), "pvc-6")
	wants(t, err, pool.ErrAbsent, "pool other")
}

// slowCluster blocks a question until it is let go.
type slowCluster struct {
	*cluster
	begun, goOn chan struct{}
}

func (s *slowCluster) Get(ctx context.Context, id string) (nodeapi.PersistentVolume, bool, error) {
	close(s.begun)
	<-s.goOn
	return s.cluster.Get(ctx, id)
}

// TestHasWhatIsWorkedOn: nobody knows yet how that ends.
func TestHasWhatIsWorkedOn(t *testing.T) {
	n := warm(t, newDisk())
	slow := &slowCluster{cluster: n.cluster, begun: make(chan struct{}), goOn: make(chan struct{})}
	n.Cluster = slow
	result := make(chan error)
	go func() { result <- n.Delete(t.Context(), "pvc-1") }()
	<-slow.begun
	has(t, n, "pvc-1", true, "worked on")
	has(t, n, "pvc-2", false, "another is worked on")
	close(slow.goOn)
	must(t, <-result)
	has(t, n, "pvc-1", false, "there was none")
}

// shown is what a list says of a volume that is made as a copy.
func (n *node) shown(t *testing.T, id string) (is string) {
	t.Helper()
	must(t, n.Each(t.Context(), func(s nodeapi.VolumeStatus) error {
		if s.ID == id {
			is = s.OnItsNode()
		}
		return nil
	}))
	return is
}

// TestListOfACopy shows how far it is, or that it is not whole, and nothing once it is.
func TestListOfACopy(t *testing.T) {
	root, n, g := halfRestored(t)
	if is := n.shown(t, "pvc-2"); !strings.HasSuffix(is, "are copied") {
		t.Errorf("while it is made: %q", is)
	}
	go g.pass()
	n.Wait()
	for _, about := range []string{"interrupted", "after a restart"} {
		if is := n.shown(t, "pvc-2"); is != nodeapi.NotWhole {
			t.Errorf("%s: %q", about, is)
		}
		n = startAt(t, root)
		must(t, openPool(t.Context(), n))
	}
	must(t, restoring(n)(t.Context()))
	for _, id := range []string{"pvc-1", "pvc-2"} {
		if is := n.shown(t, id); is != "" {
			t.Errorf("%s is whole: %q", id, is)
		}
	}
}

func TestEach(t *testing.T) {
	d := newDisk()
	n := warm(t, d, withPools(retained("local", poolPath), retained("other", "/other")))
	must(t, n.openPool(t.Context(), "other"))
	var want []string
	for i := range 250 { // several times what is read at once
		s := spec(fmt.Sprintf("pvc-%03d", i))
		if i >= 240 {
			s.Pool = "other"
		}
		_, err := n.Create(t.Context(), s)
		must(t, err)
		want = append(want, s.Pool+"/"+s.ID)
	}
	must(t, n.Publish(t.Context(), publish("pvc-241", target)))
	opened := d.Opened()
	var got []string
	visit := func(s nodeapi.VolumeStatus) error {
		got = append(got, s.Pool+"/"+s.ID)
		if d.Opened() != opened {
			t.Fatal("a pool is open while a volume is visited")
		}
		if s.Bytes != mebibyte || s.Used != -1 || s.Enforcement != string(quota.None) ||
			s.Published != (s.ID == "pvc-241") {
			t.Errorf("%+v", s)
		}
		if s.ID == "pvc-000" {
			must(t, n.Delete(t.Context(), "pvc-245"))
		}
		return nil
	}
	must(t, n.Each(t.Context(), visit))
	want = slices.DeleteFunc(want, func(name string) bool { return name == "other/pvc-245" })
	if !slices.Equal(got, want) {
		t.Errorf("visited %v", got)
	}
	d.ReplaceByEmpty(poolPath)
	got = nil
	must(t, n.Each(t.Context(), visit))
	if len(got) != 9 {
		t.Errorf("visited %v without the pool local, want the 9 of the other", got)
	}
	enough, visited := errors.New("enough"), 0
	err := n.Each(t.Context(), func(nodeapi.VolumeStatus) error { visited++; return enough })
	if !errors.Is(err, enough) || visited != 1 {
		t.Errorf("%v after %d visits", err, visited)
	}
}
