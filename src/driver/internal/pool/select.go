package pool

import (
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Inline reports whether a pool takes CSI inline ephemeral volumes.
func (s *Set) Inline(name string) bool {
	p := s.find(name)
	return p != nil && p.spec.Inline
}

// LegacyPool is the pool of volumes whose class names none, as kubevirt's driver had it.
const LegacyPool = "legacy"

// Resolve names the pool of a class: the one it asks for, else the pool legacy, else the only one.
func (s *Set) Resolve(name string) (string, error) {
	if name = Default(s.Names(), name); name == "" {
		return "", fmt.Errorf("%w: the StorageClass parameter storagePool is missing; configured are: %s",
			ErrAmbiguous, s.names())
	}
	return name, nil
}

// Default is the pool that a name means where these are configured, "" where it means none.
func Default(configured []string, name string) string {
	switch {
	case name != "":
		return name
	case slices.Contains(configured, LegacyPool):
		return LegacyPool
	case len(configured) == 1:
		return configured[0]
	default:
		return ""
	}
}

// SetNodeLabels decides anew in which pools this node makes volumes. Until it is first called, a pool with a
// nodeSelector that was never used here is absent.
func (s *Set) SetNodeLabels(labels map[string]string) {
	s.selectBy(labels)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labelled = true
}

// unlabelled reports that nobody knows yet whether this node is selected.
func (s *Set) unlabelled(spec poolspec.Pool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(spec.NodeSelector) > 0 && !s.labelled
}

// selectBy compares the labels with every pool's nodeSelector.
func (s *Set) selectBy(labels map[string]string) {
	for _, p := range s.pools {
		selected := true
		for key, value := range p.spec.NodeSelector {
			has, ok := labels[key]
			selected = selected && ok && has == value
		}
		p.ledger.Select(selected)
	}
}

// Changed gives a channel that receives when Status has something new to say about whether pools can be used, or about
// untracked directories.
func (s *Set) Changed() <-chan struct{} {
	listener := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, listener)
	return listener
}

func (s *Set) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, listener := range s.listeners {
		select {
		case listener <- struct{}{}:
		default: // whoever listens has yet to look, and will see this change too
		}
	}
}
