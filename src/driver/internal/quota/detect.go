package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/btrfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Quotas knows the filesystems that the pools of this node are on. It is safe for concurrent use.
type Quotas struct {
	etc string

	mu    sync.Mutex
	known map[uint64]*filesystem // by st_dev
}

// New takes the directory of the host's projid(5) and projects(5), which need not exist.
func New(etc string) *Quotas { return &Quotas{etc: etc, known: map[uint64]*filesystem{}} }

func (q *Quotas) filesystem(dev uint64) *filesystem {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known[dev] == nil {
		q.known[dev] = &filesystem{etc: q.etc}
	}
	return q.known[dev]
}

// Detect looks at what quota the filesystem of an open pool has on, and gives the backend for it. With enable it
// switches on simple quota of btrfs, which does not count what is there: that is for a pool without volumes. Where
// quota is required it makes XFS and ext4 enforce what they only count, and takes csi/ out of an admin's limited
// project.
func (q *Quotas) Detect(d disk.FS, want poolspec.Quota, enable bool) (b Backend, err error) {
	if want == poolspec.QuotaNone {
		return plain("the pool's configuration says quota: none"), nil
	}
	err = withDirectory(d, ".", func(top *os.File) error {
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(top.Fd()), &st); err != nil {
			return &fs.PathError{Op: "statfs", Path: top.Name(), Err: err}
		}
		switch st.Type {
		case unix.BTRFS_SUPER_MAGIC:
			b, err = detectBtrfs(top, enable)
		case unix.XFS_SUPER_MAGIC:
			b, err = q.detectProject(d, top, want)
			b.inodes = xfsInodes
		case unix.EXT4_SUPER_MAGIC:
			b, err = q.detectProject(d, top, want)
			b.inodes = ext4Inodes
		default:
			err = ErrUnsupported
		}
		return err
	})
	switch {
	case errors.Is(err, ErrUnsupported):
		return plain("the driver can use quota on btrfs, XFS and ext4 only"), nil
	case errors.Is(err, fs.ErrPermission) && want == poolspec.QuotaAuto:
		return plain(fmt.Sprintf("the driver may not ask what quota the filesystem has on: %v", err)), nil
	case err != nil:
		return Backend{}, fmt.Errorf("see what quota the filesystem has on: %w", err)
	}
	return b, nil
}

func detectBtrfs(top *os.File, enable bool) (Backend, error) {
	on := Backend{
		Name: Btrfs, Enforcement: Strict, Ordered: true, on: func(d disk.FS) limits { return btrfsLimits{d} },
		snapshots: func(d disk.FS) Snapshots { return btrfsLimits{d} },
	}
	mode, err := btrfs.QuotaMode(top)
	switch {
	case err != nil:
		return Backend{}, err
	case mode == btrfs.Simple:
		return on, nil
	case mode == btrfs.Full:
		return plain("full qgroups are on, which the driver does not use: a pod can leave them, and they lose count. " +
			"Switch to simple quota (Linux 6.7 or newer) with `btrfs quota disable` and then `btrfs quota enable " +
			"--simple`, each with the pool's path; all limits that are set now are forgotten, and only what is " +
			"written from then on is counted"), nil
	case !enable:
		return plain("quota is off: switch it on with `btrfs quota enable --simple` and the pool's path (Linux 6.7 " +
			"or newer), which counts what is written from then on"), nil
	}
	if err := btrfs.EnableSimpleQuota(top); err != nil {
		return plain(fmt.Sprintf("quota could not be switched on: %v", err)), nil
	}
	on.Changes = []string{"simple quota of btrfs was switched on; kernels before 6.7 cannot mount the filesystem now"}
	return on, nil
}

func (q *Quotas) detectProject(d disk.FS, top *os.File, want poolspec.Quota) (Backend, error) {
	can, err := projectquota.Probe(top)
	if err != nil {
		return Backend{}, err
	}
	var changes []string
	if can.Accounting && !can.Enforcing && want == poolspec.QuotaRequired {
		if err := projectquota.Enforce(top); err != nil {
			return plain(fmt.Sprintf("the enforcement of project quota could not be switched on: %v", err)), nil
		}
		can.Enforcing = true
		changes = []string{"the enforcement of project quota was switched on, until the filesystem is unmounted"}
	}
	if !can.Enforcing {
		return plain(can.Reason), nil
	}
	// The kernel asks for the same right as for setting limits, and for more than Probe needs.
	if _, err := projectquota.Get(top, endProject); errors.Is(err, fs.ErrPermission) {
		return plain(fmt.Sprintf("the driver may not set limits (%v): it must be privileged, and in the node's own "+
			"user namespace", err)), nil
	} // a volume reports any other error
	b := Backend{
		Name: Project, Enforcement: Cooperative, on: func(d disk.FS) limits { return projectLimits{d, q} },
	}
	left, err := leaveProjects(d, want)
	if err != nil {
		b = plain(err.Error())
	}
	b.Changes = slices.Concat(changes, left)
	return b, nil
}

// leaveProjects takes the driver's own directories out of any project, so that volumes can be moved between them: a
// rename into a directory that hands its project on fails with EXDEV. left is what was done, also where something
// failed then.
func leaveProjects(d disk.FS, want poolspec.Quota) (left []string, err error) {
	for _, name := range []string{".", disk.MetaDir, disk.VolumesDir, disk.StagingDir, disk.TrashDir} {
		err := withDirectory(d, name, func(dir *os.File) error {
			from, err := leaveProject(dir, want)
			if from != "" {
				left = append(left, fmt.Sprintf("csi/%s was taken out of %s, so that volumes can have their own limits",
					name, from))
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return left, fmt.Errorf("csi/%s: %w", name, err)
		}
	}
	return left, nil
}

// leaveProject takes a directory out of its project, and says which that was. One with a limit is left only where quota
// is required.
func leaveProject(dir *os.File, want poolspec.Quota) (from string, err error) {
	id, inherit, err := projectquota.ProjectID(dir)
	if err != nil || id == 0 && !inherit {
		return "", err
	}
	var q projectquota.Quota
	if id != 0 { // the limit of project 0 is XFS's default
		q, err = projectquota.Get(dir, id)
	}
	if err != nil {
		return "", err
	}
	from = fmt.Sprintf("project %d (size %s, %d inodes; 0 is no limit)", id, bytesize.Format(int64(q.Limit.Bytes)),
		q.Limit.Inodes)
	if q.Limit != (projectquota.Limit{}) && want != poolspec.QuotaRequired {
		return "", fmt.Errorf("it counts to %s, a limit that the driver will not evade: give the pool a directory "+
			"outside that project, or say quota: required to take csi/ out of it", from)
	}
	if err := projectquota.SetProjectID(dir, 0, false); err != nil {
		return "", err
	}
	return from, nil
}
