//go:build !vm

package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// operations are what a step can be; run is nil where there is nothing to do it with.
func (c *copies) operations() map[string]func() (about string, run func() error) {
	ctx := context.Background()
	return map[string]func() (string, func() error){
		"create":   func() (string, func() error) { return c.create(ctx) },
		"snapshot": func() (string, func() error) { return c.snapshot(ctx) },
		"restore":  func() (string, func() error) { return c.copy(ctx, c.snapshots, true) },
		"clone":    func() (string, func() error) { return c.copy(ctx, c.volumes, false) },
		"write":    c.write, "overwrite": c.write,
		"delete":          func() (string, func() error) { return c.delete(ctx) },
		"delete snapshot": func() (string, func() error) { return c.deleteSnapshot(ctx) },
		"expand":          func() (string, func() error) { return c.expand(ctx) },
		"undelete":        func() (string, func() error) { return c.undelete(ctx) },
		"publish":         func() (string, func() error) { return c.publish(ctx) },
		"purge": func() (string, func() error) {
			return "", func() error {
				c.node.clock.advance(2 * time.Hour)
				clear(c.trash)
				return c.node.purge(ctx)
			}
		},
		"release": func() (string, func() error) { return "", func() error { return c.node.ReleaseHeld(ctx) } },
		"restart": func() (string, func() error) { return "", func() error { c.boot(); return nil } },
	}
}

// unused is one of the ids that nothing has, "" where all are taken.
func (c *copies) unused(format string, most int, taken map[string]model) string {
	for i := range most {
		if id := fmt.Sprintf(format, i); taken[id].content == nil {
			return id
		}
	}
	return ""
}

// any is a random one, "" where there is none.
func (c *copies) any(of map[string]model) string {
	if len(of) == 0 {
		return ""
	}
	return pick(c.rng, slices.Sorted(maps.Keys(of)))
}

func (c *copies) create(ctx context.Context) (string, func() error) {
	id, size := c.unused("pvc-%d", 4, c.volumes), (16+c.rng.Int64N(32))*mebibyte
	if id == "" {
		return "", nil
	}
	return fmt.Sprint(id, " of ", size), func() error {
		return c.made(ctx, volume.Spec{ID: id, Bytes: size}, letters{})
	}
}

// made makes a volume, which is to have a content then.
func (c *copies) made(ctx context.Context, of volume.Spec, has letters) error {
	s := spec(of.ID)
	s.Bytes, s.Source = of.Bytes, of.Source
	v, err := c.node.createWhole(ctx, s)
	if err == nil {
		c.volumes[v.ID] = model{v.Bytes, maps.Clone(has)}
	}
	return err
}

func (c *copies) snapshot(ctx context.Context) (string, func() error) {
	id, of := c.unused("snap-%d.0123456789", 4, c.snapshots), c.any(c.volumes)
	if id == "" || of == "" {
		return "", nil
	}
	return id + " of " + of, func() error {
		err := c.node.cutWhole(ctx, volume.SnapshotSpec{ID: id, Volume: of})
		if err == nil {
			c.snapshots[id] = model{c.volumes[of].bytes, maps.Clone(c.volumes[of].content)}
		}
		return err
	}
}

func (c *copies) copy(ctx context.Context, from map[string]model, snapshots bool) (string, func() error) {
	id, of := c.unused("pvc-%d", 4, c.volumes), c.any(from)
	if id == "" || of == "" {
		return "", nil
	}
	s := volume.Spec{ID: id, Bytes: from[of].bytes + c.rng.Int64N(8)*mebibyte, Source: fromVolume(of)}
	if snapshots {
		s.Source = fromSnapshot(of)
	}
	return fmt.Sprint(id, " of ", of), func() error { return c.made(ctx, s, from[of].content) }
}

// write writes some files of a volume anew, or all that it has room for.
func (c *copies) write() (string, func() error) {
	id := c.any(c.volumes)
	if id == "" {
		return "", nil
	}
	most := int(c.volumes[id].bytes/mebibyte) - spare
	first, last, letter := 0, most, byte('a'+c.rng.IntN(26))
	if c.rng.IntN(2) == 0 {
		first = c.rng.IntN(most)
		last = first + 1 + c.rng.IntN(most-first)
	}
	return fmt.Sprintf("%s %d to %d with %c", id, first, last, letter), func() error {
		has := maps.Clone(c.volumes[id].content)
		for i := first; i < last; i++ {
			name := fmt.Sprint("file", i)
			if err := os.WriteFile(c.node.path(id, name), bytes.Repeat([]byte{letter}, mebibyte), 0o600); err != nil {
				return err
			}
			has[name] = letter
		}
		c.volumes[id] = model{c.volumes[id].bytes, has}
		return nil
	}
}

func (c *copies) delete(ctx context.Context) (string, func() error) {
	id := c.any(c.volumes)
	if id == "" {
		return "", nil
	}
	return id, func() error {
		err := c.node.Delete(ctx, id)
		if entries := c.node.entries(c, id); err == nil {
			c.trash[entries[len(entries)-1]] = c.volumes[id]
			delete(c.volumes, id)
			c.node.clock.advance(time.Second) // so that entries are in the order of their deletes
		}
		return err
	}
}

func (c *copies) deleteSnapshot(ctx context.Context) (string, func() error) {
	id := c.any(c.snapshots)
	if id == "" {
		return "", nil
	}
	return id, func() error {
		err := c.node.DeleteSnapshot(ctx, id)
		if err == nil {
			delete(c.snapshots, id)
			c.node.clock.advance(time.Second)
		}
		return err
	}
}

func (c *copies) expand(ctx context.Context) (string, func() error) {
	id := c.any(c.volumes)
	if id == "" {
		return "", nil
	}
	size := c.volumes[id].bytes + c.rng.Int64N(8)*mebibyte
	return fmt.Sprint(id, " to ", size), func() error {
		v, err := c.node.Expand(ctx, id, size, 0)
		if err == nil {
			c.volumes[id] = model{v.Bytes, c.volumes[id].content}
		}
		return err
	}
}

func (c *copies) undelete(ctx context.Context) (string, func() error) {
	entry := c.any(c.trash)
	id, _, _ := store.ParseEntryName(entry)
	if _, there := c.volumes[id]; there || entry == "" {
		return "", nil
	}
	return entry, func() error {
		_, err := c.node.Undelete(ctx, entry)
		if err == nil {
			c.volumes[id] = c.trash[entry]
			delete(c.trash, entry)
		}
		return err
	}
}

// publish is what sees to a limit before a pod writes.
func (c *copies) publish(ctx context.Context) (string, func() error) {
	id := c.any(c.volumes)
	if id == "" {
		return "", nil
	}
	return id, func() error {
		return errors.Join(c.node.Publish(ctx, publish(id, target)), c.node.Unpublish(ctx, id, target))
	}
}
