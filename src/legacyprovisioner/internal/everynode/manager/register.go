package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

const (
	// registerRetry is the pause after a registration that failed, registerEvery the one after another: somebody may
	// have deleted the ConfigMap.
	registerRetry = 2 * time.Second
	registerEvery = 5 * time.Minute
)

// register says in the ConfigMap that this node has a manager, until it is said; false when ctx has ended. It comes
// before the first directory is made: a deletion waits for all nodes that are in it.
func (m *Manager) register(ctx context.Context) bool {
	for {
		err := m.before(ctx)
		if err == nil {
			err = m.registerNow(ctx)
		}
		if err == nil {
			m.registered.Store(true)
			m.Log.InfoContext(ctx, "this node is registered", logging.KeyNode, m.Node)
			return true
		}
		m.Log.WarnContext(ctx, "cannot register this node yet; it is tried again", logging.KeyNode, m.Node,
			logging.KeyError, err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(registerRetry):
		}
	}
}

func (m *Manager) registerAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(registerEvery):
		}
		if err := m.registerNow(ctx); err != nil && ctx.Err() == nil {
			m.Log.WarnContext(ctx, "cannot register this node again", logging.KeyNode, m.Node, logging.KeyError, err)
		}
	}
}

// before learns whether this node had directories when its manager ran last: then it still has them.
func (m *Manager) before(ctx context.Context) error {
	registry, err := m.Client.CoreV1().ConfigMaps(m.Namespace).Get(ctx, m.Registry, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", m.Namespace, m.Registry, err)
	}
	value, found := registry.Data[m.Node]
	m.used.Store(found && !strings.HasPrefix(value, wire.Unused))
	return nil
}

// recordUse says in the ConfigMap whether this node has directories.
func (m *Manager) recordUse(ctx context.Context, used bool) error {
	m.using.Lock()
	defer m.using.Unlock()
	if m.used.Swap(used) == used {
		return nil
	}
	err := m.registerNow(ctx)
	if err != nil {
		m.used.Store(!used) // the next round says it again
	}
	return err
}

// registerNow writes this node's own key; what is there already is no write.
func (m *Manager) registerNow(ctx context.Context) error {
	value := string(m.public)
	if !m.used.Load() {
		value = wire.Unused + value
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{m.Node: value}})
	if err != nil {
		return err
	}
	if _, err := m.Client.CoreV1().ConfigMaps(m.Namespace).Patch(ctx, m.Registry, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write node %s into ConfigMap %s/%s: %w", m.Node, m.Namespace, m.Registry, err)
	}
	return nil
}
