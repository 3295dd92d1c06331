package volume_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// TestARepeatedCreateComparesWhatTheClassSays: a create that was answered by an older driver, which derived no inode
// limit, or whose limit an admin has changed since, is the same request.
func TestARepeatedCreateComparesWhatTheClassSays(t *testing.T) {
	for name, test := range map[string]struct {
		inodes    int64
		from      store.InodesFrom
		asked     int64
		askedFrom store.InodesFrom
		differs   bool
	}{
		"made before limits were derived":  {0, "", 0, store.Derived, false},
		"derived":                          {1024, store.Derived, 0, store.Derived, false},
		"derived from another filesystem":  {99, store.Derived, 0, store.Derived, false},
		"an admin's":                       {50, store.FromAdmin, 0, store.Derived, false},
		"an admin's none":                  {0, store.FromAdmin, 0, store.Derived, false},
		"the class's":                      {50, "", 50, "", false},
		"the class's none":                 {0, "", 0, "", false},
		"derived, and the class says none": {1024, store.Derived, 0, "", false},
		"derived, and the class says one":  {1024, store.Derived, 50, "", true},
		"another one of the class":         {50, "", 51, "", true},
		"the class's, and now none":        {50, "", 0, store.Derived, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk())
			mustCreate(t, n, "pvc-1")
			must(t, n.set.Use(t.Context(), "local", func(o *pool.Open) error {
				r, err := store.Read(o.Disk, "pvc-1")
				r.Inodes, r.InodesFrom = test.inodes, test.from
				must(t, err)
				return store.Replace(o.Disk, r)
			}))
			s := spec("pvc-1")
			s.Inodes, s.InodesFrom = test.asked, test.askedFrom
			v, err := n.Create(t.Context(), s)
			if test.differs {
				wants(t, err, volume.ErrExists, "inodeLimit")
				return
			}
			if err != nil || v.Inodes != test.inodes || v.InodesFrom != test.from {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// TestNothingIsDerivedWhereNothingIsEnforced.
func TestNothingIsDerivedWhereNothingIsEnforced(t *testing.T) {
	n := start(t, newDisk())
	s := spec("pvc-1")
	s.InodesFrom = store.Derived
	if v, err := n.Create(t.Context(), s); err != nil || v.Inodes != 0 || v.InodesFrom != "" {
		t.Errorf("%+v, %v", v, err)
	}
}
