package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// ownDirs are the driver's own directories, in which volumes are made and between which they are moved.
func ownDirs() []string {
	return []string{".", poolfs.MetaDir, poolfs.VolumesDir, poolfs.StagingDir, poolfs.TrashDir}
}

// counted is a directory and the account that it counts to.
type counted struct {
	dir string
	to  poolfs.Account
}

// leaveProjects takes the driver's own directories out of any project, so that volumes can be moved between them: a rename into one
// that hands its project on fails with EXDEV. A project that somebody has limited is left only where quota is required; else why says
// what to do. What was left before something failed is in left too.
func leaveProjects(quotas poolfs.Quotas, want poolspec.Quota) (left []poolfs.Account, why string) {
	dirs, why := countedDirs(quotas, want)
	if why != "" {
		return nil, why
	}
	for _, d := range dirs {
		if err := quotas.Count(d.dir, 0); err != nil {
			return left, fmt.Sprintf("csi/%s cannot be taken out of its project: %v", d.dir, err)
		}
		if !slices.ContainsFunc(left, func(a poolfs.Account) bool { return a.Number == d.to.Number }) { // its use may have changed
			left = append(left, d.to)
		}
	}
	return left, ""
}

// countedDirs are those of the driver's own directories that are in a project; why says why they stay there.
func countedDirs(quotas poolfs.Quotas, want poolspec.Quota) (dirs []counted, why string) {
	for _, dir := range ownDirs() {
		account, err := accountOf(quotas, dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Sprintf("the driver cannot see which project csi/%s counts to: %v", dir, err)
		case account.Number == 0:
			continue
		case account.Limit != (poolfs.Limit{}) && want != poolspec.QuotaRequired:
			return nil, limited(quotas, account)
		}
		dirs = append(dirs, counted{dir: dir, to: account})
	}
	if len(dirs) > 0 && want == poolspec.QuotaRequired { // a driver that may not set limits refuses the pool
		if why := mayNotLimit(quotas); why != "" {
			return nil, why
		}
	}
	return dirs, ""
}

// accountOf is the account that a directory counts to, the zero one for none.
func accountOf(quotas poolfs.Quotas, dir string) (poolfs.Account, error) {
	number, err := quotas.CountedBy(dir)
	if err != nil || number == 0 {
		return poolfs.Account{}, err
	}
	return quotas.Account(number)
}

// limited says why a pool stays in an admin's project. What is made in staging is to count there too, or it could not be moved to csi/.
func limited(quotas poolfs.Quotas, to poolfs.Account) (why string) {
	why = fmt.Sprintf("csi/ counts to project %d, which has a limit of %s that the driver will not lift: give the pool a directory outside "+
		"that project, or say quota: required to take csi/ out of it", to.Number, limitText(to.Limit))
	number, err := quotas.CountedBy(".")
	if err == nil && number != 0 {
		err = quotas.Count(poolfs.StagingDir, number)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		why += fmt.Sprintf(" (and csi/%s cannot be counted to it: %v)", poolfs.StagingDir, err)
	}
	return why
}

func limitText(l poolfs.Limit) string {
	switch {
	case l.Inodes == 0:
		return fmt.Sprintf("%d bytes", l.Bytes)
	case l.Bytes == 0:
		return fmt.Sprintf("%d inodes", l.Inodes)
	default:
		return fmt.Sprintf("%d bytes and %d inodes", l.Bytes, l.Inodes)
	}
}
