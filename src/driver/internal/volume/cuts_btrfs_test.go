//go:build !vm

package volume_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestPowerCutsOnRealBtrfs cuts the power while many volumes are made and deleted at once, on the kernel that is here.
// The disk is a file on another btrfs, and a clone of it what a machine finds when it is up again: the kernel clones a
// file as it is at one moment.
func TestPowerCutsOnRealBtrfs(t *testing.T) {
	outer := btrfsDisk(t)
	image := filepath.Join(outer, "image")
	mounttest.Image(t, image, "btrfs", 1<<30)
	var cuts []cut
	t.Run("work", func(t *testing.T) {
		cuts = workAndCut(t, startAt(t, mounted(t, image), required), image)
	})
	for _, c := range cuts {
		t.Run(filepath.Base(c.image), func(t *testing.T) { c.check(t) })
	}
}

func mounted(t *testing.T, image string) (root string) {
	t.Helper()
	root = t.TempDir()
	mounttest.Loop(t, image, root)
	return root
}

// answer is what is known of a volume.
type answer int

const (
	unanswered answer = iota
	made
	gone
)

// answers are those of a driver at work.
type answers struct {
	mu sync.Mutex
	of map[string]answer
	// each is sent to after each.
	each chan struct{}
}

func (a *answers) set(id string, to answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[id] = to
}

func (a *answers) now() map[string]answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.of)
}

// cut is a disk after a power cut, and what had been answered before it and not been asked for anew.
type cut struct {
	image string
	of    map[string]answer
}

// workAndCut lets clients make volumes and delete every other one, and cuts the power every few answers.
func workAndCut(t *testing.T, n *node, image string) (cuts []cut) {
	t.Helper()
	const clients, volumes, every = 12, 30, 25
	a := &answers{of: map[string]answer{}, each: make(chan struct{})}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range volumes {
				a.life(t, n, fmt.Sprintf("pvc-%d-%d", client, i), i%2 == 0)
			}
		})
	}
	go func() { all.Wait(); close(a.each) }()
	seen := 0
	for range a.each {
		if seen++; seen%every != 0 {
			continue
		}
		before := a.now()
		c := cut{image: fmt.Sprintf("%s-%d", image, seen)}
		mounttest.Run(t, "cp", "--reflink=always", image, c.image)
		after := a.now()
		maps.DeleteFunc(before, func(id string, is answer) bool { return after[id] != is })
		c.of = before
		cuts = append(cuts, c)
	}
	return cuts
}

// life makes a volume, and deletes it unless it is to stay.
func (a *answers) life(t *testing.T, n *node, id string, stays bool) {
	a.set(id, unanswered)
	if _, err := n.Create(t.Context(), spec(id)); err != nil {
		t.Errorf("create %s: %v", id, err)
	}
	a.set(id, made)
	a.each <- struct{}{}
	if stays {
		return
	}
	a.set(id, unanswered)
	if err := n.Delete(t.Context(), id); err != nil {
		t.Errorf("delete %s: %v", id, err)
	}
	a.set(id, gone)
	a.each <- struct{}{}
}

// check wants what was answered, and nothing half-made.
func (c cut) check(t *testing.T) {
	t.Helper()
	n := startAt(t, mounted(t, c.image), required)
	must(t, openPool(t.Context(), n))
	for id, is := range c.of {
		_, health, err := n.Get(t.Context(), id)
		switch {
		case is == made && (err != nil || health.Condition != volume.Healthy):
			t.Errorf("%s, which was answered: %+v, %v", id, health, err)
		case is == gone && !errors.Is(err, store.ErrNotFound):
			t.Errorf("%s, whose deletion was answered: %v", id, err)
		}
	}
	n.consistent(t, "up again")
	t.Logf("%d answers, %d volumes", len(c.of), n.status().Volumes)
}
