package volume_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// consistent checks what must be true after any recovery, in every pool: nothing but records among the records,
// nothing in staging, a directory for every record and a record for every directory, promises that are the sum of the
// records, and on the filesystem the limits of the records, of the trash, and no others.
func (n *node) consistent(t reporter, about string) {
	t.Helper()
	named := map[quota.ID]bool{}
	limits := n.limits(t)
	for _, s := range n.specs {
		for id, r := range n.tidy(t, s, about) {
			named[r.QuotaID] = true
			for _, p := range r.Pins {
				named[p.ID] = true
			}
			v, ok := n.ledger(id)
			if ok && v.counted && limits[r.QuotaID] != r.Limit().Bytes {
				t.Errorf("%s: volume %s has %d bytes and holds %d, its limit is %d", about, id, r.Bytes, r.Held,
					limits[r.QuotaID])
			}
		}
		maps.Copy(named, n.inTrash(t, s))
	}
	for id, bytes := range limits {
		if !named[id] {
			t.Errorf("%s: the limit of %d bytes on ID %d is nobody's", about, bytes, id)
		}
	}
}

// tidy is consistent for one pool, but for its limits. It gives the pool's records.
func (n *node) tidy(t reporter, s poolspec.Pool, about string) map[string]store.Record {
	t.Helper()
	d := n.openAt(t, s.Path)
	defer func() { _ = d.Close() }()
	names := list(t, d, disk.VolumesDir)
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], ".json")
	}
	data := slices.DeleteFunc(list(t, d, "."), func(s string) bool { return s == disk.MetaDir })
	for _, staged := range list(t, d, disk.StagingDir) {
		if r, err := store.Read(d, staged); err != nil || !r.Filling() {
			t.Errorf("%s: staging has %s: %v", about, staged, err)
		}
		data = append(data, staged)
	}
	if slices.Sort(data); !slices.Equal(names, data) {
		t.Errorf("%s: records %v, directories %v", about, names, data)
	}
	all, promised, volumes := read(t, d), int64(0), 0
	for _, r := range all {
		promised += r.Limit().Bytes
		if r.Kind == store.OfVolume {
			volumes++
		}
	}
	for _, status := range n.set.Status() {
		wrong := !status.Served() || status.Promised != promised || status.Volumes != volumes ||
			status.Lost+status.Refused > 0
		if status.Name == s.Name && wrong {
			t.Errorf("%s: status %+v, want %d volumes with %d bytes", about, status, volumes, promised)
		}
	}
	return all
}

// records reads those of the first pool.
func (n *node) records(t reporter) map[string]store.Record {
	t.Helper()
	d := n.open(t)
	defer func() { _ = d.Close() }()
	return read(t, d)
}

func read(t reporter, d disk.FS) map[string]store.Record {
	t.Helper()
	placed, _, err := store.List(d)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]store.Record{}
	for _, id := range placed {
		if all[id], err = store.Read(d, id); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// inTrash are the IDs that records in the trash name.
func (n *node) inTrash(t reporter, s poolspec.Pool) map[quota.ID]bool {
	t.Helper()
	d := n.openAt(t, s.Path)
	defer func() { _ = d.Close() }()
	ids := map[quota.ID]bool{}
	for _, e := range list(t, d, disk.TrashDir) {
		data, err := d.ReadFile(path.Join(disk.TrashDir, e, "record.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		r, decodeErr := store.Decode(data)
		if err = errors.Join(err, decodeErr); err != nil {
			t.Fatal(err)
		}
		ids[r.QuotaID] = true
		for _, p := range r.Pins {
			ids[p.ID] = true
		}
	}
	return ids
}

// known is what the ledgers have of a volume.
type known struct {
	pool    string
	counted bool
}

func (n *node) ledger(id string) (known, bool) {
	name, v, ok := n.set.Find(id)
	return known{name, v.Counted}, ok
}

// limits are those on the filesystem of the first pool, in bytes, by ID: what the kernel has, whoever set it.
func (n *node) limits(t reporter) map[quota.ID]int64 {
	t.Helper()
	limits := map[quota.ID]int64{}
	d := n.open(t)
	defer func() { _ = d.Close() }()
	h, err := d.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	if h.File == nil {
		return limits
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(h.File.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	switch st.Type {
	case unix.BTRFS_SUPER_MAGIC:
		err = groups(h, limits)
	case unix.XFS_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC:
		err = projects(h, limits)
	}
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// groups are those of level 1, limited or not.
func groups(h disk.Handle, limits map[quota.ID]int64) error {
	if mode, err := btrfs.QuotaMode(h.File); err != nil || mode != btrfs.Simple {
		return err
	}
	all, err := btrfs.Qgroups(h.File, btrfs.NewQgroupID(1, 0), btrfs.NewQgroupID(1, 1<<48-1))
	for _, q := range all {
		limits[quota.ID(q.ID.ID())] = int64(q.Limit)
	}
	return err
}

// projects are those of volumes that have a limit.
func projects(h disk.Handle, limits map[quota.ID]int64) error {
	for id := uint32(1 << 30); ; id++ {
		q, err := projectquota.Next(h.File, id)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOSYS) {
			return nil // no more, or no quota
		}
		if err != nil {
			return fmt.Errorf("the projects from %d on: %w", id, err)
		}
		if q.Limit != (projectquota.Limit{}) {
			limits[quota.ID(q.ID)] = int64(q.Limit.Bytes)
		}
		id = q.ID
	}
}
